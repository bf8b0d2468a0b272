"""Every case of the zoo at -O2 answers like eager PyTorch on both runtimes; -O1 needs no more memory than -O0."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.models.agreement import assert_agree
from tests.models.case import Built, ModelCase, Value
from tests.models.zoo import CASES
from tests.official.oracle import OfficialRuntime

import exirkit
from exirkit import ExecutorchBackendConfig, ExecutorchProgramManager
from exirkit.runtime_ref import Runtime

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Optimized:
    """A case, its programs by level of optimization, and the right answers of each method."""

    case: ModelCase
    built: Built
    levels: tuple[ExecutorchProgramManager, ...]
    expected: dict[str, list[list[Value]]]


@pytest.fixture(scope="class", params=list(CASES.values()), ids=list(CASES))
def optimized(request: pytest.FixtureRequest) -> Optimized:
    """One case; class scope keeps its tests together, so that it is lowered once."""
    case: ModelCase = request.param
    built = case.make()
    exported = built.export()
    edge = exirkit.to_edge(exported["forward"] if set(exported) == {"forward"} else exported)
    levels = tuple(edge.to_executorch(ExecutorchBackendConfig(optimization_level=level)) for level in range(3))
    return Optimized(case, built, levels, {name: method.expected() for name, method in built.methods.items()})


class TestOptimizedCase:
    def test_on_our_interpreter(self, optimized: Optimized) -> None:
        for name, method in optimized.built.methods.items():
            loaded = Runtime.get().load_program(optimized.levels[2].buffer).load_method(name)
            got = [list(loaded.execute(call.leaves())) for call in method.calls]
            assert_agree(got, optimized.expected[name], optimized.case.tolerance)

    @pytest.mark.executorch
    def test_on_the_official_runtime(self, optimized: Optimized, official_runtime: OfficialRuntime) -> None:
        for name, method in optimized.built.methods.items():
            calls = [call.leaves() for call in method.calls]
            got = official_runtime.run(optimized.levels[2].buffer, calls, method=name).unwrap()
            assert_agree(got, optimized.expected[name], optimized.case.tolerance)

    def test_without_change_of_results_it_needs_no_more_memory(self, optimized: Optimized) -> None:
        plain, exact = (
            [sum(plan.non_const_buffer_sizes) for plan in one.executorch_program.execution_plan]
            for one in optimized.levels[:2]
        )
        assert all(after <= before for before, after in zip(plain, exact, strict=True))
