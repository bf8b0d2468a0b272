"""Bugs planted in the file of a real model: the memory sanitizer sees each of them that marking by hand sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.runtime_ref.byte_marking import bytes_of, is_right

import exirkit
from exirkit import ExecutorchBackendConfig
from exirkit.emit import AllocationDetails, ExecutionPlan, KernelCall, PteFile, Tensor, read_program
from exirkit.ir import Diagnostic, ModelError
from exirkit.passes import MemoryPlanningPass, naive
from exirkit.runtime_ref import Runtime


class Model(torch.nn.Module):
    """Two inputs, a buffer, a view, an operator with several results, two outputs."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.register_buffer("seen", torch.zeros(4, 6))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.norm(self.linear(x) + y)
        self.seen.add_(hidden)
        folded = torch.relu(hidden).view(2, 12)
        scaled = folded * 2 + torch.sigmoid(folded)
        total = torch.tanh(hidden).sum(0)
        return scaled.view(4, 6) + self.seen * x, total


INPUTS = [torch.linspace(-1, 1, 24).view(4, 6), torch.linspace(2, 0, 24).view(4, 6)]


@dataclass(frozen=True)
class Lowered:
    """A file, its state, and what its views show."""

    file: PteFile
    state: frozenset[int]
    views: dict[int, int]

    @property
    def plan(self) -> ExecutionPlan:
        return self.file.program.execution_plan[0]

    def planned(self) -> list[int]:
        """Return the values with a place that are not views."""
        return [
            index for index in range(len(self.plan.values)) if bytes_of(self.plan, index) and index not in self.views
        ]

    def run(self, plan: ExecutionPlan, *, runs: int = 3) -> Diagnostic | None:
        """Run another plan in place of the own one; return what is found."""
        program = self.file.program.model_copy(update={"execution_plan": [plan]})
        file = PteFile(program, self.file.header, self.file.segments)
        try:
            method = (
                Runtime.get().load_program(file, sanitize=True, views={"forward": self.views}).load_method("forward")
            )
            for _ in range(runs):
                method.execute(INPUTS)
        except ModelError as error:
            return error.diagnostics[0]
        return None


@pytest.fixture(scope="module", params=["greedy", "naive"])
def lowered(request: pytest.FixtureRequest) -> Lowered:
    torch.manual_seed(0)
    edge = exirkit.to_edge(torch.export.export(Model().eval(), tuple(INPUTS)))
    planning = MemoryPlanningPass(naive) if request.param == "naive" else MemoryPlanningPass()
    made = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    file = read_program(made.buffer)
    plan = file.program.execution_plan[0]
    state = {
        call.args[0]
        for instruction in plan.chains[0].instructions
        if isinstance(call := instruction.instr_args, KernelCall)
        and plan.operators[call.op_index].name == "aten::copy_"
    }
    return Lowered(file, frozenset(state), made.view_bases["forward"])


def clone(plan: ExecutionPlan) -> ExecutionPlan:
    return plan.model_copy(deep=True)


def move(lowered: Lowered, plan: ExecutionPlan, index: int, arena: int, at: int) -> None:
    """Give a value another place, and all its views with it."""
    for one in [index, *(view for view, base in lowered.views.items() if base == index)]:
        tensor = plan.values[one].val
        assert isinstance(tensor, Tensor)
        tensor.allocation_info = AllocationDetails.at(arena, at)
    end = at + len(bytes_of(plan, index))
    plan.non_const_buffer_sizes[arena] = max(plan.non_const_buffer_sizes[arena], end)


def place(plan: ExecutionPlan, index: int) -> tuple[int, int]:
    return bytes_of(plan, index)[0]


def part(lowered: Lowered, index: int) -> str:
    """Return what a value is in its method."""
    if index in lowered.state:
        return "buffer"
    if index in lowered.plan.inputs:
        return "input"
    outputs = {lowered.views.get(one, one) for one in lowered.plan.outputs}
    return "output" if index in outputs else "temporary"


def test_the_file_itself_is_right(lowered: Lowered) -> None:
    assert lowered.views
    assert len(lowered.state) == 1
    assert is_right(lowered.plan, state=lowered.state, views=lowered.views)
    assert lowered.run(lowered.plan) is None


def test_guessed_views_are_the_true_ones(lowered: Lowered) -> None:
    method = Runtime.get().load_program(lowered.file, sanitize=True).load_method("forward")
    for _ in range(3):
        method.execute(INPUTS)


def test_every_pair_that_is_put_into_one_place(lowered: Lowered) -> None:
    """Two values overlap by their last or first four bytes; both are named."""
    classes: dict[tuple[str, ...], int] = {}
    for first, second in combinations(lowered.planned(), 2):
        for distance in (0, 4):
            plan = clone(lowered.plan)
            arena, at = place(plan, first)
            move(lowered, plan, second, arena, at + distance)
            found = lowered.run(plan)
            right = is_right(plan, state=lowered.state, views=lowered.views)
            assert (found is None) == right, (first, second, distance, found)
            if found is None:
                continue
            assert found.code in {"EK660", "EK661", "EK662", "EK663", "EK664"}
            text = "\n".join((found.message, *found.notes))
            assert f"value {second} (" in text
            kinds = tuple(sorted((part(lowered, first), part(lowered, second))))
            if f"value {first} (" in text:
                classes[kinds] = classes.get(kinds, 0) + 1
    wanted = {("input", "temporary"), ("temporary", "temporary"), ("output", "temporary"), ("buffer", "temporary")}
    wanted |= {("input", "input"), ("buffer", "input"), ("buffer", "output"), ("input", "output"), ("output", "output")}
    assert wanted <= classes.keys()


def changed_orders(plan: ExecutionPlan) -> Iterator[tuple[str, ExecutionPlan]]:
    instructions = plan.chains[0].instructions
    for at in range(len(instructions)):
        dropped = clone(plan)
        del dropped.chains[0].instructions[at]
        yield f"without {at}", dropped
    for one, other in combinations(range(len(instructions)), 2):
        swapped = clone(plan)
        order = swapped.chains[0].instructions
        order[one], order[other] = order[other], order[one]
        yield f"{one} and {other} swapped", swapped


def test_every_missing_instruction_and_every_two_that_are_swapped(lowered: Lowered) -> None:
    alarms = 0
    for what, plan in changed_orders(lowered.plan):
        names = [plan.operators[call.op_index].name for call in calls(plan)]
        if "aten::copy_" not in names:
            # Without its write-back a buffer of zeros cannot be told from memory that nothing has written to.
            found = lowered.run(plan)
            assert found is not None, what
            assert found.code == "EK661", what
            continue
        found = lowered.run(plan)
        assert (found is None) == is_right(plan, state=lowered.state, views=lowered.views), (what, found)
        alarms += found is not None
    assert alarms > 20


def calls(plan: ExecutionPlan) -> list[KernelCall]:
    found = [instruction.instr_args for instruction in plan.chains[0].instructions]
    assert all(isinstance(one, KernelCall) for one in found)
    return found  # type: ignore[return-value]


def test_view_at_every_other_place(lowered: Lowered) -> None:
    for view in lowered.views:
        arena, _ = place(lowered.plan, view)
        nbytes = len(bytes_of(lowered.plan, view))
        for at in range(0, lowered.plan.non_const_buffer_sizes[arena] - nbytes, 8):
            plan = clone(lowered.plan)
            tensor = plan.values[view].val
            assert isinstance(tensor, Tensor)
            tensor.allocation_info = AllocationDetails.at(arena, at)
            found = lowered.run(plan, runs=1)
            assert (found is None) == is_right(plan, state=lowered.state, views=lowered.views, runs=1), (
                view,
                at,
                found,
            )
            if found is not None:
                assert f"value {view} (" in "\n".join((found.message, *found.notes))


def test_smaller_arena(lowered: Lowered) -> None:
    plan = clone(lowered.plan)
    last = [bytes_of(plan, index)[-1] for index in lowered.planned()]
    plan.non_const_buffer_sizes[1] = max(at for arena, at in last if arena == 1)
    found = lowered.run(plan)
    assert found is not None
    assert found.code == "EK608"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_places(lowered: Lowered, data: st.DataObject) -> None:
    plan = clone(lowered.plan)
    for index in data.draw(st.lists(st.sampled_from(lowered.planned()), min_size=1, max_size=3, unique=True)):
        arena = data.draw(st.integers(1, len(plan.non_const_buffer_sizes) - 1))
        nbytes = len(bytes_of(plan, index))
        room = plan.non_const_buffer_sizes[arena] + 64 - nbytes
        at = 4 * data.draw(st.integers(0, max(0, room) // 4))
        move(lowered, plan, index, arena, at)
    found = lowered.run(plan)
    event(f"found: {found.code if found else None}")
    assert (found is None) == is_right(plan, state=lowered.state, views=lowered.views)
