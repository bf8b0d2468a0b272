"""Look-ups in tables of quantized embeddings, by the kernels that dequantize only the rows that are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import EdgeOpOverload, GraphEditor, called_graphs, is_quantization, named_arguments, operator_name, ops
from exirkit.passes.analysis import StoredValues
from exirkit.passes.contract import Pass

_EMBEDDING = "aten.embedding.default"
_AFFINE = "torchao.dequantize_affine.default"
_PER_CHANNEL = "quantized_decomposed.dequantize_per_channel.default"
_PER_GROUP = "quantized_decomposed.dequantize_per_channel_group.default"
_LIMITS = {(-128, 127): 8, (-127, 127): 8, (-8, 7): 4, (-2, 1): 2}
"""Bits of a number, by the limits of what the table holds."""


@dataclass(frozen=True)
class _Table:
    """A table of embeddings that a program dequantizes as a whole.

    Attributes:
        weight: int8, `[rows, columns]`.
        scales: float32, one a row or `[rows, groups]`.
        zero_points: One for each scale, or None.
        bits: That a number needs: 8, 4 or 2.
        low: Smallest number.
        high: Largest number.
    """

    weight: Node
    scales: Node
    zero_points: Node | None
    bits: int
    low: int
    high: int


@dataclass(eq=False, kw_only=True)
class FuseQuantizedEmbeddings(Pass):
    """Replace look-ups in a dequantized table by `embedding_byte`, `embedding_4bit` or `embedding_2bit`.

    The kernels dequantize the rows that are asked for, where the program would dequantize the whole table in each call,
    and give the same values. Numbers of four and two bits are packed, two and four in a byte. A table that something
    else reads as well stays as it is, unless weights of layers are packed too: they are unpacked by a look-up of all
    rows, which gives the same values in about the same time.

    Args:
        packs_weights: Pack stored weights of four and two bits of layers as well, which makes programs smaller.

    Before: `%w = torchao.dequantize_affine.default(%table, [1, 32], %scales, %zeros, torch.int8, -8, 7)`;
        `%y = aten.embedding.default(%w, %indices)`
    After: `%y = quantized_decomposed.embedding_4bit.default(%packed, %scales, None, -8, 7, %indices)`
    """

    name = "fuse-quantized-embeddings"
    requires = ("edge-operators",)

    packs_weights: bool = False

    def edit(self, editor: GraphEditor) -> None:
        """Replace the calls."""
        stored = StoredValues(editor.program)
        read: dict[Node, None] = {}
        for node in list(editor.graph.nodes):
            table = _table(node, packs_weights=self.packs_weights)
            if table is not None:
                self._fuse(editor, stored, node, table)
                read.update(dict.fromkeys(filter(None, (table.weight, table.zero_points))))
        editor.remove_inputs([node for node in read if stored.tensor(node) is not None and not node.users])

    def _fuse(self, editor: GraphEditor, stored: StoredValues, source: Node, table: _Table) -> None:
        weight, zeros = stored.tensor(table.weight), None
        if weight is None or not _is_within(weight, table):
            return
        if table.zero_points is not None:
            zeros = stored.tensor(table.zero_points)
            if zeros is None:
                return
        given: list[Node | None] = [table.weight, table.scales, None]
        if table.bits < 8:
            name = f"{table.weight.name}_packed"
            given[0] = editor.add_constant(packed(weight, table.bits), name=name, origins=table.weight)
        if zeros is not None and bool(zeros.any()):
            wide = zeros.to(torch.float32)
            given[2] = editor.add_constant(wide, name=f"{source.name}_zero_points", origins=table.zero_points or ())
        library = ops.edge.quantized_decomposed
        if any(operator_name(one.target) != _EMBEDDING or one.args[0] is not source for one in source.users):
            rows = torch.arange(weight.shape[0], dtype=torch.int32)
            every = editor.add_constant(rows, name=f"{table.weight.name}_rows", origins=table.weight)
            call = library.embedding_4bit if table.bits == 4 else library.embedding_2bit
            whole = [*given, table.low, table.high, every]
            editor.replace(source, editor.call(call.default, whole, before=source, origins=source))
            editor.erase(source)
            return
        kinds = {8: library.embedding_byte, 4: library.embedding_4bit, 2: library.embedding_2bit}
        for reader in list(source.users):
            arguments = [*given, table.low, table.high, named_arguments(reader)["indices"]]
            made = editor.call(kinds[table.bits].default, arguments, before=reader, origins=(source, reader))
            editor.replace(reader, made)
            editor.erase(reader)
        editor.erase_unused(source)


def has_quantized_embeddings(program: ExportedProgram, *, packs_weights: bool = False) -> bool:
    """Return whether `fuse-quantized-embeddings` may change an Edge program; few programs need it."""
    graphs = [module.graph for module in called_graphs(program.graph_module)]
    return any(_table(node, packs_weights=packs_weights) is not None for graph in graphs for node in graph.nodes)


def _is_within(weight: torch.Tensor, table: _Table) -> bool:
    """Whether a table holds only what its limits promise: dequantizing reads more, packing would lose it."""
    if table.bits == 8 or not weight.numel():
        return True
    least, greatest = torch.aminmax(weight)
    return table.low <= int(least) and int(greatest) <= table.high


def packed(table: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack numbers of four or two bits into bytes, as the kernels read them.

    Args:
        table: `[rows, columns]`; the number of columns is a multiple of what a byte holds.
        bits: 4: the even column in the upper half, plus 8. 2: the first column in the lowest bits, plus 2.

    Returns:
        uint8, `[rows, columns * bits / 8]`.
    """
    places = (4, 0) if bits == 4 else (0, 2, 4, 6)
    parts = (table.to(torch.int32) + 2 ** (bits - 1)).unflatten(1, (-1, len(places)))
    made: torch.Tensor = (parts << torch.tensor(places)).sum(2)
    return made.to(torch.uint8)


def _table(node: Node, *, packs_weights: bool) -> _Table | None:
    """Return the table that a node dequantizes for look-ups alone, or to be packed, if the kernels can read it."""
    if not is_quantization(node.target) or not isinstance(node.target, EdgeOpOverload) or not node.users:
        return None
    name = operator_name(node.target)
    if name not in (_AFFINE, _PER_CHANNEL, _PER_GROUP):
        return None
    is_looked_up = all(operator_name(one.target) == _EMBEDDING and one.args[0] is node for one in node.users)
    if not is_looked_up and not packs_weights:
        return None
    given = named_arguments(node)
    value, weight = node.meta["val"], given["input"]
    stored = weight.meta["val"]
    if value.dtype is not torch.float32 or stored.dtype is not torch.int8 or stored.dim() != 2:
        return None
    if not _is_by_row(name, given, stored):
        return None
    scales = given["scale" if name == _AFFINE else "scales"]
    zeros = given.get("zero_point" if name == _AFFINE else "zero_points")
    limits = (given.get("quant_min"), given.get("quant_max"))
    bits = _LIMITS.get(limits, 0)  # type: ignore[arg-type]
    if (
        not bits
        or (bits == 8 and not is_looked_up)
        or stored.shape[1] * bits % 8
        or not _are_sizes_known(stored, scales)
    ):
        return None
    return _Table(weight, scales, zeros, bits, int(given["quant_min"]), int(given["quant_max"]))


def _is_by_row(name: str, given: dict[str, Any], stored: torch.Tensor) -> bool:
    """Whether each row of a table, or each group of columns of a row, has a scale of its own."""
    if name == _PER_CHANNEL:
        return given["axis"] in (0, -2)
    width = given["block_size"][1] if name == _AFFINE else given["group_size"]
    is_by_row = name == _PER_GROUP or given["block_size"][0] == 1
    return is_by_row and isinstance(width, int) and width > 0 and stored.shape[1] % width == 0


def _are_sizes_known(stored: torch.Tensor, scales: Any) -> bool:
    value = scales.meta["val"]
    sizes = (*stored.shape, *value.shape)
    return value.dtype is torch.float32 and value.dim() in (1, 2) and all(isinstance(size, int) for size in sizes)
