"""Calls that quantize and dequantize in blocks, by the kernels that do so row by row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import EdgeOpOverload, GraphEditor, called_graphs, named_arguments, operator_name, ops
from exirkit.passes.analysis import StoredValues
from exirkit.passes.contract import Pass
from exirkit.passes.legalize.edge_calls import EdgeCalls

_DEQUANTIZE = "torchao.dequantize_affine.default"
_QUANTIZE = "torchao.quantize_affine.default"
_PER_GROUP = "quantized_decomposed.dequantize_per_channel_group.default"
_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32)


class UseQuantizedKernels(Pass):
    """Quantize and dequantize blocks that are rows, or parts of rows, by the kernels for channels and tokens.

    `torchao.quantize_affine`, `torchao.dequantize_affine` and `dequantize_per_channel_group` have no kernel. Decomposed
    they are casts, differences and products, each with a wide tensor as its result. With stored parameters they
    become calls per channel, with others calls per token. The values are the same, except that NaN and infinities
    become the smallest integer, as in all kernels that quantize.

    Before: `%w = torchao.dequantize_affine.default(%q, [1, 32], %scales, %zeros, torch.int8, -8, 7)`
    After: `%rows = aten.view_copy.default(%q, [64, 32])`;
        `%wide = quantized_decomposed.dequantize_per_channel.default(%rows, %scales, %zeros, 0, -128, 127, torch.int8)`;
        `%w = aten.view_copy.default(%wide, [16, 128])`
    """

    name = "use-quantized-kernels"
    enters_subgraphs = True
    requires = ("edge-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Replace the calls."""
        stored = StoredValues(editor.program)
        for node in list(editor.graph.nodes):
            if _name(node) not in (_DEQUANTIZE, _QUANTIZE, _PER_GROUP):
                continue
            made = _made(EdgeCalls(editor, node), stored)
            if made is not None:
                editor.replace(node, made)
                editor.erase(node)


def has_quantized_blocks(program: ExportedProgram) -> bool:
    """Return whether `use-quantized-kernels` may change an Edge program; few programs need it."""
    graphs = [module.graph for module in called_graphs(program.graph_module)]
    return any(_name(node) in (_DEQUANTIZE, _QUANTIZE, _PER_GROUP) for graph in graphs for node in graph.nodes)


def _name(node: Node) -> str:
    target = node.target
    # Hardly any call is of these libraries.
    is_candidate = isinstance(target, EdgeOpOverload) and target.namespace in ("torchao", "quantized_decomposed")
    return operator_name(target) if is_candidate else ""


def _made(calls: EdgeCalls, stored: StoredValues) -> Node | None:
    """Return the replacement of a call, or None if no kernel computes the same."""
    name, given = _name(calls.node), named_arguments(calls.node)
    source: Node = given["input"]
    value, result = source.meta["val"], calls.node.meta["val"]
    narrow, wide = (result, value) if name == _QUANTIZE else (value, result)
    if narrow.dtype not in _INTEGERS or wide.dtype is not torch.float32 or not value.dim():
        return None
    scales = given["scales" if name == _PER_GROUP else "scale"]
    zeros = given.get("zero_points" if name == _PER_GROUP else "zero_point")
    if name != _QUANTIZE and zeros is not None and _is_zero(stored.tensor(zeros)):
        zeros = None
    if not _are_parameters(scales, zeros, narrow.dtype, stored):
        return None
    width = _width(name, given, value, scales.meta["val"], zeros)
    if name == _QUANTIZE:
        limits = _limits(given, narrow.dtype)
        return None if zeros is None or limits is None else _quantized(calls, source, (scales, zeros), width, limits)
    is_stored = all(one is None or stored.tensor(one) is not None for one in (scales, zeros))
    return _dequantized(calls, source, (scales, zeros), width, is_stored)


def _are_parameters(scales: Node, zeros: Node | None, dtype: torch.dtype, stored: StoredValues) -> bool:
    """Whether the kernels round with these scales and zero points as the operators do, and do not end the process."""
    if scales.meta["val"].dtype is not torch.float32:
        return False
    if zeros is None:
        return True
    value = zeros.meta["val"]
    if value.shape != scales.meta["val"].shape or value.dtype.is_floating_point:
        return False
    if value.dtype is dtype:
        return True
    known = stored.tensor(zeros)
    if known is None or not known.numel():
        # The kernel for tokens has no limits.
        return stored.tensor(scales) is None
    least, greatest = torch.aminmax(known)
    limits = torch.iinfo(dtype)
    return limits.min <= int(least) and int(greatest) <= limits.max


def _is_fixed(sizes: Iterable[Any]) -> bool:
    return all(type(size) is int for size in sizes)


def _is_zero(known: torch.Tensor | None) -> bool:
    return known is not None and not bool(known.any())


def _width(name: str, given: dict[str, Any], value: torch.Tensor, scales: torch.Tensor, zeros: Node | None) -> int:
    """Return how many neighbours in a row share their parameters; 0 where blocks are not parts of rows."""
    columns = value.shape[-1]
    if not _is_fixed([columns]) or not columns:
        return 0
    if name == _PER_GROUP:
        width = given["group_size"]
        if width > columns and scales.shape[-1] == 1:
            width = columns
        # Of integers with zero points of 8 bits torch takes a difference of 8 bits.
        wraps = zeros is not None and zeros.meta["val"].dtype.itemsize < 4 and value.dtype.itemsize < 4
        return 0 if wraps or columns % width else int(width)
    *outer, width = given["block_size"]
    is_row = all(type(one) is int and one == 1 for one in outer)
    return int(width) if is_row and type(width) is int and width > 0 and columns % width == 0 else 0


def _limits(given: dict[str, Any], dtype: torch.dtype) -> tuple[int, int] | None:
    info = torch.iinfo(dtype)
    least, greatest = (given.get(one) for one in ("quant_min", "quant_max"))
    least, greatest = info.min if least is None else least, info.max if greatest is None else greatest
    is_whole = least == int(least) and greatest == int(greatest)
    return (int(least), int(greatest)) if is_whole and info.min <= least and greatest <= info.max else None


def _quantized(
    calls: EdgeCalls, source: Node, parameters: Sequence[Node], width: int, limits: tuple[int, int]
) -> Node | None:
    value, dtype = source.meta["val"], calls.node.meta["val"].dtype
    library = ops.edge.quantized_decomposed
    if width != value.shape[-1] or not _by_row(value, parameters[0].meta["val"]):
        return None
    columns = [_column(calls, one, value.dim()) for one in parameters]
    return calls(library.quantize_per_token.default, source, *columns, *limits, dtype)


def _dequantized(
    calls: EdgeCalls, source: Node, parameters: tuple[Node, Node | None], width: int, is_stored: bool
) -> Node | None:
    value, (scales, zeros) = source.meta["val"], parameters
    dtype = value.dtype
    limits = torch.iinfo(dtype)
    more = (limits.min, limits.max, dtype)
    library = ops.edge.quantized_decomposed
    if not width:
        return None
    if not is_stored:
        if zeros is None or width != value.shape[-1] or not _by_row(value, scales.meta["val"]):
            return None
        columns = [_column(calls, one, value.dim()) for one in (scales, zeros)]
        return calls(library.dequantize_per_token.default, source, *columns, *more, torch.float32)
    if not _is_fixed(value.shape):
        return None
    rows = math.prod(value.shape) // width
    if scales.meta["val"].numel() != rows:
        return None
    if zeros is not None and zeros.meta["val"].dtype.itemsize < 4:
        # torch, which folds the call, would subtract in 8 bits; the kernel takes 32.
        zeros = calls.cast(zeros, torch.int32)
    lists = [None if one is None else _viewed(calls, one, [rows]) for one in (scales, zeros)]
    grouped = _viewed(calls, source, [rows, width])
    made = calls(library.dequantize_per_channel.default, grouped, *lists, 0, *more)
    return _viewed(calls, made, list(value.shape))


def _viewed(calls: EdgeCalls, tensor: Node, sizes: list[int]) -> Node:
    return tensor if list(tensor.meta["val"].shape) == sizes else calls.view(tensor, sizes)


def _column(calls: EdgeCalls, parameter: Node, rank: int) -> Node:
    """Return parameters of rows with a last dim of their own."""
    is_column = parameter.meta["val"].dim() == rank
    return parameter if is_column else calls(ops.edge.aten.unsqueeze_copy.default, parameter, -1)


def _by_row(value: torch.Tensor, scales: torch.Tensor) -> bool:
    """Whether there is one scale for each row."""
    return scales.shape in (value.shape[:-1], torch.Size([*value.shape[:-1], 1]))
