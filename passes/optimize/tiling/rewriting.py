"""Making the calls that compute a region band by band."""

from __future__ import annotations

import operator
from typing import Any

from torch.fx import Node

from exirkit.ir import GraphEditor, named_arguments, ops, split_arguments, underlying

from .bands import Band, Operand, Reading, call_of, first_value, read
from .regions import Region

_SLICE = ops.edge.aten.slice_copy.Tensor
_PAD = ops.edge.aten.constant_pad_nd.default
_CAT = ops.edge.aten.cat.default


def compute_in_bands(editor: GraphEditor, region: Region) -> None:
    """Replace the calls of a region by calls for each band of its result, and join the results."""
    pieces = [_BandCalls(editor, region, band).made() for band in region.bands]
    result = region.result
    joined = editor.call(_CAT, (pieces, region.bands[0].dim), before=result, origins=result)
    editor.replace(result, joined)
    editor.erase_unused(result)


class _BandCalls:
    """Makes the calls for one band, in front of the call that they stand for in the end."""

    def __init__(self, editor: GraphEditor, region: Region, band: Band) -> None:
        self._editor = editor
        self._region = region
        self._band = band
        inside = set(region.nodes)
        # Bands that are wanted of the values in the region: what every user reads, from the last one on.
        self._wanted: dict[Node, Band] = {region.result: band}
        self._readings: dict[Node, Reading] = {}
        for node in reversed(region.nodes):
            wanted, call = self._wanted.get(node), call_of(node)
            if wanted is None or call is None:
                continue
            reading = read(node, call, wanted)
            assert reading is not None, "regions are made of calls of which bands can be computed"
            self._readings[node] = reading
            for one in reading.operands:
                if one.node in inside:
                    self._wanted[one.node] = one.band.joined(self._wanted.get(one.node))
        self._made: dict[Node, Node] = {}
        self._slices: dict[tuple[Node, Band], Node] = {}

    def made(self) -> Node:
        """Make all calls and return the one whose result is the band."""
        for node in self._region.nodes:
            if node in self._readings:
                self._made[node] = self._call(node)
        result = self._region.result
        return self._part(result, self._band)

    def _call(self, node: Node) -> Node:
        before, reading = self._region.result, self._readings[node]
        target: Any = node.target
        if target is operator.getitem:
            return self._editor.call(target, (self._given(reading.operands[0]), 0), before=before, origins=node)
        arguments = dict(named_arguments(node)) | dict(reading.changes)
        for one in reading.operands:
            value: Any = self._given(one)
            if one.place is not None:
                value = [value if place == one.place else each for place, each in enumerate(arguments[one.name])]
            arguments[one.name] = value
        args, kwargs = split_arguments(underlying(target), arguments)
        return self._editor.call(target, args, kwargs, before=before, origins=node)

    def _given(self, operand: Operand) -> Node:
        """Return the band of an operand, padded."""
        part = self._part(operand.node, operand.band)
        if operand.padding is None:
            return part
        rank = first_value(operand.node).dim()
        pad = [0] * (2 * (rank - operand.band.dim))
        pad[-2:] = [operand.padding.before, operand.padding.after]
        args = (part, pad, operand.padding.value)
        return self._editor.call(_PAD, args, before=self._region.result, origins=operand.node)

    def _part(self, node: Node, band: Band) -> Node:
        """Return a band of a value: of the region, as far as it was computed, or from in front of it."""
        source, start, stop = node, 0, first_value(node).shape[band.dim]
        if node in self._made:
            held = self._readings[node].result
            source, start, stop = self._made[node], held.start, held.stop
        if (start, stop) == (band.start, band.stop):
            return source
        key = (node, band)
        if key not in self._slices:
            args = (source, band.dim, band.start - start, band.stop - start)
            self._slices[key] = self._editor.call(_SLICE, args, before=self._region.result, origins=node)
        return self._slices[key]
