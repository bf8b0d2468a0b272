"""Types of tensors, of lists of tensors, and of shapes that have a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from exirkit.ir import value_of
from exirkit.patterns.types.literals import DtypeClass, Interval, ValueSet, fits

from .scanner import QUALIFIERS, Token, TypeScanner
from .shapes import compile_shape, match_shape
from .sizes import BroadcastDim, Dims, SizeExpression, dims_text, equal
from .variable import Extension, Matcher, Variable, pending

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
        count: How many; None for any number from one on.
    """

    EXAMPLES: ClassVar = {
        "list of f32 [*S]": "any number of tensors, all of the same sizes",
        "list 2 of f32 [N, _]": "two tensors with the same N",
    }
    TITLE = "List of tensors"
    IS_SHAPED = True

    element: TensorVariable
    count: SizeExpression | None = None

    @classmethod
    def parse_elements(cls, scanner: TypeScanner, count: SizeExpression | None) -> TensorListVariable:
        """Parse the type of the tensors, after `list of`."""
        return cls(name=scanner.variable, element=TensorVariable.parse_tensor(scanner), count=count)

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
        return f"list of {self.element}" if self.count is None else f"list {self.count} of {self.element}"

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
            if not isinstance(value, list | tuple) or not value:
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
