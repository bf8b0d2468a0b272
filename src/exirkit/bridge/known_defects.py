"""Programs that an official backend is known to miscompile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import Diagnostic, ModelError, locate

from .xnnpack_linears import check_affine_weights

_PRODUCTS = ("linear.default", "addmm.default", "mm.default")
_CONVOLUTION = ("convolution.default", "conv1d.default", "conv2d.default")
_OF_CHANNELS_LAST = (
    *_CONVOLUTION,
    "upsample_bilinear2d.vec",
    "max_pool2d.default",
    "max_pool2d_with_indices.default",
    "avg_pool2d.default",
    "mean.dim",
    "amax.default",
    "max.dim",
    "prelu.default",
)
_MOVES = ("permute_copy.default", "t_copy.default", "transpose_copy.int")
_FOUR_BITS = (-8, 7)


def check_known_defects(backend_id: str, program: ExportedProgram) -> None:
    """Reject a part of a program that a backend is known to miscompile.

    Args:
        backend_id: Name of the official backend.
        program: What it is about to compile, with official operators.

    Raises:
        ModelError: EK755, XNNPACK reads int4 weights of an odd width from wrong addresses, or loses scales of weights;
            EK756, it has no convolution with int4 weights.
    """
    findings = [found for check in _CHECKS.get(backend_id, ()) for found in check(program)]
    if findings:
        raise ModelError(findings)


def is_laid_out_wrong(program: ExportedProgram) -> bool:
    """Return whether XNNPACK's own pass may have a softmax of images computed along another dim than it says.

    The pass of executorch 1.5.1 leaves a softmax between convolutions channels last, where the kernel computes along
    the channels. Our chain knows no softmax of such tensors, and asks for rows there.

    Args:
        program: A partition, with operators of ours or of theirs.
    """
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    return any("softmax" in _name(node) and _is_image(node) for node in calls) and (
        any(_name(node).endswith(_OF_CHANNELS_LAST) for node in calls)
        or any(_is_image(node) and not node.meta["val"].is_contiguous() for node in program.graph.nodes)
    )


def _name(node: Node) -> str:
    return getattr(node.target, "__name__", str(node.target))


def _is_image(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() == 4


def _int4_of_odd_width(program: ExportedProgram) -> Iterator[Diagnostic]:
    """Find linears whose weights have four bits and an odd number of input channels, beside more than one row.

    Two weights share a byte, and each row of the weight starts with a byte of its own. XNNPACK (executorch 1.5.1)
    loses the last input channel from the second row of the input on. On x86-64 that happens with 2 to 8 rows; more
    take another kernel, which is right. How many rows that takes is for XNNPACK to decide on each processor.
    Weights in groups are not concerned: a group has a multiple of 32 input channels.
    """
    for node in program.graph.nodes:
        if not _is_four_bits(node) or node.args[0].meta["val"].dim() != 2:
            continue
        width = node.args[0].meta["val"].shape[1]
        for product in _products_of(node):
            rows = prod(product.meta["val"].shape[:-1])
            if width % 2 and rows != 1:
                yield Diagnostic.of(
                    "EK755",
                    f"XNNPACK computes wrong numbers for int4 weights with {width} input channels",
                    location=locate(product),
                    expected="an even number of input channels, or a single row of input",
                    hint=f"pad input and weight with zeros to {width + 1} channels, or quantise this layer to int8",
                )


def _int4_convolution(program: ExportedProgram) -> Iterator[Diagnostic]:
    """Find convolutions whose weights have four bits, which XNNPACK's partitioner takes.

    Its compiler fails with a bare assertion, or, where the kernel has one element, makes what its runtime rejects.
    """
    for node in program.graph.nodes:
        if not _is_four_bits(node):
            continue
        for user in node.users:
            if getattr(user.target, "__name__", "").endswith(_CONVOLUTION):
                yield Diagnostic(
                    code="EK756",
                    message="XNNPACK has no convolution with int4 weights",
                    location=locate(user),
                    hint="quantise the weights of convolutions to int8",
                )


def _is_four_bits(node: Node) -> bool:
    """Return whether a call makes floats of int4 weights with a scale for each output channel."""
    name = getattr(node.target, "__name__", "")
    if not name.endswith("dequantize_per_channel.default") or len(node.args) < 6:
        return False
    weight = node.args[0]
    if not isinstance(weight, Node):
        return False
    return tuple(node.args[4:6]) == _FOUR_BITS and weight.meta["val"].dtype == torch.int8


def _products_of(weight: Node) -> Iterator[Node]:
    for user in weight.users:
        name = getattr(user.target, "__name__", "")
        if name.endswith(_PRODUCTS):
            yield user
        elif name.endswith(_MOVES):
            yield from _products_of(user)


_CHECKS: dict[str, tuple[Callable[[ExportedProgram], Iterator[Diagnostic]], ...]] = {
    "XnnpackBackend": (_int4_of_odd_width, _int4_convolution, check_affine_weights)
}
