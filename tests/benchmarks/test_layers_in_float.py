"""Models with weights of three bits are accurate enough with at most a quarter of their layers in float."""

from __future__ import annotations

import pytest
from benchmarks.quantization.layers import left_in_float
from benchmarks.quantization.trained import KINDS


@pytest.mark.parametrize("per_channel", [False, True], ids=["per tensor", "per channel"])
@pytest.mark.parametrize("name", list(KINDS))
def test_few_layers_are_left_in_float(name: str, per_channel: bool) -> None:
    plain, _, found = left_in_float(name, per_channel=per_channel)
    assert found.score >= plain - 0.01
    assert found.left * 4 <= found.layers
