"""Bands of results are results of bands: for every operator of the catalogue that has a kind."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import pytest
import torch
from torch.fx import Graph, Node

from exirkit.ir import catalogue, operator_named, split_arguments, underlying
from exirkit.passes.optimize.tiling.bands import ELEMENTWISE, Band, Call, Operand, call_of, read

F = torch.float32


def t(*sizes: int, dtype: torch.dtype = F) -> torch.Tensor:
    made = torch.randn(sizes) * 3
    return made if dtype is F else made.abs().to(dtype)


def _calls() -> dict[str, list[tuple[Any, ...]]]:
    """Arguments for each operator; what is not listed is a unary or binary elementwise one."""
    scale, zero = torch.rand(3) + 0.1, torch.tensor([0, 1, 2])
    many: dict[str, list[tuple[Any, ...]]] = {
        "aten.where.self": [(t(4, 1, 5) > 0, t(3, 5), t(4, 3, 1))],
        "aten.to.dtype": [(t(4, 3), torch.float64)],
        "aten.clamp.default": [(t(4, 3), -1.0, 1.0)],
        "aten.clamp.Tensor": [(t(4, 3), t(3), None)],
        "aten.hardtanh.default": [(t(4, 3),)],
        "aten.convolution.default": [
            (t(2, 4, 9, 8), t(6, 2, 3, 2), t(6), [2, 1], [1, 1], [1, 2], False, [0, 0], 2),
            (t(1, 3, 11), t(2, 3, 3), None, [1], [2], [2], False, [0], 1),
        ],
        "aten.max_pool2d_with_indices.default": [
            (t(2, 3, 9, 8), [3, 2], [2, 1], [1, 1], [1, 2]),
            (t(1, 2, 8, 9), [3, 2], [2, 2], [1, 0], [1, 1], True),
        ],
        "aten.avg_pool2d.default": [
            (t(1, 3, 9, 8), [3, 2], [2, 1], [1, 1]),
            (t(1, 3, 9, 8), [3, 3], [1, 1], [0, 0], False, False),
            (t(1, 3, 9, 8), [3, 3], [2, 2], [1, 1], False, False, 5),
        ],
        "aten.mm.default": [(t(5, 4), t(4, 6))],
        "aten.bmm.default": [(t(3, 5, 4), t(3, 4, 6))],
        "aten.addmm.default": [(t(6), t(5, 4), t(4, 6)), (t(5, 1), t(5, 4), t(4, 6)), (t(5, 6), t(5, 4), t(4, 6))],
        "aten.linear.default": [(t(2, 5, 4), t(6, 4), t(6))],
        "aten._softmax.default": [(t(4, 3, 5), 1, False)],
        "aten._log_softmax.default": [(t(4, 3, 5), -1, False)],
        "aten.cumsum.default": [(t(4, 3, 5), 1)],
        "aten.native_layer_norm.default": [(t(4, 5, 3, 2), [3, 2], t(3, 2), t(3, 2), 1e-5)],
        "aten._native_batch_norm_legit_no_training.default": [(t(2, 3, 5), t(3), t(3), t(3), t(3).abs(), 0.1, 1e-5)],
        "quantized_decomposed.quantize_per_tensor.default": [(t(4, 3), 0.1, 2, -128, 127, torch.int8)],
        "quantized_decomposed.dequantize_per_tensor.default": [
            (t(4, 3, dtype=torch.int8), 0.1, 2, -128, 127, torch.int8)
        ],
        "quantized_decomposed.quantize_per_channel.default": [(t(4, 3, 5), scale, zero, 1, -128, 127, torch.int8)],
        "quantized_decomposed.dequantize_per_channel.default": [
            (t(4, 5, 3, dtype=torch.int8), scale, zero, 2, -128, 127, torch.int8)
        ],
        **{
            f"aten.{name}": [(t(4, 3, 5, 2), [1], True), (t(4, 3, 5, 2), [-1, 0], False)]
            for name in ("mean.dim", "sum.dim_IntList", "amax.default", "amin.default")
        },
        "aten.any.dim": [(t(4, 3, 5) > 0, 1, True), (t(4, 3, 5) > 0, -1)],
        "aten.argmax.default": [(t(4, 3, 5), 1, True), (t(4, 3, 5), 0)],
        "aten.argmin.default": [(t(4, 3, 5), 1)],
        "aten.permute_copy.default": [(t(4, 3, 5), [2, 0, -2])],
        "aten.transpose_copy.int": [(t(4, 3, 5), 0, -1)],
        "aten.t_copy.default": [(t(4, 3),)],
        "aten.view_copy.default": [
            (t(1, 6, 4, 3), [1, 24, 3]), (t(1, 24, 3), [1, 6, 4, 3]), (t(4, 6), [2, 2, 6]), (t(3, 4), [4, 3]),
            (t(1, 1, 5), [5, 1]), (t(4, 6), [-1]),
        ],
        "aten.squeeze_copy.dims": [(t(4, 1, 5, 1), [1, 3]), (t(4, 2, 5), [0, 1])],
        "aten.squeeze_copy.dim": [(t(4, 1, 5), 1), (t(4, 2, 5), 1)],
        "aten.unsqueeze_copy.default": [(t(4, 5), 1), (t(4, 5), -1)],
        "aten.expand_copy.default": [(t(4, 1, 5), [4, 3, 5]), (t(5), [2, 3, -1])],
        "aten.cat.default": [([t(2, 3, 4), t(2, 5, 4)], 1), ([t(3, 4)] * 2, -1)],
        "aten.slice_copy.Tensor": [(t(4, 9, 3), 1, 2, 8, 2), (t(9, 3), 0, -5), (t(4, 3),)],
        "aten.select_copy.int": [(t(4, 9, 3), 1, -2), (t(4, 9), -1, 0)],
        "aten.embedding.default": [(t(7, 3), torch.randint(0, 7, (4, 5)))],
        "aten.constant_pad_nd.default": [(t(2, 5, 4), [1, 2, 2, 0], 0.5), (t(2, 5, 4), [0, 0, -1, 2])],
        "aten.pixel_shuffle.default": [(t(2, 8, 3, 4), 2)],
        "aten.upsample_nearest2d.vec": [(t(2, 3, 4, 5), None, [2.0, 3.0]), (t(2, 3, 4, 5), [8, 5], None)],
    }  # fmt: skip
    return many


_CALLS = _calls()


def _elementwise(name: str) -> list[tuple[Any, ...]]:
    """Operands that repeat in all ways, integers where the operator takes only these."""
    schema = operator_named(name)._schema
    tensors = [one for one in schema.arguments if str(one.type) == "Tensor"]
    numbers = [2 for one in schema.arguments if str(one.real_type) == "number" and not one.has_default_value()]
    dtype = torch.int64 if name.startswith("aten.bitwise") else F
    shapes = [(4, 3, 5)] if len(tensors) == 1 else [(4, 1, 5), (3, 5), (4, 3, 1)][: len(tensors)]
    calls: list[tuple[Any, ...]] = [(*(t(*shape, dtype=dtype) for shape in shapes), *numbers)]
    if len(tensors) == 2:
        calls.append((t(5, dtype=dtype), t(2, 5, dtype=dtype)))
    return calls


_NAMES = sorted(name for name, facts in catalogue().items() if facts.bands or not facts.traits.isdisjoint(ELEMENTWISE))


def sample(name: str, args: tuple[Any, ...]) -> Node:
    """Return a call in a graph whose values are recorded."""
    graph = Graph()

    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return [placed(one) for one in value]
        if not isinstance(value, torch.Tensor):
            return value
        node = graph.placeholder(f"x{len(graph.nodes)}")
        node.meta["val"] = value
        return node

    nodes = tuple(map(placed, args))
    node = graph.call_function(operator_named(name), nodes)
    node.meta["val"] = operator_named(name)(*args, **_keywords(name))
    node.kwargs = _keywords(name)
    return node


def _keywords(name: str) -> dict[str, Any]:
    # Casts without a dtype copy.
    if name in ("aten.div.Tensor_mode", "aten.div.Scalar_mode"):
        return {"rounding_mode": "floor"}
    return {"dim_order": [0, 1, 2]} if name.startswith("dim_order_ops") else {}


def of_band(node: Node, call: Call, band: Band) -> torch.Tensor | None:
    """Compute a band of the result from bands of what the call reads."""
    reading = read(node, call, band)
    if reading is None:
        return None
    assert reading.result.dim == band.dim
    assert reading.result.start <= band.start
    assert band.stop <= reading.result.stop
    arguments = dict(call.arguments) | dict(reading.changes)
    for one in reading.operands:
        value = given_band(one)
        if one.place is not None:
            value = [value if place == one.place else each for place, each in enumerate(arguments[one.name])]
        arguments[one.name] = value
    args, kwargs = split_arguments(underlying(node.target), arguments)
    args, kwargs = torch.fx.node.map_arg((args, kwargs), lambda one: one.meta["val"])
    target: Any = node.target
    made = target(*args, **kwargs)
    made = made[0] if isinstance(made, list | tuple) else made
    return made.narrow(band.dim, band.start - reading.result.start, band.size)


def given_band(one: Operand) -> Any:
    """Return a band of an operand, padded, as a value that takes the place of a node."""
    value = one.node.meta["val"].narrow(one.band.dim, one.band.start, one.band.size)
    if one.padding is not None:
        pad = [0] * (2 * (value.dim() - one.band.dim))
        pad[-2:] = [one.padding.before, one.padding.after]
        value = torch.nn.functional.pad(value, pad, value=one.padding.value)
    made = Graph().placeholder("band")
    made.meta["val"] = value.contiguous()
    return made


@pytest.mark.parametrize("name", _NAMES)
def test_bands_of_results(name: str) -> None:
    known = _CALLS.get(name) or _elementwise(name)
    compared = 0
    for args in known:
        node = sample(name, args)
        call = call_of(node)
        assert call is not None, "all sizes are fixed"
        value = node.meta["val"]
        whole = value[0] if isinstance(value, list | tuple) else value
        for dim, size in enumerate(whole.shape):
            for start, stop in itertools.combinations(range(size + 1), 2):
                found = of_band(node, call, Band(dim, start, stop))
                if found is None:
                    continue
                wanted = whole.narrow(dim, start, stop - start)
                torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
                compared += 1
    assert compared, "no band of any dim can be computed"


def test_what_has_no_bands() -> None:
    """What bands depend on as a whole, and what is not known."""
    for node, dim in (
        (sample("aten._softmax.default", (t(4, 3), 1, False)), 1),
        (sample("aten.avg_pool2d.default", (t(1, 3, 9, 8), [3, 3], [1, 1], [1, 1], False, False)), 2),
        (sample("aten.avg_pool2d.default", (t(1, 3, 9, 8), [2, 2], [2, 2], [0, 0], True)), 2),
    ):
        call = call_of(node)
        assert call is not None
        assert read(node, call, Band(dim, 0, 2)) is None
    assert call_of(sample("aten.flip.default", (t(4, 3), [0]))) is None
    columns = sample("aten.abs.default", (t(4, 3).t(),))
    assert call_of(columns) is None


def test_the_second_result() -> None:
    """Indices count from the first element: a band has other ones."""
    node = sample("aten.max_pool2d_with_indices.default", (t(1, 3, 8, 8), [2, 2]))
    with node.graph.inserting_after(node):
        node.graph.call_function(operator.getitem, (node, 1))
    assert call_of(node) is None
