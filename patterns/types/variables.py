"""The types of a rule's variables: what one string such as `const f32 [*B, K] | none` says.

`str()` of a type is its canonical text, from which the parser makes an equal one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .dtypes import DtypeClass
from .literals import Choice, Interval, Reference, ValueSet
from .operators import families_contain, family_members
from .sizes import Dims, SizeExpression, bound_names, dims_text, mentioned_names

QUALIFIERS = ("const", "param", "buffer", "mutable", "input", "shared")
"""What a tensor of the graph can be required to be, in the order of the canonical text."""


@dataclass(frozen=True)
class Links:
    """What the other variables of the rule say about the names that a type mentions.

    Attributes:
        shapes: Variables `dims [P, Q]`, by name, that give these names, or mention the sizes that the type binds.
        numbers: Variables of numbers that stand as sizes in the type.
    """

    shapes: Mapping[str, DimsVariable] = field(default_factory=dict)
    numbers: Mapping[str, Variable] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A typed wildcard.

    Attributes:
        name: Its name in the rule.
        allows_none: Whether the argument may be missing.
        links: What other variables say; set by `link_variables`.
    """

    name: str
    allows_none: bool = False
    links: Links | None = field(default=None, compare=False, repr=False)

    @property
    def depends_on(self) -> frozenset[str]:
        """Names of other variables, or of sizes, that the type refers to but does not bind."""
        return frozenset()

    @property
    def binds(self) -> tuple[str, ...]:
        """Names of sizes that a value gives: N, and B of `*B`."""
        return ()

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.text} | none" if self.allows_none else self.text


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

    qualifiers: tuple[str, ...] = ()
    dtypes: DtypeClass
    dims: Dims | None = None
    domain: Interval | ValueSet | None = None
    layouts: bool = False

    @property
    def depends_on(self) -> frozenset[str]:
        """Shapes that it broadcasts to, names in its dims that it does not bind, the tensor whose dtype it has."""
        found = mentioned_names(self.dims or ()) - frozenset(self.binds)
        return found if self.dtypes.same_as is None else found | {self.dtypes.same_as}

    @property
    def binds(self) -> tuple[str, ...]:
        """Names of sizes in its dims."""
        return bound_names(self.dims or ())

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
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


@dataclass(frozen=True, kw_only=True)
class TensorListVariable(Variable):
    """A list of tensors, all of one type: names in it stand for the same sizes in every tensor.

    Attributes:
        element: Type of the tensors.
        count: How many; None for any number from one on.
    """

    element: TensorVariable
    count: SizeExpression | None = None

    @property
    def depends_on(self) -> frozenset[str]:
        """What the type of the elements and the count refer to."""
        return self.element.depends_on | (self.count.names() if self.count else frozenset())

    @property
    def binds(self) -> tuple[str, ...]:
        """Names of sizes in the dims of the elements."""
        return self.element.binds

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        return f"list of {self.element}" if self.count is None else f"list {self.count} of {self.element}"


@dataclass(frozen=True, kw_only=True)
class IntVariable(Variable):
    """An integer, between bounds that belong to it; a bool is not one."""

    low: SizeExpression | None = None
    high: SizeExpression | None = None

    @property
    def depends_on(self) -> frozenset[str]:
        """Names in the bounds."""
        return _names(self.low) | _names(self.high)

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        return "int" + bounds_text(self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class FloatVariable(Variable):
    """A float, between bounds that belong to it; their roundings to float32 count as the bounds."""

    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        return "float" + bounds_text(self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class ScalarVariable(Variable):
    """A number of any type: int, float or bool."""

    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        return "scalar" + bounds_text(self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class BoolVariable(Variable):
    """True or False."""

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        return "bool"


@dataclass(frozen=True, kw_only=True)
class StringVariable(Variable):
    """A string, one of some if any are given."""

    choices: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        return f"str in {', '.join(map(repr, self.choices))}" if self.choices else "str"


@dataclass(frozen=True, kw_only=True)
class ListVariable(Variable):
    """A list of numbers.

    Attributes:
        element: `int`, `float` or `bool`.
        count: How many; None for any number.
        low: Least element.
        high: Greatest element.
    """

    element: str = "int"
    count: SizeExpression | None = None
    low: SizeExpression | float | None = None
    high: SizeExpression | float | None = None

    @property
    def depends_on(self) -> frozenset[str]:
        """Names in the count and the bounds."""
        return _names(self.count) | _names(self.low) | _names(self.high)

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        count = "" if self.count is None else f" {self.count}"
        return f"{self.element}s{count}{bounds_text(self.low, self.high)}"


@dataclass(frozen=True, kw_only=True)
class ShapeVariable(Variable):
    """A list of sizes that are not negative."""

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        return "shape"


@dataclass(frozen=True, kw_only=True)
class ChoiceVariable(Variable):
    """One of some values, of which some may be those of other variables."""

    choices: tuple[Choice, ...]

    @property
    def depends_on(self) -> frozenset[str]:
        """Variables whose values are among the choices."""
        return frozenset(one.name for one in self.choices if isinstance(one, Reference))

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        return f"one_of {', '.join(map(str, self.choices))}"


@dataclass(frozen=True, kw_only=True)
class AboutVariable(Variable):
    """A list or number that is about the dims of a tensor or a shape."""

    of: str

    _word = ""

    @property
    def depends_on(self) -> frozenset[str]:
        """The tensor or shape."""
        return frozenset((self.of,))

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        return f"{self._word} of {self.of}"


@dataclass(frozen=True, kw_only=True)
class PermutationVariable(AboutVariable):
    """A permutation of the dims, counted from the front."""

    _word = "perm"


@dataclass(frozen=True, kw_only=True)
class AxesVariable(AboutVariable):
    """Some of the dims, counted from the front, each at most once, in any order."""

    _word = "axes"


@dataclass(frozen=True, kw_only=True)
class AxisVariable(AboutVariable):
    """One of the dims, counted from the front or from the back; tensors without dims have none."""

    _word = "axis"


@dataclass(frozen=True, kw_only=True)
class FactorsVariable(AboutVariable):
    """A shape with as many elements."""

    _word = "factors"


@dataclass(frozen=True, kw_only=True)
class PartitionVariable(AboutVariable):
    """Sizes of at least one part that a dim is split into, none of them negative.

    Attributes:
        at: The dim: an integer, or the name of a variable.
    """

    at: int | str = 0

    @property
    def depends_on(self) -> frozenset[str]:
        """The tensor or shape, and the variable of the dim."""
        return frozenset((self.of, self.at)) if isinstance(self.at, str) else frozenset((self.of,))

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        return f"partition of {self.of} at {self.at}"


@dataclass(frozen=True, kw_only=True)
class DimsVariable(Variable):
    """A name for a shape: `~S` and `*S` of other variables mean it."""

    dims: Dims

    @property
    def depends_on(self) -> frozenset[str]:
        """Names in the shape that it cannot bind."""
        return mentioned_names(self.dims) - frozenset(self.binds)

    @property
    def binds(self) -> tuple[str, ...]:
        """Names of sizes in the shape."""
        return bound_names(self.dims)

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        return f"dims {dims_text(self.dims)}"


@dataclass(frozen=True, kw_only=True)
class DtypeVariable(Variable):
    """A dtype, of a class if one is given."""

    dtypes: DtypeClass | None = None

    @property
    def depends_on(self) -> frozenset[str]:
        """The tensor whose dtype it is, for `dtype in =x`."""
        return frozenset((self.dtypes.same_as,)) if self.dtypes and self.dtypes.same_as else frozenset()

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        return "dtype" if self.dtypes is None else f"dtype in {self.dtypes}"


@dataclass(frozen=True, kw_only=True)
class OperatorVariable(Variable):
    """An operator of some families of the catalogue, or one of some that are named.

    Attributes:
        families: Names of families (`unary_pointwise`), and of operators (`aten.relu.default`).
    """

    families: tuple[str, ...]

    @property
    def text(self) -> str:
        """The canonical text without `| none`."""
        return f"op in {', '.join(self.families)}"

    def operators(self) -> tuple[Any, ...]:
        """Return the operators, without edge handles, in the order of the catalogue."""
        return family_members(self.families)

    def admits_operator(self, op: object) -> bool:
        """Whether an operator is one of them."""
        return families_contain(self.families, op)


def bounds_text(low: object, high: object) -> str:
    """Return ` in [low, high]`, or as much of it as there is."""
    if high is None:
        return "" if low is None else f" >= {low}"
    return f" <= {high}" if low is None else f" in [{low}, {high}]"


def _names(expression: object) -> frozenset[str]:
    return expression.names() if isinstance(expression, SizeExpression) else frozenset()
