"""The sweep over quantized models: what it explains by ties, and what it does not."""

from __future__ import annotations

import pytest
import torch
from benchmarks.models import Benchmark, build
from benchmarks.quantization.__main__ import table_of
from benchmarks.quantization.embeddings import measure as measure_look_ups
from benchmarks.quantization.embeddings import program
from benchmarks.quantization.figures import LEVELS, Figures, Level, measure
from benchmarks.quantization.flows import FLOWS, UnsuitedModelError
from benchmarks.quantization.ties import follow, probed

from exirkit.fuzz import OfficialRuntime
from exirkit.ir import register_quantized_decomposed

pytestmark = pytest.mark.executorch


@pytest.mark.parametrize("flow", ["per channel", "int8 dynamic, int8 weights"])
def test_a_model_is_explained(flow: str, official_runtime: OfficialRuntime) -> None:
    found = measure("mlp", flow, official_runtime, 0, exports=False)
    assert found.failure == ""
    assert found.stores_integers
    assert all(level.explained for level in found.levels.values())


def test_a_model_of_which_nothing_is_quantized_is_not_counted() -> None:
    with pytest.raises(UnsuitedModelError):
        FLOWS["per channel"](Benchmark(torch.nn.Softmax(-1), (torch.randn(2, 3),)))
    sizes = {"a, dynamic": 20, "b, dynamic": 45, "c, dynamic": 0, "a, per tensor": 50}
    figures = {
        key: Figures(float_nbytes=100, levels={one: Level(size, 0.0, 120.0) for one in ("-O1", "-O2 size")})
        if size
        else Figures(unsuited=True, float_nbytes=100)
        for key, size in sizes.items()
    }
    figures["b, per tensor"] = Figures(float_nbytes=100, stores_integers=False, levels=figures["b, dynamic"].levels)
    table = table_of(figures)
    first, means = ([*column.cells] for column in (table.columns[0], table.columns[2]))
    assert first[-2:] == ["dynamic: 2 models", "per tensor: 1 models"]
    assert means[-2:] == ["0.300 in geometric mean", "0.500 in geometric mean"]


def test_integers_that_no_tie_explains_are_found() -> None:
    benchmark = build("mlp")
    program = FLOWS["per tensor"](benchmark)
    probes, results = probed(program, benchmark.inputs, None)
    integers = list(probes.module()(*benchmark.inputs)[results:])
    known = follow(program, benchmark.inputs, integers)
    assert (known.flipped, known.quantizations) == (0, len(integers))
    place = int(integers[2].float().abs().argmin())
    integers[2].view(-1)[place] += 2
    wrong = follow(program, benchmark.inputs, integers)
    assert wrong.steps == 2
    assert wrong.flipped >= 1
    assert wrong.from_tie > 0.4
    assert torch.equal(known.results[0], program.module()(*benchmark.inputs))


@pytest.mark.parametrize("flow", ["dynamic", "int8 dynamic, int4 weights"])
def test_zero_points_that_no_tie_explains_are_found(flow: str) -> None:
    benchmark = build("mlp")
    program = FLOWS[flow](benchmark)
    probes, results = probed(program, benchmark.inputs, None)
    integers = list(probes.module()(*benchmark.inputs)[results:])
    assert follow(program, benchmark.inputs, integers).flipped == 0
    # Of what a layer is given: its scale and zero point first, then the integers.
    assert integers[0].numel() == integers[1].numel() < integers[2].numel()
    integers[1].view(-1)[0] += 1
    wrong = follow(program, benchmark.inputs, integers)
    assert wrong.flipped >= 1
    assert wrong.from_tie > 0.01


@pytest.mark.parametrize("flow", ["dynamic", "int8 dynamic, int4 weights"])
def test_scales_are_followed_and_compared(flow: str) -> None:
    benchmark = build("mlp")
    program = FLOWS[flow](benchmark)
    probes, results = probed(program, benchmark.inputs, None)
    integers = list(probes.module()(*benchmark.inputs)[results:])
    assert follow(program, benchmark.inputs, integers).scales == 0
    integers[0].view(-1)[0] *= 1.5
    wrong = follow(program, benchmark.inputs, integers)
    assert wrong.scales == pytest.approx(0.5)
    # Integers are those of the given scale.
    assert wrong.flipped >= 1
    level = Level(0, 0.0, 20.0, followed=120.0, scales=wrong.scales)
    assert not level.explained
    assert Level(0, 0.0, 20.0, followed=120.0, scales=1e-6).explained


def test_a_zero_point_at_a_tie_is_followed() -> None:
    register_quantized_decomposed()
    q = torch.ops.quantized_decomposed

    class Chosen(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale, zero = q.choose_qparams.tensor(x, -128, 127, 1e-6, torch.int8)
            made = q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
            return q.dequantize_per_tensor.tensor(made, scale, zero, -128, 127, torch.int8)

    # In steps of one, zero is 27.5 steps below zero.
    x = torch.tensor([-100.5, 154.5, 3.0, -7.0])
    program = torch.export.export(Chosen(), (x,))
    scale, zero = q.choose_qparams.tensor(x, -128, 127, 1e-6, torch.int8)
    for beside in (-28, -27, -26):
        given = q.quantize_per_tensor(x, 1.0, beside, -128, 127, torch.int8)
        ties = follow(program, (x,), [scale, torch.tensor([beside]), given])
        assert ties.flipped == (beside != int(zero))
        assert (ties.from_tie < 1e-4) is (beside in (-28, -27))


@pytest.mark.filterwarnings("ignore")
def test_look_ups_are_those_of_the_official_kernels(official_runtime: OfficialRuntime) -> None:
    found = measure_look_ups(*program(4, 32, 10, 64, 3), official_runtime, 1)
    assert all(found[f"{level} bytes"] == pytest.approx(1, abs=0.2) and found[level] > 0 for level in LEVELS)
