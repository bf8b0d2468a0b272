"""Programs that an official backend is known to miscompile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import Diagnostic, ModelError, locate

_PRODUCTS = ("linear.default", "addmm.default", "mm.default")
_MOVES = ("permute_copy.default", "t_copy.default", "transpose_copy.int")
_FOUR_BITS = (-8, 7)


def check_known_defects(backend_id: str, program: ExportedProgram) -> None:
    """Reject a part of a program that a backend is known to miscompile.

    Args:
        backend_id: Name of the official backend.
        program: What it is about to compile, with official operators.

    Raises:
        ModelError: EK755, XNNPACK reads int4 weights of an odd width from wrong addresses.
    """
    findings = [found for check in _CHECKS.get(backend_id, ()) for found in check(program)]
    if findings:
        raise ModelError(findings)


def _int4_of_odd_width(program: ExportedProgram) -> Iterator[Diagnostic]:
    """Find linears whose weights have four bits and an odd number of input channels, beside more than one row.

    Two weights share a byte, and each row of the weight starts with a byte of its own. XNNPACK (executorch 1.5.1)
    loses the last input channel from the second row of the input on. Inputs of many rows (50) take a kernel that
    is right; how many rows that takes is for XNNPACK to decide.
    """
    for node in program.graph.nodes:
        if not _is_four_bits(node):
            continue
        width = node.args[0].meta["val"].shape[1]
        for product in _products_of(node):
            rows = prod(product.meta["val"].shape[:-1])
            if width % 2 and rows != 1:
                yield Diagnostic.of(
                    "EK755",
                    f"XNNPACK computes wrong numbers for int4 weights with {width} input channels",
                    location=locate(product),
                    hint=f"pad input and weight with zeros to {width + 1} channels, or quantise this layer to int8",
                )


def _is_four_bits(node: Node) -> bool:
    """Return whether a call makes floats of a matrix of int4 weights with a scale for each row."""
    name = getattr(node.target, "__name__", "")
    if not name.endswith("dequantize_per_channel.default") or len(node.args) < 6:
        return False
    weight = node.args[0]
    if not isinstance(weight, Node) or weight.meta["val"].dim() != 2:
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
    "XnnpackBackend": (_int4_of_odd_width,)
}
