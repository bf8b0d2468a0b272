"""Look-ups in quantized tables: the same bits from kernels that read rows, and files without wide tables."""

from __future__ import annotations

import pytest
import torch

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.fuzz import OfficialRuntime
from exirkit.ir import operator_name, register_quantized_decomposed
from exirkit.passes import has_quantized_embeddings
from exirkit.passes.optimize.quantized_embeddings import packed
from exirkit.runtime_ref import Runtime

ROWS, COLUMNS = 300, 64
LIMITS = {8: (-128, 127), 4: (-8, 7), 2: (-2, 1)}


class Table(torch.nn.Module):
    """A table that is dequantized in groups of columns, and read."""

    weight: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor

    def __init__(self, bits: int, group: int, *, shift: int = 0, reads_twice: bool = False) -> None:
        super().__init__()
        low, high = LIMITS[bits]
        groups = (ROWS, COLUMNS // group)
        self.register_buffer("weight", torch.randint(low, high + 1, (ROWS, COLUMNS)).to(torch.int8))
        self.register_buffer("scales", torch.rand(groups) + 0.01)
        self.register_buffer("zeros", torch.randint(-1, 2, groups) * shift)
        self.given = low, high, group
        self.reads_twice = reads_twice

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        low, high, group = self.given
        wide = torch.ops.quantized_decomposed.dequantize_per_channel_group(
            self.weight, self.scales, self.zeros, low, high, torch.int8, group, torch.float32
        )
        rows = torch.nn.functional.embedding(indices, wide)
        return torch.nn.functional.linear(rows, wide) if self.reads_twice else rows


class ByRow(Table):
    """A table with one scale a row, which a kernel can make wide as a whole."""

    def __init__(self, bits: int) -> None:
        super().__init__(bits, COLUMNS)
        self.scales, self.zeros = self.scales.flatten(), self.zeros.flatten()

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        wide = torch.ops.quantized_decomposed.dequantize_per_channel(
            self.weight, self.scales, self.zeros, 0, *self.given[:2], torch.int8
        )
        return torch.nn.functional.embedding(indices, wide)


def calls(model: torch.nn.Module, indices: torch.Tensor, level: int) -> tuple[list[str], bytes]:
    """Return the operators of a lowered model, and its file."""
    register_quantized_decomposed()
    config = ExecutorchBackendConfig(optimization_level=level)
    program = to_edge(torch.export.export(model, (indices,))).to_executorch(config)
    nodes = program.exported_program().graph.nodes
    return [operator_name(node.target) for node in nodes if node.op == "call_function"], program.buffer


@pytest.mark.executorch
@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("group", [COLUMNS, 32])
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32], ids=str)
def test_rows_are_the_same(
    bits: int, group: int, shift: int, kind: torch.dtype, official_runtime: OfficialRuntime
) -> None:
    torch.manual_seed(bits)
    model, indices = Table(bits, group, shift=shift), torch.randint(0, ROWS, (7, 5)).to(kind)
    found, file = calls(model, indices, 1)
    name = "embedding_byte" if bits == 8 else f"embedding_{bits}bit"
    assert f"quantized_decomposed.{name}.out" in found
    groups = ROWS * COLUMNS // group
    assert len(file) < ROWS * COLUMNS * bits // 8 + groups * (8 if shift else 4) + 3000
    (mine,) = Runtime.get().load_program(file).load_method("forward").execute([indices])
    assert torch.equal(mine, model(indices))
    (theirs,) = official_runtime.run(file, [[indices]]).unwrap()[0]
    assert isinstance(theirs, torch.Tensor)
    assert torch.equal(mine, theirs)


def test_a_table_that_something_else_reads_stays() -> None:
    model = Table(8, COLUMNS, reads_twice=True)
    exported = torch.export.export(model, (torch.tensor([3, 4]),))
    assert not has_quantized_embeddings(to_edge(exported).exported_program())


def test_other_limits_stay() -> None:
    model = Table(4, 32)
    model.given = (-8, 8, 32)
    exported = torch.export.export(model, (torch.tensor([3, 4]),))
    assert not has_quantized_embeddings(to_edge(exported).exported_program())


def test_a_table_beyond_its_limits_is_not_packed() -> None:
    model, indices = ByRow(4), torch.tensor([0, 1])
    assert "quantized_decomposed.embedding_4bit.out" in calls(model, indices, 1)[0]
    model.weight[0, 0] = 8
    found, file = calls(model, indices, 1)
    assert not [name for name in found if "embedding_4bit" in name]
    (mine,) = Runtime.get().load_program(file).load_method("forward").execute([indices])
    assert torch.equal(mine, model(indices))


def test_a_target_without_the_kernels_looks_rows_up_in_floats() -> None:
    register_quantized_decomposed()
    exported = torch.export.export(ByRow(4), (torch.tensor([3, 4]),))
    program = to_edge(exported).to_executorch(ExecutorchBackendConfig(target="any"))
    names = {operator_name(node.target) for node in program.exported_program().graph.nodes}
    assert "aten.embedding.out" in names


def test_packing() -> None:
    assert packed(torch.tensor([[-8, 7, 0, 1]]), 4).tolist() == [[0x0F, 0x89]]
    assert packed(torch.tensor([[-2, -1, 0, 1]]), 2).tolist() == [[0b11100100]]
