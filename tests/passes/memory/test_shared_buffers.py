"""Buffers that methods share: what one method writes the others read, on runtimes whose methods share their arenas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.official.oracle import OfficialRuntime
from torch.export import ExportedProgram

import exirkit
from exirkit import ExecutorchBackendConfig, MemoryPlanningPass, ModelError
from exirkit.fuzz.official import SessionStep
from exirkit.passes import parse_memory_policy
from exirkit.runtime_ref import Runtime


class Notebook(torch.nn.Module):
    """Methods over two buffers, the second of which only some of them use."""

    pages: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pages", torch.arange(8.0).reshape(2, 4))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def write(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        self.pages.copy_(self.pages.view(8).flip(0).view(2, 4) + x)
        return (self.pages.square() * x).sum(0)

    def repeat(self, x: torch.Tensor) -> torch.Tensor:
        self.pages.mul_(2)
        return self.pages + torch.relu(x)

    def read(self, x: torch.Tensor) -> torch.Tensor:
        return self.pages * 2 + x

    def forget(self, x: torch.Tensor) -> torch.Tensor:
        self.count.zero_()
        return self.count + x.sum().long()


class Method(torch.nn.Module):
    def __init__(self, notebook: Notebook, name: str) -> None:
        super().__init__()
        self.register_buffer("pages", notebook.pages)
        self.register_buffer("count", notebook.count)
        self.name = name

    def forward(self, x: torch.Tensor) -> Any:
        method: Any = getattr(Notebook, self.name)
        return method(self, x)


def exported(*names: str) -> dict[str, ExportedProgram]:
    notebook, x = Notebook(), torch.zeros(2, 4)
    return {name: torch.export.export(Method(notebook, name), (x,)) for name in names}


NAMES = ["write", "repeat", "forget"]
PLANNERS = {
    "by argument": lambda: MemoryPlanningPass(share_mutable_buffers=True),
    "by policy": lambda: MemoryPlanningPass(
        policy=parse_memory_policy(
            "policy: 1\npools: [{name: a, limit: 64}, {name: b, alignment: 64}]\nin_place: true\nbuffers: shared\n"
        )
    ),
    # The pools leave arena 2, which the official C++ `Module` shares.
    "by policy with room": lambda: MemoryPlanningPass(
        policy=parse_memory_policy(
            "policy: 1\npools: [{name: a, limit: 64}, {name: b, mem_id: 3, alignment: 64}]\nbuffers: shared\n"
        )
    ),
}


@pytest.mark.parametrize("planner", PLANNERS)
def test_what_one_method_writes_the_others_read(planner: str) -> None:
    names = NAMES
    config = ExecutorchBackendConfig(memory_planning_pass=PLANNERS[planner]())
    manager = exirkit.to_edge(exported(*names)).to_executorch(config)
    places: dict[str, set[tuple[int | None, int | None]]] = {}
    for name in names:
        program = manager.exported_program(name)
        for node in program.graph.find_nodes(op="placeholder"):
            target = program.graph_signature.inputs_to_buffers.get(node.name)
            if target is not None:
                spec = node.meta["spec"]
                places.setdefault(target, set()).add((spec.mem_id, spec.mem_offset))
    assert {target: len(found) for target, found in places.items()} == {"pages": 1, "count": 1}
    arenas = {mem_id for found in places.values() for mem_id, _ in found}
    assert arenas == {3 if planner == "by policy" else 2}
    for plan in manager.executorch_program.execution_plan:
        assert plan.non_const_buffer_sizes[next(iter(arenas)) or 0] == 48
    notebook = Notebook()
    loaded = Runtime.get().load_program(manager.buffer, share_arenas=True, sanitize=True, in_place=True)
    # Loading a method writes the initial values of its buffers.
    methods = {name: loaded.load_method(name) for name in names}
    for call, name in enumerate(["write", "repeat", "write", "forget", "repeat", "write", "forget"]):
        x = torch.full((2, 4), 0.25 * call)
        (got,) = methods[name].execute([x])
        assert torch.equal(got, getattr(notebook, name)(x)), (call, name)


CALLS = [(name, torch.full((2, 4), 0.25 * call)) for call, name in enumerate(NAMES * 2 + NAMES[::-1])]


@pytest.fixture(scope="module", params=PLANNERS)
def shared_file(request: pytest.FixtureRequest) -> bytes:
    config = ExecutorchBackendConfig(memory_planning_pass=PLANNERS[request.param]())
    return exirkit.to_edge(exported(*NAMES)).to_executorch(config).buffer


@pytest.mark.executorch
def test_methods_of_an_official_program_share_them(shared_file: bytes, official_runtime: OfficialRuntime) -> None:
    notebook = Notebook()
    got = official_runtime.session(shared_file, [SessionStep(name, [x]) for name, x in CALLS]).unwrap()
    for (result,), (name, x) in zip(got, CALLS, strict=True):
        assert isinstance(result, torch.Tensor)
        assert torch.equal(result, getattr(notebook, name)(x)), name


@pytest.mark.executorch
def test_methods_of_an_official_module_have_one_each(shared_file: bytes, official_runtime: OfficialRuntime) -> None:
    # As on any runtime that gives each method memory of its own: no sharing, and each is right by itself.
    notebooks = {name: Notebook() for name in NAMES}
    together = Notebook()
    got = official_runtime.calls(shared_file, [(name, [x]) for name, x in CALLS]).unwrap()
    differing = 0
    for (result,), (name, x) in zip(got, CALLS, strict=True):
        assert isinstance(result, torch.Tensor)
        assert torch.equal(result, getattr(notebooks[name], name)(x)), name
        differing += not torch.equal(result, getattr(together, name)(x))
    assert differing


def test_a_method_that_only_reads_is_rejected() -> None:
    config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True))
    with pytest.raises(ModelError) as caught:
        exirkit.to_edge(exported("write", "read", "repeat")).to_executorch(config)
    (finding,) = caught.value.diagnostics
    assert (finding.code, finding.location.method) == ("EK488", "read")
    assert "'pages'" in finding.message
    assert "write" in finding.message


def test_methods_of_different_planners_share_nothing() -> None:
    planners = {"write": MemoryPlanningPass(share_mutable_buffers=True), "read": MemoryPlanningPass()}
    config = ExecutorchBackendConfig(memory_planning_pass=planners)
    manager = exirkit.to_edge(exported("write", "read")).to_executorch(config)
    x = torch.ones(2, 4)
    loaded = Runtime.get().load_program(manager.buffer)
    assert torch.equal(loaded.load_method("write").execute([x])[0], Notebook().write(x))
    assert torch.equal(loaded.load_method("read").execute([x])[0], Notebook().read(x))


def test_buffers_of_one_name_and_two_sizes_are_rejected() -> None:
    programs = exported("write")
    other = Notebook()
    other.register_buffer("pages", torch.zeros(3, 4))
    programs["repeat"] = torch.export.export(Method(other, "repeat"), (torch.zeros(3, 4),))
    config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True))
    with pytest.raises(ModelError, match="EK489"):
        exirkit.to_edge(programs).to_executorch(config)
