"""Making the calls that compute a region band by band."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import Node

from exirkit.ir import GraphEditor, named_arguments, ops, split_arguments, underlying

from .bands import Band, Operand, Reading, first_value
from .regions import Region

_SLICE = ops.edge.aten.slice_copy.Tensor
_PAD = ops.edge.aten.constant_pad_nd.default
_CAT = ops.edge.aten.cat.default


def compute_in_bands(editor: GraphEditor, regions: Sequence[Region]) -> None:
    """Replace the calls of each region by calls for each band of its result, and join the results.

    Args:
        editor: Editor of the program in which the regions were found.
        regions: Regions in order; later ones may read the results of earlier ones.
    """
    joined: dict[Node, Node] = {}
    for region in regions:
        result = region.result
        parts = zip(region.bands, region.readings, strict=True)
        pieces = [_BandCalls(editor, result, readings, joined).made(band) for band, readings in parts]
        joined[result] = editor.call(_CAT, (pieces, region.bands[0].dim), before=result, origins=result)
        editor.replace(result, joined[result])
        editor.erase_unused(result)


class _BandCalls:
    """Makes the calls for one band.

    Args:
        editor: Editor of the program.
        result: The last call of the region, in front of which calls are made.
        readings: How the calls of the region are computed, in their order.
        joined: What has taken the place of the results of other regions.
    """

    def __init__(
        self, editor: GraphEditor, result: Node, readings: Mapping[Node, Reading], joined: Mapping[Node, Node]
    ) -> None:
        self._editor = editor
        self._result = result
        self._readings = readings
        self._joined = joined
        self._made: dict[Node, Node] = {}
        self._slices: dict[tuple[Node, Band], Node] = {}

    def made(self, band: Band) -> Node:
        """Make all calls and return the one whose result is a band of the region's."""
        for node in self._readings:
            self._made[node] = self._call(node)
        return self._part(self._result, band)

    def _call(self, node: Node) -> Node:
        before, reading = self._result, self._readings[node]
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
        return self._editor.call(_PAD, args, before=self._result, origins=operand.node)

    def _part(self, node: Node, band: Band) -> Node:
        """Return a band of a value: of the region, as far as it was computed, or from in front of it."""
        source, start, stop = self._joined.get(node, node), 0, first_value(node).shape[band.dim]
        if node in self._made:
            held = self._readings[node].result
            source, start, stop = self._made[node], held.start, held.stop
        if (start, stop) == (band.start, band.stop):
            return source
        key = (node, band)
        if key not in self._slices:
            args = (source, band.dim, band.start - start, band.stop - start)
            self._slices[key] = self._editor.call(_SLICE, args, before=self._result, origins=node)
        return self._slices[key]
