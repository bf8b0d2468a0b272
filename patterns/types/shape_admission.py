"""Shapes against signatures in general: several sequences, arithmetic, broadcasting; all ways are found."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

from .broadcasting import broadcasts, part_key
from .scalar_admission import decide_scalar, pending
from .sizes import (
    AnyDim,
    BroadcastDim,
    Dims,
    SequenceDim,
    Size,
    SizeDim,
    SizeExpression,
    equal,
    is_size,
    recorded_value,
    solutions,
)
from .variables import DimsVariable, Links, Variable

Extension = dict[str, object]
_Deferred = tuple[tuple[SizeExpression, Size], ...]
_NO_LINKS = Links()


def match_shape(
    variable: Variable, dims: Dims, sizes: tuple[Any, ...], names: Mapping[str, Any], value: object
) -> Iterator[Extension]:
    """Yield the names that a shape gives under a signature.

    Args:
        variable: The variable whose value it is.
        dims: The signature.
        sizes: The shape.
        names: What is bound.
        value: The value itself, kept where other names have to decide.
    """
    matcher = _ShapeMatcher(variable, names, value)
    if not all(map(is_size, sizes)):
        return
    for found, deferred in matcher.walk(dims, 0, sizes, {}, ()):
        yield from matcher.finish(found, deferred, dims)


def sequence_agrees(known: object, part: Any) -> bool:
    """Whether a part of a shape is what a name is bound to."""
    known = recorded_value(known)
    if not isinstance(known, list | tuple) or len(known) != len(part):
        return False
    return all(one is other or equal(one, other) for one, other in zip(known, part, strict=True))


class _ShapeMatcher:
    def __init__(self, variable: Variable, names: Mapping[str, Any], value: object) -> None:
        self.variable = variable
        self.names = names
        self.value = value
        self.links = variable.links or _NO_LINKS

    def walk(
        self, dims: Dims, at: int, sizes: tuple[Any, ...], found: Extension, deferred: _Deferred
    ) -> Iterator[tuple[Extension, _Deferred]]:
        """Match the dims from one on against all sizes that are left."""
        if at == len(dims):
            if not sizes:
                yield found, deferred
            return
        dim = dims[at]
        if isinstance(dim, SequenceDim | BroadcastDim):
            shortest = sum(isinstance(other, SizeDim | AnyDim) for other in dims[at + 1 :])
            is_last = len(dims) - at - 1 == shortest
            longest = len(sizes) - shortest
            for length in range(longest if is_last else 0, longest + 1):
                for more in self._several(dim, at, sizes[:length], found):
                    yield from self.walk(dims, at + 1, sizes[length:], {**found, **more}, deferred)
        elif sizes:
            if isinstance(dim, AnyDim):
                yield from self.walk(dims, at + 1, sizes[1:], found, deferred)
                return
            ways = solutions(dim.size, sizes[0], ChainMap(found, self.names))  # type: ignore[arg-type]
            if ways is None:
                yield from self.walk(dims, at + 1, sizes[1:], found, (*deferred, (dim.size, sizes[0])))
                return
            for way in ways:
                yield from self.walk(dims, at + 1, sizes[1:], {**found, **way}, deferred)

    def _several(
        self, dim: SequenceDim | BroadcastDim, at: int, part: tuple[Any, ...], found: Extension
    ) -> Iterator[Extension]:
        if dim.name is None:
            yield {}
        elif isinstance(dim, BroadcastDim):
            yield {part_key(dim.name, self.variable.name, at): part}
        elif dim.name in found or self.names.get(dim.name) is not None:
            known = found[dim.name] if dim.name in found else self.names[dim.name]
            if sequence_agrees(known, part):
                yield {}
        elif dim.name in self.links.shapes:
            shape = self.links.shapes[dim.name]
            for more, deferred in self.walk(shape.dims, 0, part, found, ()):
                if not deferred:
                    yield {**more, dim.name: part}
        else:
            yield {dim.name: part}

    def finish(self, found: Extension, deferred: _Deferred, dims: Dims) -> Iterator[Extension]:
        """Check what depends on several dims, or on other variables."""
        for result, left in self._resolved(found, deferred):
            scope = ChainMap(result, self.names)  # type: ignore[arg-type]
            if not self._numbers_hold(result, scope) or not self._shapes_hold(result, scope, dims):
                continue
            yield {**result, **pending(self.variable, self.value)} if left else result

    def _resolved(self, found: Extension, deferred: _Deferred) -> Iterator[tuple[Extension, _Deferred]]:
        for index, (expression, size) in enumerate(deferred):
            ways = solutions(expression, size, ChainMap(found, self.names))  # type: ignore[arg-type]
            if ways is not None:
                rest = deferred[:index] + deferred[index + 1 :]
                for way in ways:
                    yield from self._resolved({**found, **way}, rest)
                return
        yield found, deferred

    def _numbers_hold(self, found: Extension, scope: Mapping[str, Any]) -> bool:
        for name, number in self.links.numbers.items():
            if name in found and decide_scalar(number)(found[name], scope) is False:
                return False
        return True

    def _shapes_hold(self, found: Extension, scope: Mapping[str, Any], dims: Dims) -> bool:
        asked: dict[str, Dims | None] = {}
        for dim in dims:
            if isinstance(dim, BroadcastDim) or (isinstance(dim, SequenceDim) and dim.name in found):
                asked[dim.name or ""] = None
        if isinstance(self.variable, DimsVariable):
            asked[self.variable.name] = self.variable.dims
        for name, shape in self.links.shapes.items():
            asked[name] = shape.dims
        return all(broadcasts(name, signature, scope) for name, signature in asked.items())
