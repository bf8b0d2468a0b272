"""Parameters of quantized values: what the calls state, and what the program stores, against each other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import (
    Diagnostic,
    ProgramInterface,
    named_arguments,
    operator_name,
    quantization_kind,
    stored_tensor,
    underlying,
)

from .structure import ProgramGraph, graphs_of

Numbers: TypeAlias = torch.Tensor | None
"""Scales or zero points as float64 or int64; None if they are known only when the program runs."""

_INTEGERS: Final = frozenset({torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32})
_PRODUCTS: Final = frozenset(
    {"aten.linear.default", "aten.addmm.default", "aten.mm.default", "aten.convolution.default"}
)
# Sums of products of two bytes have to stay below this in 32 bits.
_END_OF_ACCUMULATOR: Final = 2**31
_MOVERS: Final = frozenset(
    {
        "aten.view_copy.default", "aten.view.default", "aten.reshape.default", "aten.permute_copy.default",
        "aten.permute.default", "aten.transpose_copy.int", "aten.squeeze_copy.dims", "aten.unsqueeze_copy.default",
        "aten.expand_copy.default", "aten.slice_copy.Tensor", "aten.clone.default",
        "dim_order_ops._clone_dim_order.default",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Quantization:
    """A call that quantizes or dequantizes, with what is known of its parameters.

    Attributes:
        node: The call.
        source: Its first argument.
        is_quantize: Whether it makes integers.
        scales: The scale, or all of them.
        zero_points: The zero point, or all of them; zeros where none are given.
        axis: Dim along which they differ; None for one scale or one a row.
        low: Smallest integer.
        high: Largest integer.
        dtype: Of the integers, as the call states it.
        given: All arguments by name.
    """

    node: Node
    source: Node
    is_quantize: bool
    scales: Numbers
    zero_points: Numbers
    axis: int | None
    low: int
    high: int
    dtype: torch.dtype
    given: dict[str, Any]

    def same_parameters(self, other: Quantization) -> bool | None:
        """Whether two calls have one meaning of integers; None if that is not known."""
        ours, theirs = (self.scales, self.zero_points), (other.scales, other.zero_points)
        if any(one is None for one in (*ours, *theirs)):
            mine = [self.given.get(name) for name in ("scale", "scales", "zero_point", "zero_points")]
            same = [other.given.get(name) for name in ("scale", "scales", "zero_point", "zero_points")]
            return True if mine == same else None
        pairs = zip(ours, theirs, strict=True)
        return self.axis == other.axis and all(_same(one, another) for one, another in pairs)


def _same(one: Numbers, other: Numbers) -> bool:
    assert one is not None
    assert other is not None
    return one.numel() == other.numel() and torch.equal(one.flatten(), other.flatten())


def check_quantization(program: ExportedProgram) -> list[Diagnostic]:
    """Check the parameters of quantize and dequantize calls, and of what stands between them.

    Errors are what no runtime computes as it is meant: EK362 to EK370; of EK365 where the kernel ends the process.
    Warnings are what runs, and is hardly meant: stored integers outside of the limits (EK371), a value read with
    other parameters than it was made with (EK372), a bias whose scale is not the product of those of input and weight
    (EK373), sums that 32 bits do not hold (EK374), and a change of parameters around an operator that only moves
    elements (EK375).

    Args:
        program: Program in the ATen or Edge dialect.

    Returns:
        All findings, in graph order.
    """
    graphs = graphs_of(program)
    if not any(_is_quantized(node) for graph in graphs for node in graph.calls()):
        return []
    interface = ProgramInterface.of(program)
    stored = {node: stored_tensor(program, entry) for node, entry in interface.inputs.items()}
    findings: list[Diagnostic] = []
    for graph in graphs:
        calls: dict[Node, Quantization] = {}
        for node in graph.calls():
            found = quantization_of(node, stored)
            if found is not None:
                calls[node] = found
                findings += _of_call(graph, found, stored)
            elif operator_name(node.target) in _PRODUCTS:
                findings += _of_product(graph, node, calls)
    return findings


def quantization_of(node: Node, stored: dict[Node, torch.Tensor | None]) -> Quantization | None:
    """Return what a call states about quantized values, or None if it is not such a call.

    Args:
        node: Any node.
        stored: Tensors behind inputs of the program.
    """
    if not _is_quantized(node):
        return None
    schema = underlying(node.target)._schema
    given = named_arguments(node)
    if schema.name.partition("::")[0] != "quantized_decomposed" or not isinstance(given.get("input"), Node):
        return None
    scale, zero = (given.get(f"{name}s", given.get(name)) for name in ("scale", "zero_point"))
    if any(type(given.get(name)) is not int for name in ("quant_min", "quant_max")):
        return None
    return Quantization(
        node, given["input"], quantization_kind(node.target) == "quantize", _numbers(scale, torch.float64, stored),
        _numbers(0 if zero is None else zero, torch.int64, stored), given.get("axis"), given["quant_min"],
        given["quant_max"], given["dtype"], given,
    )  # fmt: skip


def _is_quantized(node: Node) -> bool:
    return bool(quantization_kind(node.target))


def _numbers(given: Any, dtype: torch.dtype, stored: dict[Node, torch.Tensor | None]) -> Numbers:
    if isinstance(given, Node):
        tensor = stored.get(given)
        is_plain = tensor is not None and tensor.layout is torch.strided and not tensor.is_meta
        return tensor.detach().to(dtype) if tensor is not None and is_plain else None
    return torch.tensor(given, dtype=dtype) if type(given) in (int, float) else None


def _of_call(graph: ProgramGraph, one: Quantization, stored: dict[Node, torch.Tensor | None]) -> Iterator[Diagnostic]:
    yield from _range(graph, one)
    yield from _parameters(graph, one)
    yield from _sizes(graph, one)
    yield from _dtypes(graph, one)
    yield from _stored_integers(graph, one, stored)
    yield from _edges(graph, one, stored)


def _range(graph: ProgramGraph, one: Quantization) -> Iterator[Diagnostic]:
    limits = f"{one.low} to {one.high}"
    if one.low >= one.high:
        yield graph.finding("EK363", one.node, f"the limits are {limits}")
    elif one.dtype in _INTEGERS:
        ends = torch.iinfo(one.dtype)
        if one.low < ends.min or one.high > ends.max:
            message = f"the limits {limits} are not numbers of {_plain(one.dtype)}"
            yield graph.finding("EK364", one.node, message, expected=f"{ends.min} to {ends.max}, or less")


def _parameters(graph: ProgramGraph, one: Quantization) -> Iterator[Diagnostic]:
    if one.scales is not None:
        single = one.scales.to(torch.float32)
        wrong = ~((single > 0) & torch.isfinite(single) & torch.isfinite(1 / single))
        if bool(wrong.any()):
            place = "" if one.scales.numel() == 1 else f" of channel {int(wrong.flatten().nonzero()[0])}"
            yield graph.finding("EK362", one.node, f"the scale{place} is {one.scales[wrong].flatten()[0].item():g}")
    zeros = one.given.get("zero_points", one.given.get("zero_point"))
    value = zeros.meta.get("val") if isinstance(zeros, Node) else None
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        yield graph.finding("EK366", one.node, f"zero points are {_plain(value.dtype)}")
    elif one.zero_points is not None and one.low < one.high:
        outside = (one.zero_points < one.low) | (one.zero_points > one.high)
        if bool(outside.any()):
            message = f"the zero point {one.zero_points[outside].flatten()[0].item()} lies outside of the limits"
            found = graph.finding("EK365", one.node, message, expected=f"{one.low} to {one.high}")
            # Other kernels compute with it.
            is_error = not one.is_quantize and one.axis is not None and one.dtype is torch.int8
            yield found if is_error else found.model_copy(update={"severity": "warning"})
        elif one.low == -one.high and bool(one.zero_points.any()):
            # Kernels for symmetric weights take the limits for a promise.
            zero = one.zero_points[one.zero_points != 0].flatten()[0].item()
            yield _warning(graph, "EK365", one.node, f"the zero point is {zero}, and the limits are symmetric")


def _sizes(graph: ProgramGraph, one: Quantization) -> Iterator[Diagnostic]:
    if one.axis is None:
        return
    sizes = one.source.meta["val"].shape
    if not -len(sizes) <= one.axis < len(sizes):
        yield graph.finding("EK367", one.node, f"axis {one.axis} of a tensor of {len(sizes)} dims")
        return
    for name in ("scales", "zero_points"):
        given = one.given.get(name)
        found = given.meta["val"].numel() if isinstance(given, Node) else None
        wanted = sizes[one.axis]
        if isinstance(found, int) and isinstance(wanted, int) and found != wanted:
            message = f"there are {found} {name.replace('_', ' ')} for {wanted} channels"
            yield graph.finding("EK368", one.node, message)


def _dtypes(graph: ProgramGraph, one: Quantization) -> Iterator[Diagnostic]:
    found = one.source.meta["val"].dtype
    if one.is_quantize and not found.is_floating_point:
        yield graph.finding("EK370", one.node, f"{_plain(found)} is quantized")
    elif not one.is_quantize and found != one.dtype:
        message = f"the integers are {_plain(found)}, and the call takes them for {_plain(one.dtype)}"
        yield graph.finding("EK369", one.node, message)


def _stored_integers(
    graph: ProgramGraph, one: Quantization, stored: dict[Node, torch.Tensor | None]
) -> Iterator[Diagnostic]:
    tensor = None if one.is_quantize else stored.get(one.source)
    if tensor is None or tensor.is_meta or not tensor.numel() or tensor.is_floating_point():
        return
    least, greatest = (int(end) for end in torch.aminmax(tensor))
    if least < one.low or greatest > one.high:
        message = f"stored integers are {least} to {greatest}, the limits {one.low} to {one.high}"
        yield _warning(graph, "EK371", one.node, message)


def _edges(graph: ProgramGraph, one: Quantization, stored: dict[Node, torch.Tensor | None]) -> Iterator[Diagnostic]:
    """Yield what is wrong between a call and the one whose value it gets, directly or moved."""
    source, moved = one.source, False
    while operator_name(source.target) in _MOVERS and source.all_input_nodes:
        source, moved = source.all_input_nodes[0], True
    before = quantization_of(source, stored)
    if before is None or before.is_quantize == one.is_quantize or before.axis is not None or one.axis is not None:
        return
    if before.same_parameters(one) is not False:
        return
    notes = (f"%{before.node.name}: {_shown(before)}", f"%{one.node.name}: {_shown(one)}")
    if not one.is_quantize:
        message = f"%{one.node.name} reads integers with other parameters than %{before.node.name} made them with"
        yield _warning(graph, "EK372", one.node, message, notes)
    elif moved:
        message = f"%{one.node.name} quantizes what was only moved, with other parameters than it had"
        yield _warning(graph, "EK375", one.node, message, notes)


def _of_product(graph: ProgramGraph, node: Node, calls: dict[Node, Quantization]) -> Iterator[Diagnostic]:
    """Yield what is wrong with a product of dequantized operands."""
    given = named_arguments(node)
    names = ("mat1", "mat2", "self") if "mat1" in given else ("input", "weight", "bias")
    if "mat2" in given and "mat1" not in given:
        names = ("self", "mat2", "")
    left, right, bias = (_dequantized(given.get(name), calls) for name in names)
    if left is None or right is None or left.is_quantize or right.is_quantize:
        return
    if {left.dtype, right.dtype} <= {torch.int8, torch.uint8}:
        terms = _terms(node, right)
        if isinstance(terms, int) and terms * 127 * 128 >= _END_OF_ACCUMULATOR:
            message = f"sums of {terms} products of bytes do not fit 32 bits"
            yield _warning(graph, "EK374", node, message)
    yield from _summed_axis(graph, node, given.get(names[1]), right)
    if bias is not None and bias.dtype is torch.int32:
        if bias.zero_points is not None and bool(bias.zero_points.any()):
            zero = bias.zero_points[bias.zero_points != 0].flatten()[0].item()
            yield _warning(graph, "EK373", node, f"the zero point of the bias is {zero}, that of the products 0")
        if None not in (left.scales, right.scales, bias.scales):
            yield from _bias(graph, node, left, right, bias)


def _summed_axis(graph: ProgramGraph, node: Node, weight: Any, right: Quantization) -> Iterator[Diagnostic]:
    """Yield that scales differ along a dim of the weight that the product sums over."""
    axis = _axis_of(weight, right)
    name = operator_name(node.target)
    if axis is None or (name == "aten.convolution.default" and named_arguments(node).get("transposed")):
        return
    wanted = 1 if name in ("aten.mm.default", "aten.addmm.default") else 0
    if axis != wanted and right.source.meta["val"].shape[right.axis or 0] != 1:
        message = f"the scales of the weight differ along dim {axis}, over which the product sums"
        yield _warning(graph, "EK367", node, message)


def _axis_of(weight: Any, right: Quantization) -> int | None:
    """Return the dim of an operand along which its scales differ; None if they do not, or it is not known."""
    if right.axis is None or not isinstance(weight, Node):
        return None
    axis: int = right.axis % max(1, right.source.meta["val"].dim())
    if weight is right.node:
        return axis
    given = named_arguments(weight)
    is_permuted = operator_name(weight.target) in ("aten.permute_copy.default", "aten.permute.default")
    if not is_permuted or given.get("input", given.get("self")) is not right.node:
        return None
    dims: list[int] = [dim % len(given["dims"]) for dim in given["dims"]]
    return dims.index(axis)


def _bias(
    graph: ProgramGraph, node: Node, left: Quantization, right: Quantization, bias: Quantization
) -> Iterator[Diagnostic]:
    assert left.scales is not None
    assert right.scales is not None
    assert bias.scales is not None
    wanted = (left.scales.flatten() * right.scales.flatten()).flatten()
    if wanted.numel() not in (1, bias.scales.numel()) and bias.scales.numel() != 1:
        return
    ratio = (bias.scales.flatten() / wanted).flatten()
    if bool(((ratio - 1).abs() > 1e-3).any()):
        message = f"the scale of the bias is {ratio[(ratio - 1).abs().argmax()].item():.4g} times that of the products"
        yield _warning(graph, "EK373", node, message)


def _dequantized(value: Any, calls: dict[Node, Quantization]) -> Quantization | None:
    while isinstance(value, Node) and operator_name(value.target) in _MOVERS and value.all_input_nodes:
        value = value.all_input_nodes[0]
    return calls.get(value) if isinstance(value, Node) else None


def _terms(node: Node, right: Quantization) -> Any:
    """Return how many products are summed up for one result."""
    weight = right.source.meta["val"].shape
    if operator_name(node.target) == "aten.convolution.default":
        return math.prod(weight[1:]) if all(isinstance(one, int) for one in weight) else None
    left: Any = named_arguments(node).get("mat1", node.args[0])
    return left.meta["val"].shape[-1]


def _shown(one: Quantization) -> str:
    scale = "?" if one.scales is None else f"{one.scales.flatten()[0].item():g}"
    zero = "?" if one.zero_points is None else str(int(one.zero_points.flatten()[0]))
    return f"scale {scale}, zero point {zero}"


def _warning(graph: ProgramGraph, code: str, node: Node, message: str, notes: tuple[str, ...] = ()) -> Diagnostic:
    return graph.finding(code, node, message, notes=notes).model_copy(update={"severity": "warning"})


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
