"""What all types of rule variables have in common.

A type is one class: it parses its string (`parse`, `text`), decides which values it admits (`decide`, `match`), draws
values for trials (`draw`), and documents itself (`EXAMPLES`). The classes are in `tensors`, `scalars` and `lists`.

Bindings hold, besides names: under `~S.x.0` the part of x that must broadcast to S, and under `?x` a variable that
other names will decide, with its value; `?` states that there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from exirkit.ir import value_of
from exirkit.patterns.types.literals import Choice

from .scanner import Token, TypeScanner
from .sizes import Dims, SizeExpression, bound_names, mentioned_names

if TYPE_CHECKING:
    import torch

    from exirkit.patterns.types.values import ValueMaker

    from .tensors import DimsVariable

PENDING = "?"
"""Key of bindings that states that a variable waits for other names."""

Extension = dict[str, object]
Matcher = Callable[[Any, Mapping[str, Any]], Iterable[Extension]]
"""Yields, for a value and the bindings, the names to add for each way in which the value is of the type."""


@dataclass(frozen=True)
class Links:
    """What the other variables of the rule specify about the names that a type mentions.

    Attributes:
        shapes: Variables `dims [P, Q]`, by name, that give these names, or mention the sizes that the type binds.
        numbers: Variables of numbers that are sizes in the type.
    """

    shapes: Mapping[str, DimsVariable] = field(default_factory=dict)
    numbers: Mapping[str, Variable] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A typed wildcard.

    Attributes:
        name: Its name in the rule.
        allows_none: Whether the argument may be missing.
        links: What other variables specify; set by `link_variables`.
    """

    KEYWORDS: ClassVar[tuple[str, ...]] = ()
    """Words that its string may start with."""
    EXAMPLES: ClassVar[Mapping[str, str]] = {}
    """Strings of the type, with what each means; the reference page shows them."""
    TITLE: ClassVar[str] = ""
    IS_NUMBER: ClassVar[bool] = False
    """Whether a name of this type may be used as a size."""
    IS_SHAPED: ClassVar[bool] = False
    """Whether `len`, `rank`, `numel` and types such as `perm of x` may refer to it."""

    name: str
    allows_none: bool = False
    links: Links | None = field(default=None, compare=False, repr=False)

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse the rest of a string after its keyword."""
        return cls(name=scanner.variable)

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return self.KEYWORDS[0]

    def __str__(self) -> str:
        return f"{self.text} | none" if self.allows_none else self.text

    @cached_property
    def depends_on(self) -> frozenset[str]:
        """Names of other variables, or of sizes, that the type refers to but does not bind."""
        found = mentioned_names(self.signature) - frozenset(self.binds)
        found = found.union(*map(names_in, self.expressions))
        return found if self.same_dtype_as is None else found | {self.same_dtype_as}

    @cached_property
    def binds(self) -> tuple[str, ...]:
        """Names of sizes that a value gives: N, and B of `*B`."""
        return bound_names(self.signature)

    @property
    def signature(self) -> Dims:
        """Dims in the type."""
        return ()

    @property
    def expressions(self) -> tuple[object, ...]:
        """Bounds and counts, of which some may be sizes."""
        return ()

    @property
    def same_dtype_as(self) -> str | None:
        """The variable whose dtype it has."""
        return None

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool | None:
        """Whether a value is of the type; None if other names must be bound first.

        Args:
            value: The value; that of a node is the one recorded in its metadata.
            names: Bindings. A comparison that sizes do not decide counts as false.
        """
        raise NotImplementedError

    @cached_property
    def match(self) -> Matcher:
        """The compiled matcher of the type."""
        inner = self.matcher()
        if self.allows_none:
            return lambda value, names: ({},) if value is None else inner(value, names)
        return inner

    def matcher(self) -> Matcher:
        """Compile the matcher of a type whose values bind no names."""
        decide = self.decide

        def match(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
            known = decide(value_of(value), names)
            if known is None:
                return (pending(self, value),)
            return ({},) if known else ()

        return match

    def dtype_options(self) -> tuple[torch.dtype, ...]:
        """Return the dtypes that trials choose from."""
        return ()

    def choice_options(self) -> tuple[Choice, ...]:
        """Return the few values that the variable can have."""
        return ()

    def draw(self, maker: ValueMaker) -> Any:
        """Return a value for a trial.

        Raises:
            UnsolvedError: There is none for these tensors.
        """
        raise NotImplementedError

    def draw_symbolic(self, maker: ValueMaker) -> Any:
        """Return a value for an evaluation with symbolic sizes, which are never compared.

        Raises:
            UnsolvedError: There is none for these tensors.
        """
        return self.draw(maker)


def pending(variable: Variable, value: object) -> Extension:
    """Return the bindings that keep a value until other names decide about it."""
    return {PENDING: True, f"{PENDING}{variable.name}": (variable, value)}


def names_in(expression: object) -> frozenset[str]:
    """Return the names in a size; anything else has none."""
    return expression.names() if isinstance(expression, SizeExpression) else frozenset()


def bounds_text(low: object, high: object) -> str:
    """Return ` in [low, high]`, or as much of it as there is."""
    if high is None:
        return "" if low is None else f" >= {low}"
    return f" <= {high}" if low is None else f" in [{low}, {high}]"


# Matching


def admit(variable: Variable, value: object, bindings: Mapping[str, Any]) -> Iterable[Extension]:
    """Return each way in which a value is of a type, as names to add to the bindings.

    Args:
        variable: The type.
        value: A tensor (the elements of a fake one are not compared), a number, string, dtype, list, or None.
        bindings: Values of names so far; a name of another variable may stand for a node of a graph.
    """
    found = variable.match(value, bindings)
    return found if PENDING not in bindings else _with_pending(variable, value, bindings, found)


def _with_pending(
    variable: Variable, value: object, bindings: Mapping[str, Any], found: Iterable[Extension]
) -> Iterator[Extension]:
    for extension in found:
        yield from _recheck({**bindings, variable.name: value, **extension}, extension)


def _recheck(names: dict[str, Any], extension: Extension) -> Iterator[Extension]:
    """Decide about all variables that wait, as long as that binds further names."""
    waiting = [names[key] for key in names if key.startswith(PENDING) and key != PENDING]

    def decide(at: int, names: dict[str, Any], extension: Extension) -> Iterator[Extension]:
        if at == len(waiting):
            yield extension
            return
        variable, value = waiting[at]
        for more in variable.match(value, names):
            fresh = {key: new for key, new in more.items() if key not in names}
            yield from decide(at + 1, {**names, **fresh}, {**extension, **fresh})

    for result in decide(0, names, extension):
        if waiting and result.keys() - extension.keys():
            yield from _recheck({**names, **result}, result)
        else:
            yield result
