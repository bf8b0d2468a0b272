"""The sweep over quantized models: what it explains by ties, and what it does not."""

from __future__ import annotations

import pytest
import torch
from benchmarks.models import build
from benchmarks.quantization.figures import measure
from benchmarks.quantization.flows import FLOWS
from benchmarks.quantization.ties import follow, probed

from exirkit.fuzz import OfficialRuntime

pytestmark = pytest.mark.executorch


@pytest.mark.parametrize("flow", ["per channel", "int8 dynamic, int8 weights"])
def test_a_model_is_explained(flow: str, official_runtime: OfficialRuntime) -> None:
    found = measure("mlp", flow, official_runtime, 0, exports=False)
    assert found.failure == ""
    assert all(level.explained for level in found.levels.values())


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
    # Of what a layer is given: its zero point first, then the integers.
    assert integers[0].numel() < integers[1].numel()
    integers[0].view(-1)[0] += 1
    integers[1][0] += 1
    wrong = follow(program, benchmark.inputs, integers)
    assert wrong.flipped == 1
    assert wrong.steps == 1
    assert 0 < wrong.from_tie < 1
