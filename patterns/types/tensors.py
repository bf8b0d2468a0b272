"""Types of tensors, of lists of tensors, and of shapes that have a name; shapes are matched here."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar

import torch

from exirkit.ir import value_of
from exirkit.patterns.types.literals import DtypeClass, Interval, ValueSet, fits
from exirkit.patterns.types.scanner import QUALIFIERS, Token, TypeScanner
from exirkit.patterns.types.sizes import (
    AnyDim,
    BroadcastDim,
    Dims,
    Name,
    Number,
    SequenceDim,
    Size,
    SizeDim,
    SizeExpression,
    dims_text,
    equal,
    is_size,
    solutions,
)
from exirkit.patterns.types.variable import Extension, Links, Matcher, Variable, pending

TensorMaker = Callable[["TensorVariable", torch.dtype, tuple[int | torch.SymInt, ...]], torch.Tensor]
"""Makes a tensor of a type with a dtype and sizes."""


@dataclass(frozen=True, kw_only=True)
class TensorVariable(Variable):
    """A tensor.

    Attributes:
        qualifiers: What it is in the graph, a part of `QUALIFIERS`, in that order.
        dtypes: Dtypes that it may have.
        dims: Signature of its shape; None for any shape.
        domain: Values of its elements; None for any.
        layouts: Whether trials give it every order of dims in memory; a match never asks for the order.
    """

    EXAMPLES: ClassVar = {
        "f32 [N, K]": "two dims; their sizes have the names N and K in the whole rule",
        "f32 [*B, 3, _]": "any number of dims, whose sizes are B; a dim of size 3; a dim of any size",
        "f32 [2*K, N+1]": "sizes computed from others",
        "f16|f32 [N]": "one of several dtypes",
        "f* [*S]": "a class of dtypes",
        "=x [*S]": "the dtype of x",
        "any": "any dtype, any shape",
        "num [~S]": "broadcasts to S, or with the other tensors that have ~S",
        "const f32 [N, K]": "with a qualifier, see below",
        "f32+ [C]": "elements that are not negative",
        "f32 [C] in [0, 6]": "elements within bounds",
        "num {0, 1} [*S]": "elements that are one of these",
        "f32 layouts [N, C, H, W]": "trials try every order of dims in memory; a match never asks for the order",
        "f32 [N] | none": "an argument that may be missing",
    }
    IS_SHAPED = True

    qualifiers: tuple[str, ...] = ()
    dtypes: DtypeClass
    dims: Dims | None = None
    domain: Interval | ValueSet | None = None
    layouts: bool = False

    @classmethod
    def parse_tensor(cls, scanner: TypeScanner) -> TensorVariable:
        """Parse qualifiers, dtypes, domain, layouts and dims."""
        qualifiers: set[str] = set()
        while scanner.token.text in QUALIFIERS:
            qualifiers.add(scanner.take().text)
        # A qualifier alone does not restrict the dtype.
        bare = bool(qualifiers) and (scanner.token.kind == "end" or scanner.token.text in ("[", "|"))
        dtypes = DtypeClass(("any",)) if bare else scanner.dtype_class()
        domain: Interval | ValueSet | None = Interval(0, None) if scanner.accept("+") else None
        if scanner.token.text == "{":
            domain = scanner.value_set()
        domain = scanner.domain() or domain
        layouts = scanner.accept("layouts") is not None
        dims = scanner.dims() if scanner.token.text == "[" else None
        layouts = scanner.accept("layouts") is not None or layouts
        domain = scanner.domain() or domain
        ordered = tuple(one for one in QUALIFIERS if one in qualifiers)
        return cls(name=scanner.variable, qualifiers=ordered, dtypes=dtypes, dims=dims, domain=domain, layouts=layouts)

    @property
    def signature(self) -> Dims:
        """Dims in the type."""
        return self.dims or ()

    @property
    def same_dtype_as(self) -> str | None:
        """The variable whose dtype it has."""
        return self.dtypes.same_as

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        words = [*self.qualifiers, str(self.dtypes)]
        if isinstance(self.domain, ValueSet):
            words.append(str(self.domain))
        elif self.domain is not None and self.domain == Interval(0, None):
            words[-1] += "+"
        words += ["layouts"] if self.layouts else []
        words += [] if self.dims is None else [dims_text(self.dims)]
        if isinstance(self.domain, Interval) and self.domain != Interval(0, None):
            words.append(str(self.domain))
        return " ".join(words)

    def matcher(self) -> Matcher:
        """Compile the matcher; elements of a fake tensor are not compared."""
        by_shape = compile_shape(self, self.dims)
        members, same_as, domain = self.dtypes.member_set, self.dtypes.same_as, self.domain
        if same_as is None and domain is None:

            def plain(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
                if not isinstance(value, torch.Tensor) or value.dtype not in members:
                    return ()
                return by_shape(value, names)

            return plain

        def match(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
            value = value_of(value)
            if not isinstance(value, torch.Tensor):
                return ()
            wanted = None if same_as is None else _dtype_of(names.get(same_as))
            if same_as is not None and wanted is None:
                return (pending(self, value),)
            if value.dtype not in members and value.dtype != wanted:
                return ()
            if domain is not None and _has_elements(value) and not domain.holds_for(value):
                return ()
            return by_shape(value, names)

        return match

    def dtype_options(self) -> tuple[torch.dtype, ...]:
        """Return the dtypes that have at least one value of the domain."""
        members = self.dtypes.members
        if isinstance(self.domain, ValueSet):
            numbers = self.domain.numbers
            members = tuple(dtype for dtype in members if any(fits(number, dtype) for number in numbers)) or members
        return members


@dataclass(frozen=True, kw_only=True)
class TensorListVariable(Variable):
    """A list of tensors, all of one type: names in it stand for the same sizes in every tensor.

    Attributes:
        element: Type of the tensors.
        count: How many; None for any number from `least` on.
        least: How many there are at least where the number is open: 1 or 0.
    """

    EXAMPLES: ClassVar = {
        "list of f32 [*S]": "any number of tensors from one on, all of the same sizes",
        "list from 0 of f32 [*S]": "any number of tensors, or none",
        "list 2 of f32 [N, _]": "two tensors with the same N",
    }
    TITLE = "List of tensors"
    IS_SHAPED = True

    element: TensorVariable
    count: SizeExpression | None = None
    least: int = 1

    @classmethod
    def parse_elements(cls, scanner: TypeScanner, count: SizeExpression | None, least: int = 1) -> TensorListVariable:
        """Parse the type of the tensors, after `list of`."""
        return cls(name=scanner.variable, element=TensorVariable.parse_tensor(scanner), count=count, least=least)

    @property
    def signature(self) -> Dims:
        """Dims of the elements."""
        return self.element.signature

    @property
    def expressions(self) -> tuple[object, ...]:
        """The count."""
        return (self.count,)

    @property
    def same_dtype_as(self) -> str | None:
        """The variable whose dtype the elements have."""
        return self.element.same_dtype_as

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        if self.count is not None:
            return f"list {self.count} of {self.element}"
        return f"list of {self.element}" if self.least else f"list from 0 of {self.element}"

    def matcher(self) -> Matcher:
        """Compile the matcher."""
        element = self.element.match

        def extend(values: list[Any], at: int, names: dict[str, Any], found: Extension) -> Iterator[Extension]:
            if at == len(values):
                yield found
                return
            for more in element(values[at], names):
                yield from extend(values, at + 1, {**names, **more}, {**found, **more})

        def match(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
            if not isinstance(value, list | tuple) or len(value) < self.least:
                return
            if self.count is not None:
                count = self.count.evaluate(names)
                if count is None:
                    yield pending(self, value)
                    return
                if not equal(count, len(value)):
                    return
            yield from extend([value_of(one) for one in value], 0, dict(names), {})

        return match

    def dtype_options(self) -> tuple[torch.dtype, ...]:
        """Return the dtypes of the elements."""
        return self.element.dtype_options()


@dataclass(frozen=True, kw_only=True)
class DimsVariable(Variable):
    """A name for a shape: `~S` and `*S` of other variables mean it."""

    KEYWORDS = ("dims",)
    EXAMPLES: ClassVar = {
        "dims [*D]": "with `~S` of tensors and `S: dims [*D]`, S is the shape to which they broadcast",
        "dims [P, Q]": "a shape of two dims",
    }
    IS_SHAPED = True

    dims: Dims

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse dims."""
        start = scanner.token
        dims = scanner.dims()
        if any(isinstance(dim, BroadcastDim) for dim in dims):
            scanner.fail("a named shape cannot contain ~S", start, hint="write sizes, or *S")
        return cls(name=scanner.variable, dims=dims)

    @property
    def signature(self) -> Dims:
        """The dims."""
        return self.dims

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return f"dims {dims_text(self.dims)}"

    def matcher(self) -> Matcher:
        """Compile the matcher."""

        def match(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
            if not isinstance(value, list | tuple):
                return ()
            sizes = tuple(value_of(one) for one in value)
            known = {**names, self.name: sizes}
            return match_shape(self, self.dims, sizes, known, value, own={self.name: self.dims})

        return match


def _dtype_of(value: object) -> torch.dtype | None:
    value = value_of(value)
    if isinstance(value, torch.dtype):
        return value
    return value.dtype if isinstance(value, torch.Tensor) else None


def _has_elements(value: torch.Tensor) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.device.type == "cpu"


# Shapes against signatures `[*B, 2*K, ~S, _]`: most have one sequence at most and plain names, and need no search

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
