"""What patterns are compiled to: terms over operators, variables and literals, each with its place in the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

Operator: TypeAlias = Any
"""A torch overload, or an operator that exirkit defines."""


@dataclass(frozen=True)
class Place:
    """Where a term stands in its program: line from 1, characters before it, characters of it."""

    line: int = 1
    offset: int = 0
    length: int = 1


@dataclass(frozen=True)
class Variable:
    """A name with a type in `vars`; a repeated one is the same value everywhere."""

    name: str
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Symbol:
    """A size that types of variables name: `N` of `f32 [N, K]`."""

    name: str
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Anything:
    """`_`: whatever is there, and it does not matter."""

    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Literal:
    """A value that must be there, in type and value.

    Attributes:
        value: The value.
        is_default: It was not written: the argument was left out, and the schema says this.
    """

    value: Any
    is_default: bool = False
    place: Place = field(default=Place(), compare=False)

    def __hash__(self) -> int:
        return hash((type(self.value).__name__, repr(self.value), self.is_default))


@dataclass(frozen=True)
class Computed:
    """A value that follows from other names: `A + C`, `shape(x)`, `rank(x) - 1`.

    Attributes:
        text: The expression.
        compute: Computes it.
        needs: Names that it needs.
    """

    text: str
    compute: Any = field(compare=False)
    needs: frozenset[str] = frozenset()
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Element:
    """The name of a comprehension in a pattern: the element of a list that is being matched.

    Attributes:
        name: The name.
        kind: What the list holds: `tensor`, `int`, `float` or `bool`.
    """

    name: str
    kind: str = "tensor"
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Each:
    """`f(x, p) for x in xs`: every element of a run in a list is of one form.

    Attributes:
        element: What each of them is; other variables in it are the same for all.
        names: Names that stand for something else in every element.
        lists: Variables that those are collected in, in the same order.
    """

    element: Term
    names: tuple[str, ...]
    lists: tuple[str, ...]
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Splat:
    """`*xs` in a list: any number of elements, bound to a name or not; all results of a call; or a comprehension."""

    name: str | None
    term: Call | Each | Parameter | Applied | None = None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a body of control flow; `*rest` of a body is a list of them.

    Attributes:
        name: As it is written.
        key: Name under which it is bound, which no rule can write.
    """

    name: str
    key: str
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Applied:
    """What a body computes from further values: `f(aten.relu.default(x), *rest)`, with `f` typed `body`.

    Attributes:
        function: The variable that stands for it.
        arguments: What it is given; nothing else of the body around may reach it.
        scope: Key of the body around.
    """

    function: Variable
    arguments: tuple[Term | Splat, ...]
    scope: str
    name: str | None = None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Body:
    """A body of control flow: `lambda x, *rest: [aten.relu.default(f(x, *rest))]`.

    Attributes:
        first: Parameters in front of `*rest`.
        rest: Parameter that stands for all others.
        last: Parameters behind it.
        result: What the body gives: a list, or one value.
        scope: Key of the body.
    """

    first: tuple[Parameter, ...]
    rest: Parameter | None
    last: tuple[Parameter, ...]
    result: Term
    scope: str
    place: Place = field(default=Place(), compare=False)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters in order."""
        return (*self.first, *(() if self.rest is None else (self.rest,)), *self.last)


@dataclass(frozen=True)
class Sequence:
    """A list, with at most one splat; around a comprehension there may be one on either side."""

    items: tuple[Term | Splat, ...]
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Call:
    """A call of an operator.

    Attributes:
        op: The operator.
        arguments: Terms by the names of the schema, defaults included; in the order of the schema.
        is_open: Arguments that were not written do not matter (`...`).
        name: Name that the result was assigned to.
    """

    op: Operator
    arguments: Mapping[str, Term]
    is_open: bool = False
    name: str | None = None
    place: Place = field(default=Place(), compare=False)

    def __hash__(self) -> int:
        return hash((str(self.op), self.name, len(self.arguments)))


@dataclass(frozen=True)
class OperatorCall:
    """A call of any operator of a family: `f(x, *rest)`, with `f` typed `op in unary_pointwise`.

    Attributes:
        variable: Name of the operator variable.
        arguments: Terms by place.
        rest: Name of the other arguments, if there may be any.
    """

    variable: str
    arguments: tuple[Term, ...]
    rest: str | None = None
    name: str | None = None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Item:
    """One result of a call with several: `t[i]`."""

    base: Call
    index: int
    name: str | None = None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Rest:
    """All results of a call from one on: `_, *others = call`; those before are used by nothing else."""

    base: Call
    start: int
    name: str | None = None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Alternatives:
    """One of several terms; `name.alt` is the tag of the one that matched."""

    branches: tuple[tuple[str, Term], ...]
    name: str | None = None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Optional:
    """A call that may be missing: then its first argument replaces it, and its other variables are none."""

    inner: Call
    name: str | None = None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Through:
    """Any number of calls with one tensor argument, of the given operators, on the way to a term."""

    inner: Term
    ops: tuple[Operator, ...]
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class EveryUser:
    """All users of a value, each of one form: `*[f(u, k) for u, k in zip(users(d), ks)]`.

    Attributes:
        element: What each of them is.
        user: Name that stands for the value in it.
        names: Names that stand for something else in every element.
        lists: Variables that those are collected in, in the order of the users.
        of: The value.
        is_some: Users of other forms are left alone.
    """

    element: Term
    user: str
    names: tuple[str, ...]
    lists: tuple[str, ...]
    of: Term
    is_some: bool = False
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Chain:
    """Any number of calls with one tensor argument, of the given operators, on a value: `v = chain(l, [ops])`.

    Attributes:
        inner: Where it begins.
        ops: Operators of the links.
        is_private: Nothing else uses the values in between, the first one included.
        name: Name of the last of them.
    """

    inner: Term
    ops: tuple[Operator, ...]
    is_private: bool = False
    name: str | None = None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Attributed:
    """A call, or a tensor, with an attribute: `y @ act(lo, hi)`.

    Attributes:
        inner: The call.
        attribute: What the book declares.
        fields: Terms of the fields, in the order of the declaration.
        is_optional: It may be missing; its names are none then.
    """

    inner: Term
    attribute: Any
    fields: Mapping[str, Term]
    is_optional: bool = False
    place: Place = field(default=Place(), compare=False)

    def __hash__(self) -> int:
        return hash((self.attribute.name, self.inner))

    @property
    def name(self) -> str | None:
        """Name that the result was assigned to."""
        return None if isinstance(self.inner, Variable) else getattr(self.inner, "name", None)


Term: TypeAlias = (
    Variable
    | Symbol
    | Element
    | Anything
    | Literal
    | Computed
    | Sequence
    | Call
    | OperatorCall
    | Item
    | Alternatives
    | Optional
    | Through
    | Chain
    | Attributed
    | EveryUser
    | Parameter
    | Applied
    | Body
    | Rest
)


Part: TypeAlias = Term | Splat | Each
"""A term, or what stands in a list for several."""


@dataclass(frozen=True)
class Pattern:
    """A whole pattern.

    Attributes:
        roots: Terms whose values are replaced.
        is_variadic: The one root is a call, and all its results are roots (`return *parts,`).
        named: Terms by the names they were assigned to, in order of the text.
        kind: What the roots are: `calls`, or a value of the program, as `stored`, which is the one variable then.
    """

    roots: tuple[Term, ...]
    is_variadic: bool
    named: Mapping[str, Term]
    kind: str = "calls"

    @cached_property
    def terms(self) -> tuple[Part, ...]:
        """All terms, as `walk` yields them, root by root."""
        return tuple(term for root in self.roots for term in walk(root))

    @property
    def calls(self) -> list[Call]:
        """The calls among the terms."""
        return [term for term in self.terms if isinstance(term, Call)]


def children(term: Part) -> Iterator[Part]:
    """Yield the terms right below a term."""
    match term:
        case Call():
            yield from term.arguments.values()
        case OperatorCall() | Sequence():
            yield from term.items if isinstance(term, Sequence) else term.arguments
        case Item() | Rest():
            yield term.base
        case Alternatives():
            for _, branch in term.branches:
                yield branch
        case Optional() | Through() | Chain() | Attributed():
            yield term.inner
            yield from term.fields.values() if isinstance(term, Attributed) else ()
        case Splat(term=Call() | Each() | Parameter() | Applied() as inner):
            yield inner
        case Applied() | Body():
            yield from (term.function, *term.arguments) if isinstance(term, Applied) else (term.result,)
        case Each() | EveryUser():
            yield from (term.element, term.of) if isinstance(term, EveryUser) else (term.element,)


def walk(term: Part) -> Iterator[Part]:
    """Yield a term and all below it; one that is reached twice is yielded twice."""
    pending = [term]
    while pending:
        one = pending.pop()
        yield one
        pending += reversed(list(children(one)))


def optional_names(term: Optional) -> set[str]:
    """Return the variables of an optional call that are none when it is missing."""
    passing, *others = term.inner.arguments.values()
    stays = {one.name for one in walk(passing) if isinstance(one, Variable)}
    return {one.name for other in others for one in walk(other) if isinstance(one, Variable)} - stays


def renamed(term: Term, name: str) -> Term:
    """Return a term that knows the name it was assigned to; what is bound to a name already keeps that."""
    if isinstance(term, Attributed):
        return replace(term, inner=renamed(term.inner, name))
    if isinstance(term, Call | Item | Alternatives | Optional | OperatorCall | Chain) and term.name is None:
        return replace(term, name=name)
    return term
