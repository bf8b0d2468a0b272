"""Blocks that are quantized and dequantized: by kernels for channels and tokens, with the bits of the decomposition."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.fuzz import OfficialRuntime
from exirkit.ir import operator_name, register_quantized_decomposed
from exirkit.passes import has_quantized_blocks
from exirkit.runtime_ref import OperatorRegistry, Runtime

pytestmark = pytest.mark.executorch
register_quantized_decomposed()


class Groups(torch.nn.Module):
    """A linear layer whose weight has a scale for each group of columns."""

    weight: Tensor
    scales: Tensor
    zeros: Tensor

    def __init__(self, group: int, zero_points: torch.dtype | None, low: int = -2) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-8, 8, (16, 64)).to(torch.int8))
        self.register_buffer("scales", torch.rand(16, 64 // group) + 0.01)
        self.register_buffer("zeros", torch.randint(low, 3, (16, 64 // group)))
        self.zeros = self.zeros.to(zero_points or torch.int64)
        self.group, self.has_zeros = group, zero_points is not None

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.ops.quantized_decomposed.dequantize_per_channel_group(
            self.weight,
            self.scales,
            self.zeros if self.has_zeros else None,
            -8,
            7,
            torch.int8,
            self.group,
            torch.float32,
        )
        return torch.nn.functional.linear(x, wide)


def lowered(program: ExportedProgram, level: int, **more: Any) -> tuple[bytes, list[str]]:
    """Return a file and the operators that it calls."""
    made = to_edge(program).to_executorch(ExecutorchBackendConfig(optimization_level=level, **more))
    graph = made.exported_program().graph
    return made.buffer, [operator_name(node.target) for node in graph.nodes if node.op == "call_function"]


def check(program: ExportedProgram, inputs: Sequence[Tensor], official: OfficialRuntime, *kernels: str) -> None:
    """Assert that kernels are used where weights stay narrow, and that results are those of eager PyTorch."""
    assert has_quantized_blocks(to_edge(program).exported_program())
    expected = program.module()(*inputs)
    for level, more in ((0, {}), (1, {}), (2, {}), (2, {"optimize_for": "size"})):
        file, called = lowered(program, level, **more)
        if level == 1:
            used = {name.split(".")[1] for name in called if name.startswith("quantized_decomposed")}
            assert used == set(kernels)
        (mine,) = Runtime.get().load_program(file).load_method("forward").execute(list(inputs))
        (theirs,) = official.run(file, [list(inputs)]).unwrap()[0]
        assert isinstance(theirs, Tensor)
        # Sums in another order; integers must not differ.
        torch.testing.assert_close(theirs, mine, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("group", "zero_points"), [(16, torch.int32), (64, torch.int64), (2, None), (16, torch.int8)], ids=str
)
def test_groups_of_weights(group: int, zero_points: torch.dtype | None, official_runtime: OfficialRuntime) -> None:
    torch.manual_seed(3)
    model, x = Groups(group, zero_points), torch.randn(3, 64)
    # What torch subtracts in 8 bits may wrap around; then it stays a difference.
    kernels = () if zero_points is torch.int8 else ("dequantize_per_channel",)
    check(torch.export.export(model, (x,)), [x], official_runtime, *kernels)


def test_zero_points_outside_of_the_integers_end_no_process(official_runtime: OfficialRuntime) -> None:
    torch.manual_seed(3)
    model, x = Groups(16, torch.int32, low=-500), torch.randn(3, 64)
    check(torch.export.export(model, (x,)), [x], official_runtime)


def torchao_model(config: Callable[[Any], Any], *, rows: bool) -> tuple[ExportedProgram, Tensor]:
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = importlib.import_module("torchao.quantization")
        model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)).eval()
        library.quantize_(model, config(library))
        x = torch.randn(3, 64)
        sizes = ({0: Dim("rows", min=2, max=8)},) if rows else None
        with torch.no_grad():
            return torch.export.export(model, (x,), dynamic_shapes=sizes, strict=False), x


def four_bits(library: Any) -> Any:
    groups = library.PerGroup(32)
    return library.Int8DynamicActivationIntxWeightConfig(weight_dtype=vars(torch)["int4"], weight_granularity=groups)


@pytest.mark.parametrize("rows", [False, True], ids=["fixed", "varying"])
def test_dynamic_activations_with_weights_of_four_bits(rows: bool, official_runtime: OfficialRuntime) -> None:
    program, x = torchao_model(four_bits, rows=rows)
    kernels = ("dequantize_per_channel", "dequantize_per_token", "quantize_per_token")
    check(program, [x], official_runtime, *kernels)


def test_zero_points_of_8_bits_do_not_wrap_around(official_runtime: OfficialRuntime) -> None:
    library = importlib.import_module("torchao.quantization")
    primitives = importlib.import_module("torchao.quantization.quant_primitives")
    torch.manual_seed(3)
    linear, x = torch.nn.Linear(64, 16).requires_grad_(False), torch.randn(3, 64)
    # Weights of one sign, so that zero points lie at an end.
    linear.weight.copy_(linear.weight.abs())
    model = torch.nn.Sequential(linear).eval()
    config = library.IntxWeightOnlyConfig(
        weight_dtype=torch.int8,
        granularity=library.PerGroup(32),
        mapping_type=primitives.MappingType.ASYMMETRIC,
    )
    library.quantize_(model, config)
    check(torch.export.export(model, (x,)), [x], official_runtime, "dequantize_per_channel")


def test_weights_of_four_bits_are_packed_for_size(official_runtime: OfficialRuntime) -> None:
    program, x = torchao_model(four_bits, rows=False)
    files = {}
    for kind in ("speed", "size"):
        files[kind], calls = lowered(program, 2, optimize_for=kind)
        assert ("quantized_decomposed.embedding_4bit.out" in calls) is (kind == "size")
        assert "aten.embedding.out" not in calls
    (theirs,) = official_runtime.run(files["size"], [[x]]).unwrap()[0]
    (mine,) = Runtime.get().load_program(files["size"]).load_method("forward").execute([x])
    assert isinstance(theirs, Tensor)
    # Sums in another order.
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine, program.module()(x), rtol=1e-5, atol=1e-5)
    assert len(files["size"]) < len(files["speed"])


def test_products_of_integers(official_runtime: OfficialRuntime) -> None:
    program, x = torchao_model(lambda library: library.Int8DynamicActivationInt8WeightConfig(), rows=False)
    assert any("_int_mm" in str(node.target) for node in program.graph.nodes)
    assert any("quantize_per_token" in name for name in lowered(program, 1)[1])
    for level in (0, 1, 2):
        file, _ = lowered(program, level)
        (theirs,) = official_runtime.run(file, [[x]]).unwrap()[0]
        (mine,) = Runtime.get().load_program(file).load_method("forward").execute([x])
        assert isinstance(theirs, Tensor)
        assert torch.equal(theirs, mine)
        if level == 0:
            # The value that the scale comes from lies at a tie, 127.5 steps from zero. Kernels that divide by one
            # number multiply by its reciprocal, which decides otherwise than torch. As torch computes it:
            eager = Runtime(OperatorRegistry(eager_quantization=True)).load_program(file).load_method("forward")
            assert torch.equal(eager.execute([x])[0], program.module()(x))


@pytest.mark.parametrize("count", [1, 33_000, 132_200])
def test_products_of_integers_are_exact(count: int, official_runtime: OfficialRuntime) -> None:
    """Beyond 2^24, where float32 no longer holds each integer, and up to where 32 bits no longer hold the sum."""

    class Product(torch.nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return torch._int_mm(a, b)

    a, b = torch.full((17, count), -127, dtype=torch.int8), torch.full((count, 8), -128, dtype=torch.int8)
    a[3:, 0] = 1
    wanted = a.long() @ b.long()
    wanted = (wanted + 2**31) % 2**32 - 2**31
    program = torch.export.export(Product(), (a, b))
    for level in (0, 2):
        file, _ = lowered(program, level)
        (mine,) = Runtime.get().load_program(file).load_method("forward").execute([a, b])
        (theirs,) = official_runtime.run(file, [[a, b]]).unwrap()[0]
        assert isinstance(theirs, Tensor)
        assert torch.equal(mine.long(), wanted)
        assert torch.equal(theirs.long(), wanted)
