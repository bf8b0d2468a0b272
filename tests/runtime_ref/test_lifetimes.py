"""When tensors need their memory, against a search along every path of the program."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tests.runtime_ref.assembly import Assembly, assembled

from exirkit import ExecutorchBackendConfig, ModelError, ProgramVerifyError, to_edge
from exirkit.emit import JumpFalseCall, KernelCall, Tensor, read_program
from exirkit.runtime_ref import PlannedLifetime, lifetimes_of_program


def lives(
    made: Assembly, inputs: list[int], outputs: list[int], views: Mapping[str, Mapping[int, int]] | None = None
) -> dict[int, PlannedLifetime]:
    found = lifetimes_of_program(made.file(inputs, outputs), views=views)["forward"]
    return {life.value: life for life in found}


def tensor_nbytes(tensor: Tensor) -> int:
    return tensor.scalar_type.itemsize * prod(tensor.sizes)


def covered(life: PlannedLifetime) -> set[int]:
    return {step for first, last in life.spans for step in range(first, last + 1)}


def add(made: Assembly, alpha: int, left: int, right: int, out: int) -> None:
    made.call("aten::add.out", left, right, alpha, out, out)


def reads_before_a_write(instructions: list[Any], start: int, value: int, *, returned: bool) -> bool:
    """Return whether some path from an instruction reads a value before it writes to it."""
    waiting, seen = [start], set()
    while waiting:
        at = waiting.pop()
        if at in seen or at == len(instructions):
            if at == len(instructions) and returned:
                return True
            continue
        seen.add(at)
        step = instructions[at]
        if isinstance(step, JumpFalseCall):
            if step.cond_value_index == value:
                return True
            waiting += [at + 1, step.destination_instruction]
        elif value in step.args[:2]:
            return True
        elif value != step.args[3]:
            waiting.append(at + 1)
    return False


def holds_something(instructions: list[Any], at: int, value: int, *, given: bool) -> bool:
    """Return whether some path from the start to an instruction writes to a value, or one before it."""
    waiting, seen = [(0, given)], set()
    while waiting:
        here, written = waiting.pop()
        if (here, written) in seen:
            continue
        seen.add((here, written))
        if here == at and written:
            return True
        if here == len(instructions):
            continue
        step = instructions[here]
        if isinstance(step, JumpFalseCall):
            waiting += [(here + 1, written), (step.destination_instruction, written)]
        else:
            waiting.append((here + 1, written or step.args[3] == value))
    return False


def searched(made: Assembly, inputs: list[int], outputs: list[int]) -> dict[int, set[int]]:
    """Return at which instructions each tensor is needed."""
    instructions = [each.instr_args for each in made.plan.chains[0].instructions]
    needed = {}
    for value in (index for index, each in enumerate(made.plan.values) if isinstance(each.val, Tensor)):
        found = set()
        for at, step in enumerate(instructions):
            writes = isinstance(step, KernelCall) and step.args[3] == value
            is_read = reads_before_a_write(instructions, at, value, returned=value in outputs)
            if writes or (is_read and holds_something(instructions, at, value, given=value in inputs)):
                found.add(at)
        needed[value] = found
    return needed


@pytest.mark.parametrize("seed", range(60))
def test_lives_are_what_a_search_along_all_paths_finds(seed: int) -> None:
    draw = random.Random(seed)
    made = Assembly()
    values = [made.tensor([draw.choice([1, 3, 20])]) for _ in range(5)]
    flag, alpha = made.tensor([], torch.bool), made.argument(1)
    length = draw.randrange(1, 14)
    for _ in range(length):
        if draw.random() < 0.3:
            made.jump_if_false(flag, draw.randrange(length + 1))
        else:
            add(made, alpha, *(draw.choice(values) for _ in range(3)))
    inputs, outputs = [flag, *draw.sample(values, 2)], draw.sample(values, 2)
    found = lives(made, inputs, outputs)
    wanted = searched(made, inputs, outputs)
    changed = {step.instr_args.args[3] for step in made.plan.chains[0].instructions if hasattr(step.instr_args, "args")}
    for value in [*values, flag]:
        # A tensor that is neither written nor handed over has no bytes that could be shown.
        if value in changed or value in inputs:
            assert (covered(found[value]) if value in found else set()) == wanted[value], value


CASES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("lifetimes.yaml").read_text())


@pytest.mark.parametrize("name", CASES)
def test_program(name: str) -> None:
    case = CASES[name]
    made, values = assembled(case)
    lifetimes = lives(made, [], [])
    found = {one: lifetimes[index] for one, index in values.items() if index in lifetimes}
    assert {one: [list(span) for span in life.spans] for one, life in found.items()} == case["spans"]
    for one, kind in case.get("kinds", {}).items():
        assert found[one].kind == kind
    for one, producer in case.get("producers", {}).items():
        assert found[one].producer == producer
    for one, readers in case.get("readers", {}).items():
        assert list(found[one].readers) == readers
    for one, life in found.items():
        tensor = made.declared(values[one])
        assert tensor.allocation_info is not None
        start = tensor.allocation_info.memory_offset
        assert (life.arena, life.start, life.end) == (1, start, start + tensor_nbytes(tensor))


def test_views_keep_what_they_show() -> None:
    made = Assembly()
    x, base, out = (made.tensor([4]) for _ in range(3))
    still = made.tensor([2, 2], at=made.declared(base).allocation_info.memory_offset)  # type: ignore[union-attr]
    shown = made.tensor([2, 2], at=made.declared(base).allocation_info.memory_offset)  # type: ignore[union-attr]
    alpha, other = made.argument(1), made.tensor([2, 2])
    add(made, alpha, x, x, base)
    made.call("executorch_prim::et_view.default", base, made.argument([2, 2]), shown)
    add(made, alpha, x, x, out)
    add(made, alpha, shown, still, other)
    found = lives(made, [x], [out, other], {"forward": {still: base}})
    assert sorted(found) == sorted([x, base, out, other])
    assert found[base].spans == ((0, 3),)


@pytest.mark.parametrize("foreign", ["operator", "delegate"])
def test_of_foreign_calls_new_arguments_are_results(foreign: str) -> None:
    made = Assembly()
    x, first, second, third, out = (made.tensor([4]) for _ in range(5))
    alpha = made.argument(1)
    add(made, alpha, x, x, first)
    if foreign == "operator":
        made.call("unknown::knows.out", first, x, second, third, third)
    else:
        made.delegate("Unknown", first, x, second, third)
    add(made, alpha, third, third, out)
    found = lives(made, [x], [out])
    assert {value: life.spans for value, life in found.items()} == {
        x: ((0, 1),), first: ((0, 1),), second: ((1, 1),), third: ((1, 2),), out: ((2, 2),)
    }  # fmt: skip
    assert (found[second].producer, found[first].readers) == (1, (1,))


def test_wrong_files_are_rejected() -> None:
    made = Assembly()
    x, out = made.tensor([4]), made.tensor([4])
    made.call("aten::add.out", x, x, made.argument(1), 999, 999)
    with pytest.raises(ProgramVerifyError, match="EK6"):
        lives(made, [x], [out])


def test_a_file_that_would_take_forever_is_rejected() -> None:
    made = Assembly()
    values = [made.tensor([1], torch.bool) for _ in range(1300)]
    for index in range(2600):
        made.jump_if_false(values[index % 1300], max(index - 1, 0))
    with pytest.raises(ModelError, match="EK667"):
        lives(made, values, values[:1])


def test_many_names_of_one_tensor_are_rejected() -> None:
    made = Assembly()
    values = [made.tensor([1]) for _ in range(2100)]
    for before, after in pairwise(values):
        made.move(before, after)
    with pytest.raises(ModelError, match="EK667"):
        lives(made, values[:1], values[-1:])


class Branching(torch.nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left, right = x.sin(), x.cos()
        wide = torch.cat([left, right, left * right], 1)
        parts = wide.split(8, 1)
        self.count.add_(parts[0])
        return parts[1] + self.count, (wide.reshape(-1) * 2.0).sum()


def test_lives_of_a_lowered_program_do_not_overlap_in_memory() -> None:
    lowered = to_edge(torch.export.export(Branching(), (torch.randn(3, 8),))).to_executorch(ExecutorchBackendConfig())
    found = lifetimes_of_program(read_program(lowered.buffer), views=lowered.view_bases)["forward"]
    assert {life.kind for life in found} == {"input", "output", "state", "activation"}
    for index, one in enumerate(found):
        for other in found[index + 1 :]:
            if one.start < other.end and other.start < one.end:
                assert not covered(one) & covered(other), (one, other)
