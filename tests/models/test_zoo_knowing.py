"""No case of the zoo uses memory wrongly, however it is lowered and planned, as far as a knowing run can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.models.agreement import assert_agree
from tests.models.case import Built, ModelCase
from tests.models.test_official_files_on_our_interpreter import NAMES
from tests.models.zoo import CASES
from tests.thoroughness import some_of

import exirkit
from exirkit import EdgeProgramManager, ExecutorchBackendConfig
from exirkit.passes import MemoryPlanningPass, naive
from exirkit.runtime_ref import Runtime

pytestmark = pytest.mark.slow

PLANS: dict[str, Callable[[], dict[str, Any]]] = {
    "as it is": lambda: {"optimization_level": 0},
    "exactly": lambda: {"optimization_level": 1},
    "for speed": lambda: {"optimization_level": 2},
    "for size": lambda: {"optimization_level": 2, "optimize_for": "size"},
    "naive": lambda: {"memory_planning_pass": MemoryPlanningPass(naive)},
    "closely": lambda: {"memory_planning_pass": MemoryPlanningPass(alignment=8)},
    "caller's inputs": lambda: {"memory_planning_pass": MemoryPlanningPass(alloc_graph_input=False)},
    "caller's outputs": lambda: {"memory_planning_pass": MemoryPlanningPass(alloc_graph_output=False)},
    "views copied": lambda: {"remove_view_copy": False},
}


@pytest.fixture(scope="class", params=list(CASES.values()), ids=list(CASES))
def lowered(request: pytest.FixtureRequest) -> tuple[ModelCase, Built, EdgeProgramManager]:
    """One case; class scope keeps its tests together, so that it is exported once."""
    case: ModelCase = request.param
    built = case.make()
    exported = built.export()
    return case, built, exirkit.to_edge(exported["forward"] if set(exported) == {"forward"} else exported)


ALWAYS = ("as it is", "exactly", "for speed")


class TestKnowingRun:
    @pytest.mark.parametrize("turn", range(len(some_of(list(PLANS), ALWAYS, 0, 2))))
    def test_of_our_file(self, lowered: tuple[ModelCase, Built, EdgeProgramManager], turn: int) -> None:
        case, built, edge = lowered
        plan = some_of(list(PLANS), ALWAYS, list(CASES).index(case.name), 2)[turn]
        made = edge.to_executorch(ExecutorchBackendConfig(**PLANS[plan]()))
        for views in (None, made.view_bases):
            program = Runtime.get().load_program(made.buffer, knowing=True, views=views)
            for name, method in built.methods.items():
                loaded = program.load_method(name)
                got = [list(loaded.execute(call.cloned().leaves())) for call in method.calls]
                if views is None:
                    assert_agree(got, method.expected(), case.tolerance)


@pytest.mark.executorch
@pytest.mark.parametrize("name", NAMES)
def test_knowing_run_of_an_official_file(name: str, official_export: Callable[[str], bytes]) -> None:
    case = CASES[name]
    program = Runtime.get().load_program(official_export(name), knowing=True)
    for method_name, method in case.make().methods.items():
        loaded = program.load_method(method_name)
        assert_agree(
            [list(loaded.execute(call.cloned().leaves())) for call in method.calls], method.expected(), case.tolerance
        )
