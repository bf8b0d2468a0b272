"""Padding with negative numbers becomes slices, and means the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.diagnostics.programs import exported

from exirkit import to_edge
from exirkit.fuzz.official import OfficialRuntime
from exirkit.passes import LegalizePadding
from exirkit.runtime_ref import Runtime

PADS = [(-1, 0), (0, -2), (-1, -1, 2, 3), (1, -1, -2, 0, 3, -1), (-1, -2, -1, 0), (-4, -2, 1, 1), (2, 1)]


def padded(pad: tuple[int, ...], value: float = 0.0) -> Any:
    return lambda x: torch.nn.functional.pad(x, pad, value=value)


def results_of(buffer: bytes, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = Runtime.get().load_program(buffer).load_method("forward").execute([x])[0]
    return result


def calls(program: Any, name: str) -> list[Any]:
    return [node for node in program.graph.nodes if node.op == "call_function" and name in str(node.target)]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-2, 2), min_size=1, max_size=3), st.data(), st.sampled_from([0.0, 1.5]))
def test_it_means_the_same(fronts: list[int], data: st.DataObject, value: float) -> None:
    backs = [data.draw(st.integers(-2, 2)) for _ in fronts]
    pad = tuple(one for pair in zip(fronts, backs, strict=True) for one in pair)
    x = torch.randn(4, 5, 7)
    edge = to_edge(exported(padded(pad, value), x))
    torch.testing.assert_close(results_of(edge.to_executorch().buffer, x), padded(pad, value)(x))
    changed = edge.transform([LegalizePadding()]).exported_program()
    for node in calls(changed, "constant_pad_nd"):
        assert min(node.args[1]) >= 0
    if min(pad) >= 0:
        assert not calls(changed, "slice_copy"), "nothing to do"


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.executorch
def test_the_official_runtime_takes_it(varies: bool) -> None:
    x = torch.randn(5, 6, 7)
    shapes = ({0: torch.export.Dim("batch", min=4, max=9)},) if varies else None
    with OfficialRuntime() as runtime:
        for pad in PADS:
            buffer = to_edge(exported(padded(pad, 1.5), x, dynamic_shapes=shapes)).to_executorch().buffer
            assert torch.equal(runtime.run(buffer, [[x]]).unwrap()[0][0], padded(pad, 1.5)(x)), pad  # type: ignore[arg-type]
