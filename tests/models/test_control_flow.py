"""Control flow and sizes that data decide, on both runtimes at all levels of optimization: bit for bit as eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.models import control_forms, sized_by_data
from tests.models.agreement import assert_agree
from tests.models.case import EXACT, Method, Value
from tests.models.control_programs import MODELS
from tests.official.oracle import OfficialRuntime
from tests.thoroughness import some_of

import exirkit
from exirkit import ExecutorchBackendConfig, ExecutorchProgramManager
from exirkit.passes import MemoryPlanningPass
from exirkit.pictures import PicturedValue, picture_manager
from exirkit.runtime_ref import Runtime
from exirkit.verifiers import check_memory_plan, check_program

pytestmark = pytest.mark.slow

for _models in (sized_by_data, control_forms):
    assert _models.model, "imported for the models that they register"

PLANS: dict[str, Callable[[], dict[str, Any]]] = {
    "O0": lambda: {"optimization_level": 0},
    "O1": lambda: {"optimization_level": 1},
    "O2": lambda: {"optimization_level": 2},
    "caller's memory": lambda: {
        "memory_planning_pass": MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    },
    "in place": lambda: {"memory_planning_pass": MemoryPlanningPass(in_place=True)},
    "scheduled": lambda: {"memory_planning_pass": MemoryPlanningPass(schedule=True)},
}


@dataclass(frozen=True)
class Lowered:
    """A model, what we make of it in several ways, and the right answers."""

    method: Method
    made: dict[str, ExecutorchProgramManager]
    expected: list[list[Value]]


def steps_of(value: PicturedValue) -> set[int]:
    return {step for first, last in value.spans for step in range(first, last + 1)}


@pytest.fixture(scope="class", params=MODELS)
def lowered(request: pytest.FixtureRequest) -> Lowered:
    method = MODELS[request.param]().methods["forward"]
    edge = exirkit.to_edge(method.export())
    assert check_program(edge.exported_program(), "edge", debug_handles=True) == []
    names = some_of(list(PLANS), ("O0", "O1", "O2"), list(MODELS).index(request.param), 1)
    made = {name: edge.to_executorch(ExecutorchBackendConfig(**PLANS[name]())) for name in names}
    return Lowered(method, made, method.expected())


class TestControlFlow:
    def test_on_our_interpreter(self, lowered: Lowered) -> None:
        for name, made in lowered.made.items():
            program = Runtime.get().load_program(
                made.buffer, knowing=True, views=made.view_bases, in_place=name == "in place"
            )
            loaded = program.load_method("forward")
            got = [list(loaded.execute(call.cloned().leaves())) for call in lowered.method.calls]
            assert_agree(got, lowered.expected, EXACT)

    @pytest.mark.executorch
    def test_on_the_official_runtime(self, lowered: Lowered, official_runtime: OfficialRuntime) -> None:
        calls = [call.leaves() for call in lowered.method.calls]
        for made in lowered.made.values():
            assert_agree(official_runtime.run(made.buffer, calls).unwrap(), lowered.expected, EXACT)

    def test_its_instructions_need_no_bytes_of_two_values_at_once(self, lowered: Lowered) -> None:
        for made in (lowered.made.get("O0"), lowered.made.get("scheduled")):
            if made is None:
                continue
            (method,) = picture_manager(made).methods
            for index, one in enumerate(method.values):
                for other in method.values[index + 1 :]:
                    if one.offset < other.offset + other.nbytes and other.offset < one.offset + one.nbytes:
                        assert not steps_of(one) & steps_of(other), (one, other)

    def test_the_dialect_is_right_and_runs_on_torch(self, lowered: Lowered) -> None:
        program = lowered.made["O0"].exported_program()
        assert check_program(program, "executorch", debug_handles=True) == []
        assert check_memory_plan(program.graph_module, program.graph_signature) == []
