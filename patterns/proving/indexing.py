"""Meanings of operators that read at places that are elements, or that replace a part of a tensor."""

from __future__ import annotations

from typing import Any

import z3

from exirkit.patterns.proving.meanings import meaning
from exirkit.patterns.proving.movement import clamped_end, normal_dim, sized, slice_of
from exirkit.patterns.proving.paths import Path, UnsupportedError, integer
from exirkit.patterns.proving.tensors import Index, SymbolicTensor


def _indexed(path: Path, tensor: Any, at: int, places: Any) -> SymbolicTensor:
    """Return the rows of a tensor along a dim, at places that are a tensor of integers within it."""
    shape, inner = tensor.shape, places.shape

    def element(elements: Any, index: Index) -> Any:
        place = places.at(elements, tuple(index[at : at + len(inner)]))
        number = z3.BV2Int(place, True)
        return tensor.at(elements, (*index[:at], number, *index[at + len(inner) :]))

    return sized(path, tensor, [*shape[:at], *inner, *shape[at + 1 :]], element)


@meaning("aten.index_select.default", moves=True)
def index_select(path: Path, self: Any, dim: Any, index: Any) -> Any:
    """Rows along a dim."""
    if self.dim() == 0 or index.dim() != 1:
        raise UnsupportedError("index_select without dims")
    return _indexed(path, self, normal_dim(path, dim, self.dim()), index)


@meaning("aten.embedding.default", moves=True)
def embedding(path: Path, weight: Any, indices: Any, **_: Any) -> Any:
    """Rows of a matrix."""
    return _indexed(path, weight, 0, indices)


def _scattered(path: Path, tensor: Any, source: Any, at: int, is_inside: Any, place: Any, *, drops: bool) -> Any:
    def element(elements: Any, index: Index) -> Any:
        own = integer(index[at])
        inner = (*index[:at], *(() if drops else (place(own),)), *index[at + 1 :])
        return z3.If(is_inside(own), source.at(elements, inner), tensor.at(elements, index))

    return sized(path, tensor, tensor.shape, element)


@meaning("aten.select_scatter.default", moves=True)
def select_scatter(path: Path, self: Any, src: Any, dim: Any, index: Any) -> Any:
    """One index of a dim replaced."""
    if src.dtype != self.dtype:
        raise UnsupportedError("a scatter of another dtype")
    at = normal_dim(path, dim, self.dim())
    size, place = integer(self.shape[at]), integer(index)
    path.require(z3.And(-size <= place, place < size), "an index of the dim")
    place = z3.If(place < 0, place + size, place)
    for one, other in zip(src.shape, [*self.shape[:at], *self.shape[at + 1 :]], strict=True):
        path.require(integer(one) == integer(other), "a source of the size of the part")
    return _scattered(path, self, src, at, lambda own: own == place, None, drops=True)


@meaning("aten.slice_scatter.default", moves=True)
def slice_scatter(
    path: Path, self: Any, src: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    """A part of a dim replaced."""
    if src.dtype != self.dtype:
        raise UnsupportedError("a scatter of another dtype")
    at = normal_dim(path, dim, self.dim())
    part = slice_of(path, self, at, start, end, step)
    for one, other in zip(src.shape, part.shape, strict=True):
        path.require(integer(one) == integer(other), "a source of the size of the part")
    first = clamped_end(0 if start is None else start, self.shape[at])
    last = integer(self.shape[at]) if end is None else clamped_end(end, self.shape[at])
    each = integer(step)
    return _scattered(
        path, self, src, at,
        lambda own: z3.And(own >= first, own < last, (own - first) % each == 0), lambda own: (own - first) / each,
        drops=False,
    )  # fmt: skip
