"""The memory map agrees with the plan, and its figures with marked bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime_ref.assembly import Assembly
from tests.visualization.conftest import Counting

from exirkit import ExecutorchBackendConfig, MemoryPlanningPass, ProgramFormatError, TensorSpec, to_edge
from exirkit.emit import lay_out, write_file
from exirkit.program import ExecutorchProgramManager
from exirkit.visualization import (
    MappedValue,
    MemoryMap,
    arena_of_values,
    live_bytes,
    memory_map_of_file,
    memory_map_of_manager,
)


def value(offset: int, nbytes: int, spans: list[tuple[int, int]], number: int = 0) -> MappedValue:
    return MappedValue(
        name=f"v{number}", value=number, type="uint8[1]", kind="activation", arena=1, offset=offset, nbytes=nbytes,
        spans=tuple(spans),
    )  # fmt: skip


def test_the_memory_map_of_a_model(memory_map: MemoryMap, lowered: ExecutorchProgramManager) -> None:
    (method,) = memory_map.methods
    plan = lowered.executorch_program.execution_plan[0]
    (arena,) = method.arenas
    assert (arena.number, arena.nbytes) == (1, plan.non_const_buffer_sizes[1])
    assert arena.live_nbytes <= arena.lower_bound <= arena.nbytes < arena.total_nbytes
    assert arena.waste == arena.nbytes - arena.lower_bound
    assert len(method.steps) == len(plan.chains[0].instructions)
    kinds = {each.name: each.kind for each in method.values}
    assert kinds["x"] == "input"
    assert kinds["count"] == "state"
    assert list(kinds.values()).count("output") == 2
    assert not any(name.startswith("%") for name in kinds)
    assert len(kinds) == len(method.values)
    sine = next(each for each in method.values if "sin" in each.name)
    assert sine.type == "float32[3, 8]"
    assert sine.nbytes == 96
    made = method.producer_of(sine)
    assert made is not None
    assert made.source is not None
    assert made.source.endswith("in forward:  left = self.linear(x).sin()")
    assert "conftest.py:" in made.source
    assert made.text == "aten::sin.out"


def test_a_line_of_the_model_and_not_of_torch_is_told(memory_map: MemoryMap) -> None:
    (method,) = memory_map.methods
    linear = next(step for step in method.steps if "addmm" in step.text)
    assert linear.source is not None
    assert "conftest.py" in linear.source
    assert linear.module == "linear"


def test_a_file_knows_less_but_shows_the_same(
    memory_map: MemoryMap, lowered: ExecutorchProgramManager, tmp_path: Path
) -> None:
    lowered.save(tmp_path / "counting.pte")
    read = memory_map_of_file(str(tmp_path / "counting.pte"))
    assert read.methods[0].arenas == memory_map.methods[0].arenas
    facts = [
        [(v.value, v.offset, v.nbytes, v.spans, v.kind) for v in each.methods[0].values] for each in (read, memory_map)
    ]
    assert facts[0] == facts[1]
    names = {each.name for each in read.methods[0].values}
    assert "input 0" in names
    assert any(name.startswith("%") for name in names)
    assert all(step.source is None for step in read.methods[0].steps)


def test_a_file_with_source_lines_shows_them(tmp_path: Path) -> None:
    config = ExecutorchBackendConfig(emit_stacktrace=True, emit_mutable_buffer_names=True)
    exported = torch.export.export(Counting(), (torch.ones(3, 8),))
    to_edge(exported).to_executorch(config).save(tmp_path / "lines.pte")
    (method,) = memory_map_of_file(str(tmp_path / "lines.pte")).methods
    assert any(step.source and "left = self.linear(x).sin()" in step.source for step in method.steps)
    assert "count" in {each.name for each in method.values}


class TwoArenas(MemoryPlanningPass):
    """Puts products elsewhere."""

    def run(self, graph_module: torch.fx.GraphModule, graph_signature: object = None) -> object:  # type: ignore[override]
        for node in graph_module.graph.nodes:
            spec = node.meta.get("spec")
            if "mul" in node.name and isinstance(spec, TensorSpec):
                spec.mem_id = 3
        return super().run(graph_module, graph_signature)  # type: ignore[arg-type]


def test_several_arenas_methods_and_limits() -> None:
    exported = torch.export.export(Counting(), (torch.ones(3, 8),))
    config = ExecutorchBackendConfig(memory_planning_pass=TwoArenas())
    lowered = to_edge({"one": exported, "two": exported}, {"version": 3}).to_executorch(config)
    found = memory_map_of_manager(lowered, limits={2: 77, 3: 10_000})
    assert [method.name for method in found.methods] == ["one", "two"]
    for method, kept in zip(found.methods, (4, 5), strict=True):
        # Each method keeps its buffer in an arena of its own.
        numbers = [(arena.number, arena.limit) for arena in method.arenas]
        assert numbers == [(1, None), (2, 77), (3, 10_000), (kept, None)]
        assert method.arenas[1].nbytes == method.arenas[1].lower_bound == 0
        assert {each.arena for each in method.values} == {1, 3, kept}
        assert all("mul" in each.name for each in method.values_of(3))
    assert [method.name for method in memory_map_of_manager(lowered, method="two").methods] == ["two"]


def test_results_instead_of_arguments_count_once() -> None:
    class Chain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 2.0).relu().sigmoid() + 1.0

    exported = torch.export.export(Chain(), (torch.ones(100),))
    config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(in_place=True))
    (method,) = memory_map_of_manager(to_edge(exported).to_executorch(config)).methods
    (arena,) = method.arenas
    assert arena.nbytes == arena.lower_bound == 400
    assert max(live_bytes(method.values, method.step_count())) == 800


def test_a_method_without_memory(tmp_path: Path) -> None:
    made = Assembly()
    constant = made.constant(torch.ones(2))
    write_file(tmp_path / "constant.pte", lay_out(made.program([], [constant])))
    assert memory_map_of_file(str(tmp_path / "constant.pte")).methods == ()


@pytest.mark.parametrize("cut", [0, 5, 40, 200])
def test_damaged_files_are_rejected(lowered: ExecutorchProgramManager, tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.pte"
    path.write_bytes(lowered.buffer[:cut])
    with pytest.raises(ProgramFormatError):
        memory_map_of_file(str(path))


_SPANS = st.lists(st.integers(0, 11), min_size=2, max_size=6, unique=True).map(
    lambda points: [tuple(pair) for pair in zip(sorted(points)[::2], sorted(points)[1::2], strict=False)]
)
_VALUES = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 70), _SPANS), max_size=7)


@settings(max_examples=150)
@given(_VALUES)
def test_figures_agree_with_marked_bytes(drawn: list[tuple[int, int, list[tuple[int, int]]]]) -> None:
    values = [value(place * 16, nbytes, spans, index) for index, (place, nbytes, spans) in enumerate(drawn)]
    end = max((each.offset + each.nbytes for each in values), default=0)
    arena = arena_of_values(1, end, None, values, 12)
    marked = [[False] * (end + 16) for _ in range(12)]
    rounded = [[False] * (end + 16) for _ in range(12)]
    for each in values:
        up = -(-each.nbytes // 16) * 16
        for first, last in each.spans:
            for step in range(first, last + 1):
                marked[step][each.offset : each.offset + each.nbytes] = [True] * each.nbytes
                rounded[step][each.offset : each.offset + up] = [True] * up
    assert arena.alignment == 16
    needs = [sum(row) for row in rounded]
    assert arena.at == needs.index(max(needs))
    assert arena.lower_bound == min(max(needs), end)
    assert arena.live_nbytes == sum(marked[arena.at])


def test_the_alignment_is_that_of_the_offsets() -> None:
    values = [value(8, 3, [(0, 0)]), value(0, 5, [(0, 1)], 1), value(24, 8, [(1, 1)], 2)]
    arena = arena_of_values(1, 32, None, values, 2)
    assert (arena.alignment, arena.lower_bound, arena.live_nbytes, arena.at) == (8, 16, 8, 0)
