"""Differences of program files, known by how values are computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.emit.sample_programs import full_program
from tests.models.case import Function
from tests.runtime_ref.assembly import Assembly

from exirkit import to_edge
from exirkit.emit import (
    FreeCall,
    Instruction,
    IntList,
    MethodDifference,
    Program,
    ProgramDifference,
    Tensor,
    TensorList,
    compare_programs,
    lay_out,
    read_program,
)
from exirkit.ir import UsageError
from exirkit.passes import ExecutorchBackendConfig, MemoryPlanningPass, naive

Build = Callable[[Assembly, int, int], int]


def compare(first: Program | bytes, second: Program | bytes) -> ProgramDifference:
    files = [one if isinstance(one, bytes) else lay_out(one).to_bytes() for one in (first, second)]
    return compare_programs(read_program(files[0]), read_program(files[1]))


def only_method(found: ProgramDifference) -> MethodDifference:
    (method,) = found.methods
    return method


def program(build: Build, *, unused: int = 0) -> Program:
    """Return a program of two inputs and one output; unused values at the start change the numbers of all others."""
    made = Assembly()
    for number in range(unused):
        made.argument(number)
    x, y = made.tensor([2, 3]), made.tensor([2, 3])
    return made.program([x, y], [build(made, x, y)])


def binary(made: Assembly, operator: str, one: int, two: int, *, alpha: int | None = 1, at: int | None = None) -> int:
    out = made.tensor([2, 3], at=at)
    scale = [] if alpha is None else [made.argument(alpha)]
    made.call(f"aten::{operator}.out", one, two, *scale, out, out)
    return out


def sum_and_product(made: Assembly, x: int, y: int) -> int:
    total = binary(made, "add", x, y)
    product = binary(made, "mul", x, y, alpha=None)
    return binary(made, "sub", total, product)


def product_and_sum(made: Assembly, x: int, y: int) -> int:
    product = binary(made, "mul", x, y, alpha=None)
    total = binary(made, "add", x, y)
    return binary(made, "sub", total, product)


def test_numbers_and_places_of_values_do_not_matter() -> None:
    found = compare(program(sum_and_product), program(sum_and_product, unused=3))
    assert found.is_same_meaning
    assert only_method(found).is_same


def test_another_order_is_the_same_meaning() -> None:
    method = only_method(compare(program(sum_and_product), program(product_and_sum)))
    assert method.is_same_meaning
    assert not method.is_same_order
    assert method.first_difference is None


@pytest.mark.parametrize(
    "build",
    [
        lambda made, x, y: binary(made, "add", x, y, alpha=2),
        lambda made, x, y: binary(made, "add", y, x),
        lambda made, x, y: binary(made, "sub", x, y),
        lambda made, x, y: binary(made, "add", x, binary(made, "add", y, y)),
        lambda made, x, y: x,
    ],
    ids=["argument", "operands", "operator", "input of it", "output"],
)
def test_another_meaning(build: Build) -> None:
    found = compare(program(lambda made, x, y: binary(made, "add", x, y)), program(build))
    assert not found.is_same_meaning
    assert only_method(found).differing_outputs == (0,)


def test_the_first_different_instruction_is_shown() -> None:
    def other(made: Assembly, x: int, y: int) -> int:
        total = binary(made, "add", x, y)
        return binary(made, "sub", total, binary(made, "div", x, y, alpha=None))

    method = only_method(compare(program(sum_and_product), program(other)))
    assert method.operators == {"aten::div.out": (0, 1), "aten::mul.out": (1, 0)}
    first = method.first_difference
    assert first is not None
    assert first.first is not None
    assert (first.first_at, first.second_at) == (1, 1)
    assert first.first.startswith("aten::mul.out(")
    assert first.first.endswith("f32[2, 3]")


def test_constants_are_known_by_their_bytes() -> None:
    def adds(*values: float) -> Program:
        made = Assembly()
        x = made.tensor([2])
        constants = [made.constant(torch.tensor([value, 1.0])) for value in values]
        for constant in constants:
            out = made.tensor([2])
            made.call("aten::add.out", x, constant, made.argument(1), out, out)
            x = out
        return made.program([0], [x])

    assert compare(adds(1.0, 2.0), adds(1.0, 2.0)).is_same_meaning
    found = compare(adds(1.0, 2.0), adds(1.0, 3.0))
    assert not found.is_same_meaning
    assert (found.constants.shared, found.constants.only_first, found.constants.only_second) == ((1, 8), (1, 8), (1, 8))
    # Zeros of both signs are equal numbers and other bytes.
    assert not compare(adds(0.0), adds(-0.0)).is_same_meaning


def test_tensors_that_show_the_bytes_of_others() -> None:
    def seen(operator: str) -> Program:
        made = Assembly()
        x, y = made.tensor([2, 3]), made.tensor([2, 3])
        total = binary(made, operator, x, y)
        start = made.declared(total).allocation_info
        assert start is not None
        flat = made.tensor([6], at=start.memory_offset)
        half = made.tensor([3], at=start.memory_offset + 12)
        out = made.tensor([6])
        made.call("aten::add.out", flat, half, made.argument(1), out, out)
        return made.program([x, y], [out])

    assert compare(seen("add"), seen("add")).is_same_meaning
    assert not compare(seen("add"), seen("sub")).is_same_meaning


def test_bytes_that_were_overwritten() -> None:
    def reused(second: str) -> Program:
        made = Assembly()
        x, y = made.tensor([2, 3]), made.tensor([2, 3])
        total = binary(made, "add", x, y)
        place = made.declared(total).allocation_info
        assert place is not None
        binary(made, second, x, y, at=place.memory_offset)
        # Reads the second result under the number of the first.
        return made.program([x, y], [binary(made, "add", total, x)])

    assert not compare(reused("add"), reused("sub")).is_same_meaning


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=8), st.integers(0, 9), st.integers(1, 5))
def test_bytes_by_their_writes(writes: list[tuple[int, int]], start: int, length: int) -> None:
    from exirkit.emit.differences import _Memory

    memory, model = _Memory(), [b""] * 16
    assert not memory.is_touched(start, start + length)
    for number, (at, size) in enumerate(writes):
        digest = bytes([number + 1])
        memory.write(at, at + size, digest)
        model[at : at + size] = [digest] * size
    for other in range(start + 1, 10):
        same = model[start : start + length] == model[other : other + length] and all(model[start : start + length])
        if memory.read(start, start + length) == memory.read(other, other + length):
            seen = {*model[start : start + length], *model[other : other + length]}
            assert same or seen == {b""}
    held = model[start : start + length]
    assert memory.is_touched(start, start + length) == any(held)
    written = [number for number, (at, size) in enumerate(writes) if (at, size) == (start, length)]
    if written and held == [bytes([written[-1] + 1])] * length:
        assert memory.read(start, start + length) == held[0]


def test_states_are_compared() -> None:
    class Counting(torch.nn.Module):
        def __init__(self, start: float, step: float) -> None:
            super().__init__()
            self.count: torch.Tensor
            self.register_buffer("count", torch.full((2,), start))
            self.step = step

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(self.step)
            return x + 1

    def lowered(*args: float) -> bytes:
        return to_edge(torch.export.export(Counting(*args), (torch.ones(2),))).to_executorch().buffer

    assert compare(lowered(0.0, 1.0), lowered(0.0, 1.0)).is_same_meaning
    for other in ((1.0, 1.0), (0.0, 2.0), (5.0, 2.0)):
        # A buffer of zeros is not in the file, and has no name there.
        method = only_method(compare(lowered(0.0, 1.0), lowered(*other)))
        assert method.differing_states
        assert method.differing_outputs == ()


@pytest.mark.parametrize("level", [0, 1, 2])
def test_plans_do_not_matter(level: int) -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        split = torch.split(torch.softmax(x @ y, 1), 2, 1)
        return torch.cat([split[1].reshape(-1), (split[0] * 2).flatten()]) + y[0, 0]

    exported = torch.export.export(Function(model), (torch.randn(4, 4), torch.randn(4, 4)))
    files = []
    for planning in (MemoryPlanningPass(), MemoryPlanningPass(naive)):
        config = ExecutorchBackendConfig(memory_planning_pass=planning, optimization_level=level)
        files.append(to_edge(exported).to_executorch(config).buffer)
    found = compare(*files)
    assert found.is_same_meaning
    arenas = only_method(found).arenas
    assert sum(arenas[0]) <= sum(arenas[1])


def test_methods_of_one_file_only() -> None:
    def with_name(name: str) -> Program:
        made = program(sum_and_product)
        made.execution_plan[0].name = name
        return made

    found = compare(with_name("encode"), with_name("decode"))
    assert (found.only_first, found.only_second, found.methods) == (("encode",), ("decode",), ())
    assert not found.is_same_meaning


def test_every_kind_of_instruction() -> None:
    made = full_program()
    for plan in made.execution_plan:
        for value in plan.values:
            # Its data segments are not there.
            if isinstance(value.val, Tensor) and value.val.allocation_info is not None:
                value.val.data_buffer_idx = 0
    assert compare(made, made).is_same_meaning


def test_missing_data() -> None:
    with pytest.raises(UsageError, match="EK523"):
        compare(full_program(), full_program())


def test_freed_memory_does_not_matter() -> None:
    freed = program(sum_and_product)
    freed.execution_plan[0].chains[0].instructions.append(Instruction(instr_args=FreeCall(value_index=2)))
    assert only_method(compare(program(sum_and_product), freed)).is_same


def test_references_that_lead_nowhere() -> None:
    def malformed(made: Assembly, x: int, y: int) -> int:
        made.value(TensorList(items=[len(made.plan.values), 10**6, -3]))
        made.value(IntList(items=[len(made.plan.values) - 1]))
        out = made.tensor([2, 3])
        made.call("aten::cat.out", len(made.plan.values) - 3, len(made.plan.values) - 2, 10**6, out, out)
        return out

    assert compare(program(malformed), program(malformed)).is_same_meaning
