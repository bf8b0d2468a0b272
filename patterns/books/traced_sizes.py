"""Sizes that vary in traces: functions are exported with symbols for them, which the rule calls by their names."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from exirkit.ir import Diagnostic, UsageError, pytree, underlying
from exirkit.patterns.books.traced_literals import literal_text

if TYPE_CHECKING:
    from exirkit.patterns.books.traces import Writer

_SIGNS = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.truediv: "/",
          operator.mod: "%"}  # fmt: skip


def check_varying(varying: Collection[str], sizes: Mapping[int, str]) -> None:
    """Reject names of varying sizes that no example has.

    Raises:
        UsageError: EK265.
    """
    for name in varying:
        if name not in sizes.values():
            raise UsageError(
                Diagnostic(
                    code="EK265",
                    message=f"no example has a size {name!r} that could vary",
                    expected=", ".join(sizes.values()) or "sizes of more than one",
                )
            )


def dynamic_shapes(given: Any, sizes: Mapping[int, str], varying: Collection[str]) -> Any:
    """Return which dims of arguments `torch.export` takes as symbols: those of sizes that vary."""

    def of(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        # A dim that has a name must hold for all sizes from zero on, which torch asks of slices and others in vain.
        return {dim: torch.export.Dim.DYNAMIC for dim, size in enumerate(value.shape) if sizes.get(size) in varying}

    return pytree.tree_map(of, given)


def write_size(writer: Writer, node: Node) -> bool:
    """Write a number that is computed from sizes at run time, or a tensor of one; False for other nodes.

    Raises:
        UsageError: EK266, it is computed in a way that rules do not have.
    """
    if writer.part == "replace" and underlying(node.target) is torch.ops.aten.scalar_tensor.default:
        (number,) = node.args
        if isinstance(number, Node) and set(node.kwargs) <= {"dtype", "device", "layout", "pin_memory"}:
            writer.nodes[node] = f"scalar({writer.text_of(number)}, {literal_text(node.meta['val'].dtype)})"
            return True
    if not isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat):
        return False
    if underlying(node.target) is torch.ops.aten.sym_size.int:
        name = _named(writer, node.meta["val"])
        tensor, dim = node.args
        if name is None and writer.part == "match":
            raise writer.unusable("it asks for a size that no argument has by itself")
        writer.nodes[node] = name or f"size({writer.text_of(tensor)}, {dim})"
        return True
    if node.target is torch.sym_float:
        # Numbers of the rule language divide as Python's do.
        writer.nodes[node] = writer.text_of(node.args[0])
        return True
    sign = _SIGNS.get(node.target)  # type: ignore[arg-type]
    if sign is None or len(node.args) != 2 or node.kwargs:
        raise writer.unusable(
            f"it computes a size by {node.target}", f"sizes are computed by {' '.join(_SIGNS.values())}"
        )
    left, right = (writer.text_of(one) if isinstance(one, Node) else repr(one) for one in node.args)
    writer.nodes[node] = f"({left} {sign} {right})"
    return True


def _named(writer: Writer, value: torch.SymInt) -> str | None:
    """Return the name of the varying size of an example that is this symbol."""
    examples = {
        name: example[0] if isinstance(example, list | tuple) else example for name, example in writer.examples.items()
    }
    for node, name in writer.inputs.items():
        example = examples.get(name)
        if isinstance(example, torch.Tensor):
            for dim, size in enumerate(node.meta["val"].shape):
                if isinstance(size, torch.SymInt) and str(size) == str(value):
                    return writer.decisions.sizes[example.shape[dim]]
    return None
