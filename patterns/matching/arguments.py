"""Matching the arguments of a call: numbers as programs write them, defaults by their meaning, dims modulo the rank."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch.fx import Node

from exirkit.ir import same_argument, underlying
from exirkit.patterns.functions.graph import GraphFacts
from exirkit.patterns.matching.state import Matcher, State, Then
from exirkit.patterns.operators.arguments import Arguments, Meaning, canonical_arguments, meaning_of
from exirkit.patterns.operators.table import traits_of
from exirkit.patterns.syntax.constant_names import numbers_read
from exirkit.patterns.syntax.expressions import compare
from exirkit.patterns.syntax.terms import Anything, Call, Literal, Operator, Term, Variable
from exirkit.patterns.syntax.terms import Sequence as ListTerm
from exirkit.patterns.types.literals import Literal as LiteralChoice
from exirkit.patterns.types.scalars import ChoiceVariable, FloatVariable, IntVariable
from exirkit.patterns.types.variable import Variable as VariableType

if TYPE_CHECKING:
    from exirkit.patterns.matching.matcher import PatternCompiler


def is_kind(facts: GraphFacts, node: Node, kind: str) -> bool:
    """Return whether a node is what a qualifier says."""
    if kind == "const":
        return facts.is_constant(node)
    return facts.is_kind(node, kind)


def constant_behind(node: Node, facts: GraphFacts) -> torch.Tensor | None:
    """Return a constant of no dimension, or None if the node is something else."""
    recorded = node.meta.get("val")
    if isinstance(recorded, torch.Tensor) and recorded.dim() == 0 and facts.is_constant(node):
        return facts.value(node)
    return None


def scalar_behind(value: Any, facts: GraphFacts) -> Any:
    """Return the number in a constant of no dimension; the recorded size of a symbolic number; else the node itself."""
    if not isinstance(value, Node):
        return value
    recorded = value.meta.get("val")
    if not isinstance(recorded, torch.Tensor):
        return recorded
    known = constant_behind(value, facts)
    return value if known is None else known.item()


def same_literal(wanted: Any, found: Any) -> bool:
    """Whether a value is a literal, in type and value; lists element by element."""
    if isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
        return len(wanted) == len(found) and all(map(same_literal, wanted, found))
    if type(wanted) is not type(found):
        return False
    if isinstance(wanted, float):
        return repr(wanted) == repr(found)
    return bool(wanted == found)


def same_bound(known: Any, value: Any) -> bool:
    """Whether a name that is met again stands for the same value."""
    if isinstance(known, Node) or isinstance(value, Node):
        return known is value
    if isinstance(known, list | tuple) and isinstance(value, list | tuple):
        return len(known) == len(value) and all(map(same_bound, known, value))
    if isinstance(known, torch.SymInt) or isinstance(value, torch.SymInt):
        return compare("==", known, value) is True
    return same_argument(known, value)


def from_front(value: Any, rank: int | None) -> Any:
    """Return dims counted from the front."""
    if rank is None:
        return value
    if isinstance(value, list | tuple):
        return [from_front(one, rank) for one in value]
    return value + max(1, rank) if type(value) is int and value < 0 else value


def rest_is_default(node: Node, count: int) -> bool:
    """Return whether the arguments of a call from a place on have their defaults."""
    schema = getattr(underlying(node.target), "_schema", None)
    if schema is None:
        return False
    arguments = canonical_arguments(node)
    return all(
        argument.has_default_value() and same_argument(arguments[argument.name], argument.default_value)
        for argument in schema.arguments[count:]
    )


# When a number of a program is the one that a rule says, as written there and as lowering writes it


_FLOATS = (torch.float16, torch.float32, torch.bfloat16)


def literal_agrees(wanted: Any, value: Any, state: State) -> bool:
    """Whether a value of a program is a literal of a rule.

    Type and value must be equal. Two things that lowering does are allowed for: a number becomes a tensor of no
    dimension, which rounds it to the dtype of that tensor; and beside a tensor of floats it makes no difference
    whether a number is an integer or an equal float.

    Args:
        wanted: The literal.
        value: Argument of a call: a node, or a value.
        state: Of the search; `beside` has the arguments among which the value stands.
    """
    if not isinstance(value, Node):
        if same_literal(wanted, value):
            return True
        return _is_number(wanted) and _is_number(value) and _equal_beside_floats(wanted, value, value, state)
    constant = constant_behind(value, state.facts)
    if constant is None:
        return same_literal(wanted, value.meta.get("val"))
    return _is_constant(wanted, constant, value, state)


def scalar_shown(variable: VariableType, value: Any, state: State) -> Any:
    """Return the number that a variable for numbers is bound to.

    A constant of no dimension is the number in it, as short as its dtype allows: 0.1 and not 0.10000000149. Beside a
    tensor of floats an integer is a float for a variable of that type, and the reverse.
    """
    number = value
    if isinstance(value, Node):
        constant = constant_behind(value, state.facts)
        if constant is None:
            recorded = value.meta.get("val")
            return value if isinstance(recorded, torch.Tensor) else recorded
        number = _shortest(constant, value, state)
    if isinstance(variable, ChoiceVariable):
        return _chosen(variable, number, value, state)
    if isinstance(variable, FloatVariable) and type(number) is int:
        return float(number) if _float_beside(state.beside, value) is not None and _is_exact(number) else number
    if isinstance(variable, IntVariable) and type(number) is float and number.is_integer():
        is_plain = _float_beside(state.beside, value) is not None and not _is_negative_zero(number)
        return int(number) if is_plain else number
    return number


def same_number(known: Any, number: Any, value: Any, state: State) -> bool:
    """Whether a number that a name stands for already is met again.

    Args:
        known: The number of the name.
        number: What is met, as `scalar_shown` returns it.
        value: What is met, as it stands in the program.
        state: Of the search.
    """
    if not _is_number(known) or not _is_number(number):
        return False
    return literal_agrees(known, value, state) or (type(known) is type(number) and same_literal(known, number))


def _chosen(variable: ChoiceVariable, number: Any, value: Any, state: State) -> Any:
    for one in variable.choices:
        if isinstance(one, LiteralChoice) and literal_agrees(one.value, value, state):
            return one.value
    return number


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _is_constant(wanted: Any, constant: torch.Tensor, value: Node, state: State) -> bool:
    """Whether a literal and a tensor of no dimension are one number."""
    found = constant.item()
    if not _is_number(wanted) or not _is_number(found):
        return same_literal(wanted, found)
    if type(found) is int:
        return same_literal(wanted, found) or _equal_beside_floats(wanted, found, value, state)
    beside = _float_beside(state.beside, value)
    if type(wanted) is int and (beside is None or not _is_exact(wanted)):
        return False
    return _is_rounded(wanted, found, constant.dtype, beside)


def _is_rounded(wanted: int | float, found: float, dtype: torch.dtype, beside: torch.dtype | None) -> bool:
    """Whether a literal is a number once it is rounded to the dtype of the constant, which computes no less exactly."""
    if not rounds_to(wanted, found, dtype):
        return False
    if beside is None or torch.promote_types(dtype, beside) == dtype:
        return True
    return rounds_to(wanted, found, beside)


def rounds_to(wanted: int | float, found: float, dtype: torch.dtype) -> bool:
    """Whether a number, rounded to a dtype, is another one."""
    return _is_same(_rounded(wanted, dtype), found)


def _rounded(number: int | float, dtype: torch.dtype) -> float:
    # Written out, since zeros of both signs are equal.
    return _rounded_from(float(number).hex(), dtype)


@lru_cache(maxsize=4096)
def _rounded_from(written: str, dtype: torch.dtype) -> float:
    return float(torch.tensor(float.fromhex(written), dtype=torch.float64).to(dtype).item())


def _is_same(one: float, other: float) -> bool:
    if math.isnan(one):
        return math.isnan(other)
    return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)


def _is_negative_zero(number: float) -> bool:
    return number == 0 and math.copysign(1.0, number) < 0


def _is_exact(number: int) -> bool:
    return abs(number) <= 1 << 53


def _equal_beside_floats(wanted: Any, found: Any, value: Any, state: State) -> bool:
    """Whether an integer and a float are equal, and stand where that is all that counts."""
    if type(wanted) is type(found) or wanted != found or not _is_exact(int(found)):
        return False
    if any(type(one) is float and _is_negative_zero(one) for one in (wanted, found)):
        return False
    return _float_beside(state.beside, value) is not None


def _shortest(constant: torch.Tensor, value: Node, state: State) -> Any:
    beside = _float_beside(state.beside, value)
    is_coarse = beside is not None and torch.promote_types(constant.dtype, beside) != constant.dtype
    return constant.item() if is_coarse else shortest_number(constant)


def shortest_number(constant: torch.Tensor) -> Any:
    """Return the number in a tensor of no dimension, with no more digits than its dtype tells apart."""
    found = constant.item()
    if type(found) is not float or constant.dtype not in _FLOATS or not math.isfinite(found):
        return found
    for digits in range(1, 10):
        short = float(f"{found:.{digits}g}")
        if _rounded(short, constant.dtype) == found:
            return short
    return found


def _float_beside(arguments: Any, value: Any) -> torch.dtype | None:
    """Return the dtype that the other tensors of a call have together, or None if none of them has floats."""
    together: torch.dtype | None = None
    for one in _flat(arguments):
        recorded = one.meta.get("val") if isinstance(one, Node) and one is not value else None
        if isinstance(recorded, torch.Tensor) and (recorded.dtype.is_floating_point or recorded.dtype.is_complex):
            together = recorded.dtype if together is None else torch.promote_types(together, recorded.dtype)
    return together


def _flat(arguments: Any) -> Iterable[Any]:
    values = arguments.values() if isinstance(arguments, Mapping) else arguments or ()
    for one in values:
        if isinstance(one, list | tuple):
            yield from one
        else:
            yield one


# Literals that are compared before anything is bound


@dataclass(frozen=True, slots=True)
class FixedLiteral:
    """A literal among the arguments of a call that no exchange of arguments moves.

    Attributes:
        name: Name of the argument.
        value: The literal.
        is_dim: It counts dims.
        meaning: What it may be written as in other ways; None where there is one way only.
    """

    name: str
    value: Any
    is_dim: bool
    meaning: Meaning | None


def literals_in_place(term: Call) -> list[FixedLiteral]:
    """Return the literals of a call that no exchange of arguments moves."""
    traits = traits_of(term.op)
    moved = {name for left, right, _ in traits.commutes for name in (left, right)} | traits.pairs
    return [
        FixedLiteral(name, argument.value, name in traits.dims, meaning_of(term.op, name))
        for name, argument in term.arguments.items()
        if isinstance(argument, Literal) and name not in moved
    ]


_LACKING = object()


def differs(fixed: Sequence[FixedLiteral], arguments: Arguments) -> bool:
    """Whether a literal is certainly not there; what a node stands for is not compared."""
    for one in fixed:
        # Variants of an operator may lack an argument that makes no difference.
        found = arguments.get(one.name, _LACKING)
        if found is _LACKING or type(found) is Node:
            continue
        here = from_front(one.value, arguments.rank_of(one.name)) if one.is_dim else one.value
        if same_literal(here, found):
            continue
        # An integer may stand for an equal float; what is beside it decides.
        if type(found) in (int, float) and type(here) in (int, float) and here == found:
            continue
        if one.meaning is None or not _means(one.meaning, here, found, arguments):
            return True
    return False


# Matching the arguments of a call: by name, by what their defaults mean, and dims by either way of counting


_MOST_DIMS = 8
"""Rank up to which lists of dims that count from the end are matched; operators of the runtime take no more."""


def compile_argument(
    compiler: PatternCompiler, op: Operator, name: str, argument: Term, holder: list[Any], then: Then
) -> Then:
    """Match one argument of an operator, found by name."""
    traits, meaning = traits_of(op), meaning_of(op, name)
    is_dim, is_pair = name in traits.dims, name in traits.pairs
    literal = _whole_literal(argument, is_pair)
    if literal is not None and (is_dim or is_pair or meaning is not None):
        return _compile_meant(name, argument, literal, meaning, holder, then)
    if is_dim and isinstance(argument, ListTerm) and any(map(_counts_from_end, argument.items)):
        return compile_dim_list(compiler, name, argument, holder, then)
    if isinstance(argument, ListTerm) and name in ("size", "shape") and any(map(_counts_from_end, argument.items)):
        return _compile_sizes(compiler, op, name, argument, holder, then)
    matcher = compiler.term(argument, then)
    if is_dim and isinstance(argument, Variable):
        return compile_dim_variable(compiler, name, matcher, holder)

    def match(state: State) -> bool:
        state.beside = arguments = holder[-1]
        return matcher(arguments[name], state)

    return match


def _whole_literal(argument: Term, is_pair: bool) -> Literal | None:
    """Return an argument that is written out, a list of literals as one; one number may stand for a pair."""
    literal = argument if isinstance(argument, Literal) else None
    if isinstance(argument, ListTerm) and all(isinstance(one, Literal) for one in argument.items):
        literal = Literal([one.value for one in argument.items if isinstance(one, Literal)], place=argument.place)
    if literal is None or not is_pair:
        return literal
    value = [literal.value] if type(literal.value) is int else literal.value
    return replace(literal, value=value * 2 if isinstance(value, list) and len(value) == 1 else value)


def _compile_meant(
    name: str, argument: Term, literal: Literal, meaning: Meaning | None, holder: list[Any], then: Then
) -> Then:
    """Match a literal by what it means; dims modulo the rank, since the canonical view counts from the front."""
    wanted = literal.value

    def match(state: State) -> bool:
        state.beside = arguments = holder[-1]
        value = arguments[name]
        here = from_front(wanted, arguments.rank_of(name))
        if literal_agrees(here, value, state):
            return then(state)
        if meaning is not None and not isinstance(value, Node) and _means(meaning, here, value, arguments):
            return then(state)
        return _fail(state, argument, literal, here, value)

    return match


def _means(meaning: Meaning, wanted: Any, value: Any, arguments: Arguments) -> bool:
    return same_literal(meaning(wanted, arguments), meaning(value, arguments))


def _fail(state: State, argument: Term, literal: Literal, wanted: Any, value: Any) -> bool:
    """Say which element of a list is another one, if it is one element."""
    if isinstance(argument, ListTerm) and isinstance(value, list) and len(value) == len(wanted):
        for item, one, found in zip(argument.items, wanted, value, strict=True):
            if not same_literal(one, found):
                return state.fail(f"{one!r} is expected", found, item)
    what = " (left out, so it must be the default)" if literal.is_default else ""
    return state.fail(f"{wanted!r}{what} is expected", value, argument)


def _compile_sizes(
    compiler: PatternCompiler, op: Operator, name: str, argument: ListTerm, holder: list[Any], then: Then
) -> Then:
    """Match sizes of which some are -1: what the others leave, or for an expansion the size that is there."""
    left = [index for index, one in enumerate(argument.items) if isinstance(one, Literal) and one.value == -1]
    items = tuple(Anything(one.place) if index in left else one for index, one in enumerate(argument.items))
    matcher = compiler.term(replace(argument, items=items), then)
    is_kept = "expand" in op._schema.name

    def match(state: State) -> bool:
        state.beside = arguments = holder[-1]
        sizes = arguments[name]
        if is_kept and not _keeps(arguments, sizes, left):
            return state.fail("an expansion that keeps this size is expected", sizes, argument)
        return matcher(sizes, state)

    return match


def _keeps(arguments: Mapping[str, Any], sizes: Any, places: Sequence[int]) -> bool:
    source = next(iter(arguments.values()), None)
    recorded = source.meta.get("val") if isinstance(source, Node) else None
    if not isinstance(recorded, torch.Tensor) or not isinstance(sizes, list):
        return False
    new = len(sizes) - recorded.dim()
    return all(
        new <= at < len(sizes) and compare("==", numbers_read(sizes)[at], recorded.shape[at - new]) is True
        for at in places
    )


def _counts_from_end(item: Any) -> TypeGuard[Literal]:
    return isinstance(item, Literal) and isinstance(item.value, int) and item.value < 0


def compile_dim_list(compiler: PatternCompiler, name: str, argument: ListTerm, holder: list[Any], then: Then) -> Then:
    """Dims in a list are compared modulo the rank too: there is a list for every rank."""

    def at_rank(rank: int) -> Matcher:
        items = tuple(
            replace(one, value=from_front(one.value, rank)) if _counts_from_end(one) else one for one in argument.items
        )
        return compiler.term(replace(argument, items=items), then)

    matchers = {rank: at_rank(rank) for rank in range(1, _MOST_DIMS + 1)}

    def match(state: State) -> bool:
        arguments = holder[-1]
        value, matcher = arguments[name], matchers.get(arguments.rank_of(name) or 0)
        return (
            matcher(value, state) if matcher is not None else state.fail("a list of dims is expected", value, argument)
        )

    return match


def compile_dim_variable(compiler: PatternCompiler, name: str, matcher: Matcher, holder: list[Any]) -> Then:
    """A variable for a dim may be typed by either way of counting."""

    def match(state: State) -> bool:
        arguments = holder[-1]
        value, rank = arguments[name], arguments.rank_of(name)
        if matcher(value, state):
            return True
        return type(value) is int and rank is not None and value >= 0 and matcher(value - rank, state)

    return match
