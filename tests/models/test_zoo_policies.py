"""Cases of the zoo in several memories: they answer right on both runtimes, and every byte is what it should be."""

from __future__ import annotations

from typing import Any

import pytest
from tests.models.agreement import assert_agree
from tests.models.case import Built, ModelCase
from tests.models.zoo import CASES
from tests.official.oracle import OfficialRuntime

import exirkit
from exirkit import EdgeProgramManager, ExecutorchBackendConfig, MemoryPlanningPass
from exirkit.passes import MemoryPolicy, parse_memory_policy, planned_nbytes
from exirkit.runtime_ref import Runtime

NAMES = (
    "two_stateful_methods", "returns_input_and_constant", "top_k", "kv_cache", "sliding_window", "input_mutated",
    "buffers_swapped", "dynamic_with_state", "slice_assignment", "same_output_twice", "views_of_inputs", "zero_sized",
    "plain_values",
)  # fmt: skip

# `{third}` is a third of what a plan with one memory takes.
POLICIES = {
    "three memories": """
policy: 1
in_place: true
pools:
  - {{name: large, mem_id: 4}}
  - {{name: fast, mem_id: 1, limit: {third}, alignment: 64, priority: 2}}
  - {{name: middle, mem_id: 3, limit: {third}, alignment: 4, priority: 1}}
rules:
  - {{kind: buffer, pool: large}}
  - {{where: traffic > 3 * nbytes, pool: fast}}
  - {{user: 'aten.*', nbytes: {{at_most: 128}}, pool: middle}}
""",
    "provided by name": """
policy: 1
planner: greedy
share_views: false
pools:
  - {{name: fast, limit: {third}}}
  - {{name: slow, alignment: 256}}
inputs: {{'*_1': planned, 'x*': provided, 'y*': provided}}
outputs: {{'0': planned, '*': provided}}
""",
}


@pytest.fixture(scope="class", params=NAMES)
def edge_of(request: pytest.FixtureRequest) -> tuple[ModelCase, Built, EdgeProgramManager, int]:
    """One case with the bytes that it needs; class scope keeps its tests together, so that it is exported once."""
    case = CASES[request.param]
    built = case.make()
    exported = built.export()
    edge = exirkit.to_edge(exported["forward"] if set(exported) == {"forward"} else exported)
    manager = edge.to_executorch()
    return case, built, edge, min(planned_nbytes(manager.exported_program(name)) for name in manager.methods)


def lowered(edge: EdgeProgramManager, text: str, nbytes: int) -> Any:
    policy: MemoryPolicy = parse_memory_policy(text.format(third=nbytes // 3))
    manager = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(policy=policy)))
    limits = {number: pool.limit for number, pool in policy.numbered_pools() if pool.limit is not None}
    for plan in manager.executorch_program.execution_plan:
        sizes = plan.non_const_buffer_sizes
        assert all(sizes[number] <= limit for number, limit in limits.items() if number < len(sizes))
    return manager


@pytest.mark.parametrize("title", POLICIES)
class TestPolicies:
    @pytest.mark.executorch
    def test_on_both_runtimes(
        self,
        edge_of: tuple[ModelCase, Built, EdgeProgramManager, int],
        title: str,
        official_runtime: OfficialRuntime,
    ) -> None:
        case, built, edge, nbytes = edge_of
        buffer = lowered(edge, POLICIES[title], nbytes).buffer
        knowing = Runtime.get().load_program(buffer, sanitize=True, in_place="in_place" in POLICIES[title])
        for name, method in built.methods.items():
            loaded = knowing.load_method(name)
            got = [list(loaded.execute(call.cloned().leaves())) for call in method.calls]
            assert_agree(got, method.expected(), case.tolerance)
            calls = [call.cloned().leaves() for call in method.calls]
            assert_agree(official_runtime.run(buffer, calls, method=name).unwrap(), method.expected(), case.tolerance)
