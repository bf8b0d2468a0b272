"""Shapes against signatures: all ways to bind the names of `[*B, 2*K, ~S, _]`.

Most signatures have at most one sequence and plain names; those are matched without search.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from exirkit.ir import value_of

from .sizes import (
    AnyDim,
    BroadcastDim,
    Dims,
    Name,
    Number,
    SequenceDim,
    Size,
    SizeDim,
    SizeExpression,
    equal,
    is_size,
    solutions,
)
from .variable import Extension, Links, Matcher, Variable, pending

_Deferred = tuple[tuple[SizeExpression, Size], ...]
_NO_LINKS = Links()


def compile_shape(variable: Variable, dims: Dims | None) -> Matcher:
    """Compile the part of the matcher of a tensor type that is about its shape."""
    if dims is None:
        return lambda value, names: ({},)
    if not _is_simple(variable, dims):
        return lambda value, names: match_shape(variable, dims, tuple(value.shape), names, value)
    at = next((index for index, dim in enumerate(dims) if isinstance(dim, SequenceDim)), None)
    fixed: list[tuple[int, int | str]] = []
    for index, dim in enumerate(dims):
        if isinstance(dim, SizeDim):
            place = index if at is None or index < at else index - len(dims)
            fixed.append((place, dim.size.value if isinstance(dim.size, Number) else str(dim.size)))
    if at is None:
        return _fixed_rank(len(dims), tuple(fixed))
    sequence = dims[at]
    assert isinstance(sequence, SequenceDim)
    return _with_sequence(sequence.name, at, len(dims) - 1 - at, tuple(fixed))


def _is_simple(variable: Variable, dims: Dims) -> bool:
    """Whether the only way to match a shape is found without search."""
    if variable.links is not None:
        return False
    plain = [dim for dim in dims if not isinstance(dim, SequenceDim)]
    if len(dims) - len(plain) > 1:
        return False
    return all(isinstance(dim, AnyDim) or _is_plain_size(dim) for dim in plain)


def _is_plain_size(dim: object) -> bool:
    return isinstance(dim, SizeDim) and isinstance(dim.size, Name | Number)


def _fixed_rank(rank: int, fixed: tuple[tuple[int, int | str], ...]) -> Matcher:
    def match(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
        sizes = value.shape
        if len(sizes) != rank:
            return ()
        found: Extension = {}
        return (found,) if _sizes_agree(fixed, sizes, names, found) else ()

    return match


def _with_sequence(name: str | None, before: int, after: int, fixed: tuple[tuple[int, int | str], ...]) -> Matcher:
    def match(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
        sizes = value.shape
        end = len(sizes) - after
        if end < before:
            return ()
        found: Extension = {}
        if fixed and not _sizes_agree(fixed, sizes, names, found):
            return ()
        if name is None:
            return (found,)
        known = names.get(name)
        if known is None:
            part = tuple(sizes[before:end])
            found[name] = part
            if next(parts_of(name, names), None) is not None and not broadcasts(name, None, {**names, name: part}):
                return ()
            return (found,)
        return (found,) if sequence_agrees(known, sizes[before:end]) else ()

    return match


def _sizes_agree(
    fixed: Iterable[tuple[int, int | str]], sizes: Any, names: Mapping[str, Any], found: Extension
) -> bool:
    for place, wanted in fixed:
        size = sizes[place]
        if type(wanted) is str:
            known = names.get(wanted)
            if known is None:
                known = found.get(wanted)
                if known is None:
                    found[wanted] = size
                    continue
        else:
            known = wanted
        if known is size:
            continue
        if not equal(value_of(known), size):
            return False
    return True


# The general case


def match_shape(
    variable: Variable,
    dims: Dims,
    sizes: tuple[Any, ...],
    names: Mapping[str, Any],
    value: object,
    own: Mapping[str, Dims] = {},
) -> Iterator[Extension]:
    """Yield the names that a shape gives under a signature.

    Args:
        variable: The variable whose value it is.
        dims: The signature.
        sizes: The shape.
        names: What is bound.
        value: The value itself, kept where other names have to decide.
        own: Shapes that the variable itself names.
    """
    matcher = _ShapeMatcher(variable, names, value, own)
    if not all(map(is_size, sizes)):
        return
    for found, deferred in matcher.walk(dims, 0, sizes, {}, ()):
        yield from matcher.finish(found, deferred, dims)


def sequence_agrees(known: object, part: Any) -> bool:
    """Whether a part of a shape is what a name is bound to."""
    known = value_of(known)
    if not isinstance(known, list | tuple) or len(known) != len(part):
        return False
    return all(one is other or equal(one, other) for one, other in zip(known, part, strict=True))


class _ShapeMatcher:
    def __init__(self, variable: Variable, names: Mapping[str, Any], value: object, own: Mapping[str, Dims]) -> None:
        self.variable = variable
        self.names = names
        self.value = value
        self.own = own
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
            if name in found and number.decide(found[name], scope) is False:
                return False
        return True

    def _shapes_hold(self, found: Extension, scope: Mapping[str, Any], dims: Dims) -> bool:
        asked: dict[str, Dims | None] = {}
        for dim in dims:
            if isinstance(dim, BroadcastDim) or (isinstance(dim, SequenceDim) and dim.name in found):
                asked[dim.name or ""] = None
        asked.update(self.own)
        for name, shape in self.links.shapes.items():
            asked[name] = shape.dims
        return all(broadcasts(name, signature, scope) for name, signature in asked.items())


# Broadcasting


def part_key(shape: str, variable: str, place: int) -> str:
    """Return the key under which bindings keep the part of a tensor's shape that `~S` stands for."""
    return f"~{shape}.{variable}.{place}"


def parts_of(shape: str, names: Mapping[str, Any]) -> Iterator[Sequence[Size]]:
    """Yield what tensors matched so far have for `~S`."""
    prefix = f"~{shape}."
    for key in names:
        if key.startswith(prefix):
            yield names[key]


def broadcasts(shape: str, dims: Dims | None, names: Mapping[str, Any]) -> bool:
    """Whether everything for `~S` is known to broadcast.

    Args:
        shape: The name S.
        dims: Its signature, if a variable gives one.
        names: What is bound.
    """
    parts = list(parts_of(shape, names))
    if not parts:
        return True
    known = value_of(names.get(shape))
    if isinstance(known, list | tuple):
        return all(_fits(part, known) for part in parts)
    if dims is None or not all(isinstance(dim, SizeDim) for dim in dims):
        return _fit_each_other(parts)
    targets = [dim.size.evaluate(names) for dim in dims if isinstance(dim, SizeDim)]
    return all(_fits(part, targets) for part in parts) and _fit_each_other(parts)


def _fits(part: Sequence[Size], target: Sequence[Size | None]) -> bool:
    if len(part) > len(target):
        return False
    for size, wanted in zip(reversed(part), reversed(target), strict=False):
        if wanted is not None and not equal(size, 1) and not equal(size, wanted):
            return False
    return True


def _fit_each_other(parts: Sequence[Sequence[Size]]) -> bool:
    if len(parts) == 1:
        return True
    for column in zip_longest(*(reversed(part) for part in parts), fillvalue=1):
        widest: Size = 1
        for size in column:
            if equal(size, 1) or equal(size, widest):
                continue
            if not equal(widest, 1):
                return False
            widest = size
    return True
