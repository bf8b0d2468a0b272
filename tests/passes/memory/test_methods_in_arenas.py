"""Several methods in one set of arenas: they take turns or are separate, and none loses what it keeps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.official.oracle import OfficialRuntime
from torch.export import ExportedProgram

import exirkit
from exirkit import ContractError, ExecutorchBackendConfig, MemoryPlanningPass, ModelError
from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.official import SessionStep
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import parse_program
from exirkit.passes import finalize_methods, parse_memory_policy
from exirkit.program import ExecutorchProgramManager
from exirkit.runtime_ref import Runtime
from exirkit.verifiers import check_method_memory


class Average(torch.nn.Module):
    """Two buffers, one of them odd; a view of one of them is read after it was written."""

    total: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((3, 5), 0.5))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = torch.cat([x, x * 2, x.exp()], 1)
        self.count.add_(1)
        self.total.add_(wide[:, 5:10])
        return self.total.view(15)[2:].sum() / self.count + wide.sum(0)


class Branching(torch.nn.Module):
    """State of the same name, used inside of a branch."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.arange(7.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.mul_(1.5)

        def more(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
            return (x.sin() @ x.t().cos()).sum() + total

        def less(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
            return total - x.mean()

        return torch.cond(x.sum() > 0, more, less, (x, self.total))


class Stateless(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.sin(), x.cos(), x.tan()], 1).t() @ x


MODULES: dict[str, Callable[[], torch.nn.Module]] = {"average": Average, "branching": Branching, "plain": Stateless}
POLICY = "policy: 1\nmethods: {}\nin_place: true\npools: [{{name: fast, limit: {}, alignment: 64}}, {{name: slow}}]\n"


def exported() -> dict[str, ExportedProgram]:
    return {name: torch.export.export(make(), (torch.ones(3, 5),)) for name, make in MODULES.items()}


@pytest.fixture(scope="module")
def edge() -> Any:
    return exirkit.to_edge(exported())


def lowered(edge: Any, planner: Any) -> ExecutorchProgramManager:
    manager: ExecutorchProgramManager = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planner))
    return manager


PLANNERS: dict[str, Callable[[], MemoryPlanningPass]] = {
    "taking turns": MemoryPlanningPass,
    "separate": lambda: MemoryPlanningPass(separate_methods=True),
    "taking turns by policy": lambda: MemoryPlanningPass(policy=parse_memory_policy(POLICY.format("shared", 768))),
    "separate by policy": lambda: MemoryPlanningPass(policy=parse_memory_policy(POLICY.format("separate", 768))),
}


@pytest.fixture(scope="module", params=PLANNERS)
def plan(request: pytest.FixtureRequest, edge: Any) -> tuple[bool, ExecutorchProgramManager]:
    return request.param.startswith("separate"), lowered(edge, PLANNERS[request.param]())


def calls() -> Iterator[tuple[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(8)
    for name in ("average", "plain", "branching", "average", "branching", "plain", "average", "average", "branching"):
        yield name, torch.randn(3, 5, generator=generator)


def answers() -> list[torch.Tensor]:
    modules = {name: make() for name, make in MODULES.items()}
    return [modules[name](x) for name, x in calls()]


def test_what_methods_keep_is_there_at_the_next_call(plan: tuple[bool, ExecutorchProgramManager]) -> None:
    program = Runtime.get().load_program(plan[1].buffer, share_arenas=True, sanitize=True, in_place=True)
    methods = {name: program.load_method(name) for name in MODULES}
    for (name, x), expected in zip(calls(), answers(), strict=True):
        torch.testing.assert_close(methods[name].execute([x])[0], expected)


@pytest.mark.executorch
def test_methods_in_turn_on_the_official_runtime(
    plan: tuple[bool, ExecutorchProgramManager], official_runtime: OfficialRuntime
) -> None:
    steps = [SessionStep(name, [x]) for name, x in calls()]
    got = official_runtime.session(plan[1].buffer, steps).unwrap()
    for (result,), expected in zip(got, answers(), strict=True):
        torch.testing.assert_close(result, expected)


@pytest.mark.executorch
def test_results_of_separate_methods_wait_in_their_arenas(
    plan: tuple[bool, ExecutorchProgramManager], official_runtime: OfficialRuntime
) -> None:
    separate, manager = plan
    first = {name: (x, expected) for (name, x), expected in reversed([*zip(calls(), answers(), strict=True)])}
    # The inputs of all are set before the first one runs, and all run before the first result is fetched.
    steps = [SessionStep(name, [x], execute=False, outputs=False) for name, (x, _) in first.items()]
    steps += [SessionStep(name, outputs=False) for name in first]
    steps += [SessionStep(name, execute=False) for name in first]
    got = official_runtime.session(manager.buffer, steps).unwrap()
    found = [(torch.as_tensor(result), right) for (result,), (_, right) in zip(got, first.values(), strict=True)]
    agree = [torch.allclose(result, right) for result, right in found]
    assert all(agree) == separate, agree


def test_arenas_of_separate_methods_are_those_of_no_other(plan: tuple[bool, ExecutorchProgramManager]) -> None:
    separate, manager = plan
    used = {
        one.name: {number for number, size in enumerate(one.non_const_buffer_sizes) if size}
        for one in manager.executorch_program.execution_plan
    }
    numbers = [number for arenas in used.values() for number in arenas]
    assert (len(set(numbers)) == len(numbers)) == separate
    if separate:
        width = 2 if 2 in used["average"] or max(numbers) > 3 else 1
        assert all(number <= width for number in used["average"])
        assert all(width < number <= 2 * width for number in used["branching"])
        assert all(2 * width < number <= 3 * width for number in used["plain"])


def test_taking_turns_costs_nothing(edge: Any) -> None:
    together = lowered(edge, MemoryPlanningPass())
    for one in together.executorch_program.execution_plan:
        alone = exirkit.to_edge({one.name: exported()[one.name]}).to_executorch()
        sizes = alone.executorch_program.execution_plan[0].non_const_buffer_sizes
        assert sum(one.non_const_buffer_sizes) == sum(sizes)


@pytest.mark.parametrize(("methods", "spill"), [("separate", True), ("shared", True), ("shared", False)])
def test_a_limit_is_for_all_methods_together(edge: Any, methods: str, spill: bool) -> None:
    text = POLICY.format(methods, 640) + f"rules: [{{kind: buffer, pool: fast, spill: {str(spill).lower()}}}]\n"
    manager = lowered(edge, MemoryPlanningPass(policy=parse_memory_policy(text)))
    plans = manager.executorch_program.execution_plan
    sizes = {one.name: one.non_const_buffer_sizes for one in plans}
    if methods == "separate":
        # Pools of the methods in the order in which they were given.
        fast = [sizes[name][number] for name, number in (("average", 1), ("branching", 3), ("plain", 5))
                if number < len(sizes[name])]  # fmt: skip
        assert 0 < sum(fast) <= 640
        assert any(size > 0 for size in fast[:1])
    else:
        states = [sizes[name][number] for name in sizes for number in range(3, len(sizes[name]))]
        assert 0 < max(one[1] for one in sizes.values()) + sum(states) <= 640


def test_an_overflow_names_the_methods(edge: Any) -> None:
    sizes = {one.name: sum(one.non_const_buffer_sizes) for one in lowered(edge, MemoryPlanningPass())
             .executorch_program.execution_plan}  # fmt: skip
    limit = sum(sizes.values()) - 1
    with pytest.raises(ModelError) as caught:
        lowered(edge, MemoryPlanningPass(separate_methods=True, arena_limits={1: limit}))
    (finding,) = caught.value.diagnostics
    assert finding.code == "EK466"
    assert f"average has {sizes['average']}, branching has {sizes['branching']}" in finding.notes[-1]
    lowered(edge, MemoryPlanningPass(separate_methods=True, arena_limits={1: limit + 1}))
    # Each of them fits, and what two of them keep does not fit beside the largest.
    with pytest.raises(ModelError) as caught:
        lowered(edge, MemoryPlanningPass(arena_limits={1: max(sizes.values())}))
    (finding,) = caught.value.diagnostics
    assert finding.code == "EK466"
    assert all(f"{name} has" in finding.notes[-1] for name in ("average", "branching"))
    pool = f"{{name: fast, limit: {sizes['plain'] + 64}}}"
    policy = f"policy: 1\nmethods: separate\npools: [{pool}, {{name: slow}}]\nspill: []\n"
    with pytest.raises(ModelError) as caught:
        lowered(edge, MemoryPlanningPass(policy=parse_memory_policy(policy)))
    assert caught.value.diagnostics[0].code == "EK484"
    assert any("average has" in note for note in caught.value.diagnostics[0].notes)


def test_a_method_over_the_state_of_another_is_noticed(edge: Any) -> None:
    manager = lowered(edge, MemoryPlanningPass())
    programs = {name: copy.copy(manager.exported_program(name)) for name in MODULES}
    assert check_method_memory(programs) == []
    (node,) = (one for one in programs["branching"].graph.find_nodes(op="placeholder") if "total" in one.name)
    spec, other = node.meta["spec"], programs["plain"].graph.find_nodes(op="placeholder")[0].meta["spec"]
    kept, spec.mem_id, spec.mem_offset = (spec.mem_id, spec.mem_offset), other.mem_id, other.mem_offset
    findings = check_method_memory(programs)
    assert {finding.code for finding in findings} == {"EK355"}
    assert {finding.location.method for finding in findings} >= {"plain"}
    spec.mem_id, spec.mem_offset = kept
    assert {finding.code for finding in check_method_memory(programs, {"plain"})} == {"EK355"}
    spec.mem_id, spec.mem_offset = 1, 0
    with pytest.raises(ContractError, match="EK3"):
        finalize_methods(programs, dict.fromkeys(programs, Keeping()))


class Keeping(MemoryPlanningPass):
    """Pins every buffer to one place, the same in each method."""

    def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
        for node in graph_module.graph.find_nodes(op="placeholder"):
            if node.name in graph_signature.inputs_to_buffers:
                node.meta["spec"].mem_id, node.meta["spec"].mem_offset, node.meta["spec"].mem_obj_id = 2, 0, None
        return super().run(graph_module, graph_signature)


def test_a_buffer_that_is_pinned_in_two_methods_is_theirs_together() -> None:
    programs = {name: torch.export.export(Branching(), (torch.ones(3, 5),)) for name in ("one", "two")}
    manager = lowered(exirkit.to_edge(programs), Keeping())
    program = Runtime.get().load_program(manager.buffer, share_arenas=True, sanitize=True)
    methods = {name: program.load_method(name) for name in programs}
    module = Branching()
    for name in ("one", "two", "two", "one"):
        x = torch.full((3, 5), -0.25)
        torch.testing.assert_close(methods[name].execute([x])[0], module(x))


class Wishing(MemoryPlanningPass):
    """Asks for an arena for every buffer, and for some of what is computed."""

    def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
        for node in graph_module.graph.nodes:
            if node.name in graph_signature.inputs_to_buffers or "cat" in node.name:
                node.meta["spec"].mem_id = 3
        return super().run(graph_module, graph_signature)


def test_buffers_stay_in_the_arena_that_the_policy_asked_for(edge: Any) -> None:
    manager = lowered(edge, Wishing())
    used = {one.name: one.non_const_buffer_sizes for one in manager.executorch_program.execution_plan}
    assert {name: len(sizes) for name, sizes in used.items()} == dict.fromkeys(MODULES, 4)
    # The largest of what is computed there, and behind it 64 and 16 bytes of one method, 32 of the other.
    assert used["branching"][3] == used["average"][3] + 32 == used["plain"][3] + 64 + 16 + 32
    assert used["plain"][3] == 192
    program = Runtime.get().load_program(manager.buffer, share_arenas=True, sanitize=True)
    methods = {name: program.load_method(name) for name in MODULES}
    for (name, x), expected in zip(calls(), answers(), strict=True):
        torch.testing.assert_close(methods[name].execute([x])[0], expected)


def test_methods_of_two_planners_do_not_meet_either(edge: Any) -> None:
    planners = {"average": MemoryPlanningPass(), "branching": MemoryPlanningPass(separate_methods=True)}
    manager = lowered(edge, planners)
    used = {one.name: one.non_const_buffer_sizes for one in manager.executorch_program.execution_plan}
    assert [size > 0 for size in used["branching"]] == [False, False, True]
    program = Runtime.get().load_program(manager.buffer, share_arenas=True, sanitize=True)
    methods = {name: program.load_method(name) for name in MODULES}
    for (name, x), expected in zip(calls(), answers(), strict=True):
        torch.testing.assert_close(methods[name].execute([x])[0], expected)


def test_devices_move_with_the_arenas(edge: Any) -> None:
    text = "policy: 1\nmethods: separate\npools: [{name: host}, {name: card, device: 'cuda:1'}]\n" \
        "rules: [{op: aten.sin.default, pool: card}]\n"  # fmt: skip
    manager = lowered(edge, MemoryPlanningPass(policy=parse_memory_policy(text)))
    found = {
        name: manager.exported_program(name).graph_module.meta["non_const_buffer_device"]
        for name in ("average", "plain")
    }
    assert found == {"average": None, "plain": {6: "cuda:1"}}


# Planned by itself, the second method keeps its buffer in the second pool: there is room for it in the first one only
# when it is planned again, and then the first method, which has been examined, has to leave that room.
STATE_THAT_MOVES = """\
program(1)
b5 = buffer("f32[3]", zeros())

def forward(x1: "f32[1, 3, 7, 5]"):
    update(b5, b5)
    return x1

def decode(x22: "f32[5, 3, 2, 7]", b4: "f32[3]"):
    v26 = aten._to_copy.default(x22, dtype=torch.uint8)
    v32 = aten.roll.default(v26, [2, 2], [0, 2])
    update(b5, b4)
    return v32

run("forward", x1=zeros())
run("decode", x22=zeros(), b4=zeros())
"""


def test_methods_are_planned_until_all_fit() -> None:
    pools = "policy: 1\npools: [{name: fast, limit: 512, priority: 1}, {name: slow}]\n"
    compiler = ExirkitCompiler(alignment=64, memory_policy=pools)
    verdict = check(parse_program(STATE_THAT_MOVES), compiler=compiler)
    assert verdict.is_good, verdict.failures
    assert verdict.unsupported is None


# Nothing of the second method lies in the first pool, whose arena of that method has a stricter alignment than others.
POOL_THAT_STAYS_EMPTY = """\
program(1)
b3 = buffer("f32[1, 1]", zeros())
b4 = buffer("f32[1, 1]", dyadic(5))

def forward(c5: "i64[1, 1, 1, 1]"):
    return c5

def decode():
    update(b3, b4)
    update(b4, b3)
    return b4

run("decode")
run("forward", c5=zeros())
run("decode")
"""


def test_shared_buffers_stay_out_of_pools_that_are_empty() -> None:
    pools = (
        "policy: 1\nmethods: separate\nbuffers: shared\npools: [{name: strict, alignment: 64}, {name: other}]\n"
        "rules: [{kind: output, pool: other}, {kind: intermediate, pool: other}]\n"
    )
    verdict = check(parse_program(POOL_THAT_STAYS_EMPTY), compiler=ExirkitCompiler(memory_policy=pools))
    assert verdict.is_good, verdict.failures
    assert verdict.unsupported is None
