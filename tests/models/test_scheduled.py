"""Models in a better order answer bit for bit as in the given one: on our interpreter, knowing, and officially."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from benchmarks.branching_models import build_branching
from tests.models.agreement import assert_agree
from tests.models.case import EXACT, Value
from tests.models.zoo import CASES
from tests.official.oracle import OfficialRuntime

import exirkit
from exirkit import ExecutorchBackendConfig, MemoryPlanningPass
from exirkit.program import ExecutorchProgramManager
from exirkit.runtime_ref import Runtime

# Those of the zoo that have state, sizes that vary, several methods or results, and whose order changes.
NAMES = ["moving_average", "streaming_gru", "input_mutated", "dynamic_views", "int64"]

BRANCHING = ["inception", "towers"]


@dataclass(frozen=True)
class Pair:
    """One model in both orders, and the inputs of its calls by method."""

    given: ExecutorchProgramManager
    better: ExecutorchProgramManager
    calls: dict[str, list[Callable[[], list[Value]]]]

    def sizes(self) -> list[int]:
        plans = [each.executorch_program.execution_plan for each in (self.given, self.better)]
        return [sum(sum(plan.non_const_buffer_sizes) for plan in listed) for listed in plans]


@pytest.fixture(scope="class", params=[*NAMES, *BRANCHING])
def pair(request: pytest.FixtureRequest) -> Pair:
    name: str = request.param
    calls: dict[str, list[Callable[[], list[Value]]]]
    if name in BRANCHING:
        model = build_branching(name)
        exported = {"forward": model.export()}
        calls = {"forward": [lambda: list(model.inputs), lambda: [torch.randn_like(one) for one in model.inputs]]}
    else:
        built = CASES[name].make()
        exported = built.export()
        calls = {key: [call.leaves for call in method.calls] for key, method in built.methods.items()}
    edge = exirkit.to_edge(exported)
    lowered = [
        edge.to_executorch(
            ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(in_place=True, schedule=schedule))
        )
        for schedule in (False, True)
    ]
    return Pair(lowered[0], lowered[1], calls)


class TestBothOrders:
    def test_it_needs_less(self, pair: Pair) -> None:
        given, better = pair.sizes()
        assert better < given

    def test_on_our_interpreter(self, pair: Pair) -> None:
        for method, calls in pair.calls.items():
            plain = Runtime.get().load_program(pair.given.buffer).load_method(method)
            program = Runtime.get().load_program(
                pair.better.buffer, sanitize=True, views=pair.better.view_bases, in_place=True
            )
            knowing = program.load_method(method)
            for call in calls:
                inputs = call()
                assert_agree([list(knowing.execute(inputs))], [list(plain.execute(inputs))], EXACT)

    @pytest.mark.executorch
    def test_on_the_official_runtime(self, pair: Pair, official_runtime: OfficialRuntime) -> None:
        for method, calls in pair.calls.items():
            inputs = [call() for call in calls]
            given, better = (
                official_runtime.run(each.buffer, inputs, method=method).unwrap() for each in (pair.given, pair.better)
            )
            assert_agree(better, given, EXACT)
