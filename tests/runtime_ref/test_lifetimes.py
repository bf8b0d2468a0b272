"""When tensors need their memory, against a search along every path of the program."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.runtime_ref.assembly import Assembly

from exirkit import ExecutorchBackendConfig, ModelError, ProgramVerifyError, to_edge
from exirkit.emit import JumpFalseCall, KernelCall, Tensor, read_program
from exirkit.runtime_ref import PlannedLifetime, lifetimes_of_program


def lives(
    made: Assembly, inputs: list[int], outputs: list[int], views: Mapping[str, Mapping[int, int]] | None = None
) -> dict[int, PlannedLifetime]:
    found = lifetimes_of_program(made.file(inputs, outputs), views=views)["forward"]
    return {life.value: life for life in found}


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


def test_a_straight_program_shows_what_writes_and_reads() -> None:
    made = Assembly()
    x, left, right, out = (made.tensor([4]) for _ in range(4))
    alpha = made.argument(1)
    add(made, alpha, x, x, left)
    add(made, alpha, left, left, right)
    add(made, alpha, left, right, out)
    found = lives(made, [x], [out])
    assert [(life.kind, life.spans, life.producer, life.readers) for _, life in sorted(found.items())] == [
        ("input", ((0, 0),), None, (0,)),
        ("activation", ((0, 2),), 0, (1, 2)),
        ("activation", ((1, 2),), 1, (2,)),
        ("output", ((2, 2),), 2, ()),
    ]
    assert (found[left].arena, found[left].start, found[left].end) == (1, 16, 32)


def test_a_jump_backwards_keeps_what_the_next_round_reads() -> None:
    made = Assembly()
    x, total, fresh = (made.tensor([4]) for _ in range(3))
    flag, alpha = made.tensor([], torch.bool), made.argument(1)
    add(made, alpha, x, x, total)
    add(made, alpha, total, total, fresh)
    add(made, alpha, fresh, fresh, total)
    add(made, alpha, total, x, fresh)
    made.jump_if_false(flag, 1)
    found = lives(made, [x, flag], [fresh])
    assert found[x].spans == found[flag].spans == ((0, 4),)
    assert found[total].spans == ((0, 4),)
    assert found[fresh].spans == ((1, 4),)
    assert [life.kind for life in found.values()].count("output") == 1


def test_values_of_two_branches_are_not_needed_together() -> None:
    made = Assembly()
    x, one, two, out = (made.tensor([4]) for _ in range(4))
    flag, never, alpha = made.tensor([], torch.bool), made.argument(False), made.argument(1)
    made.jump_if_false(flag, 4)
    add(made, alpha, x, x, one)
    add(made, alpha, one, one, out)
    made.jump_if_false(never, 6)
    add(made, alpha, x, x, two)
    add(made, alpha, two, two, out)
    add(made, alpha, out, out, out)
    found = lives(made, [x, flag], [out])
    assert (found[one].spans, found[two].spans) == (((1, 2),), ((4, 5),))
    assert found[out].spans == ((2, 3), (5, 6))
    assert found[x].spans == ((0, 1), (4, 4))


def test_a_moved_tensor_is_needed_under_its_new_name() -> None:
    made = Assembly()
    x, made_here, result, out = (made.tensor([4]) for _ in range(4))
    alpha = made.argument(1)
    add(made, alpha, x, x, made_here)
    made.move(made_here, result)
    add(made, alpha, x, x, out)
    add(made, alpha, result, out, out)
    found = lives(made, [x], [out])
    assert found[made_here].spans == ((0, 3),)
    assert found[made_here].readers == (3,)
    # It is nothing but a name: its own bytes are never used.
    assert result not in found


def test_a_moved_tensor_that_is_returned_is_an_output() -> None:
    made = Assembly()
    x, inner, result = (made.tensor([4]) for _ in range(3))
    add(made, made.argument(1), x, x, inner)
    made.move(inner, result)
    found = lives(made, [x], [result])
    assert (found[inner].kind, found[inner].spans) == ("output", ((0, 1),))


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


def test_state_is_there_all_the_time() -> None:
    made = Assembly()
    x, out, count = made.tensor([4]), made.tensor([4]), made.tensor([4], name="count")
    alpha = made.argument(1)
    add(made, alpha, x, x, out)
    made.call("aten::copy_", count, out, made.argument(False), count)
    add(made, alpha, out, x, out)
    found = lives(made, [x], [out])
    assert (found[count].kind, found[count].spans) == ("state", ((0, 2),))


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


def test_an_input_that_nothing_reads_may_be_overwritten_at_once() -> None:
    made = Assembly()
    x, unused = made.tensor([4]), made.tensor([4])
    out = made.tensor([4], at=16)
    add(made, made.argument(1), x, x, out)
    found = lives(made, [x, unused], [out])
    assert unused not in found
    assert found[out].spans == ((0, 0),)


def test_a_method_without_instructions() -> None:
    made = Assembly()
    x = made.tensor([4])
    assert [life.spans for life in lives(made, [x], [x]).values()] == [((0, 0),)]


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
