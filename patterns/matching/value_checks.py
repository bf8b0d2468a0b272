"""Quick checks of the values around a call: what the type of a variable, or a literal, excludes without a search.

A check may be too generous, never too strict: it rejects only what the matcher of the rule rejects as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import FakeTensor
from exirkit.patterns.forms.catalogue import Forms
from exirkit.patterns.functions.graph import GraphFacts
from exirkit.patterns.functions.words import WORDS
from exirkit.patterns.matching.arguments import FixedLiteral, differs, literals_in_place
from exirkit.patterns.matching.state import CompiledGuard
from exirkit.patterns.operators.arguments import canonical_arguments, source_of
from exirkit.patterns.syntax.expressions import ExpressionError, NameView, truth
from exirkit.patterns.syntax.terms import Call
from exirkit.patterns.types.lists import AxisVariable
from exirkit.patterns.types.scalars import ChoiceVariable, FloatVariable, IntVariable, ScalarVariable
from exirkit.patterns.types.sizes import BroadcastDim, Number, SequenceDim, SizeDim
from exirkit.patterns.types.tensors import TensorVariable
from exirkit.patterns.types.variable import admit

_EXACT = 1 << 53


@dataclass(frozen=True)
class TensorCheck:
    """What a variable for a tensor asks of a value.

    Attributes:
        dtypes: Those that the value may have; None for all.
        least: Least number of dims.
        most: Largest number of dims; None for any.
        sizes: Dims, counted from either end, and the number of elements that is written for them.
    """

    dtypes: frozenset[torch.dtype] | None
    least: int
    most: int | None
    sizes: tuple[tuple[int, int], ...] = ()

    def rejects(self, value: Any, facts: GraphFacts | None = None) -> bool:
        """Whether a value is certainly not of the type."""
        del facts
        if type(value) in (int, float):
            return True
        recorded = value.meta.get("val") if type(value) is Node else None
        # Nearly all are fake tensors, and this is asked very often.
        if type(recorded) is not FakeTensor and not isinstance(recorded, torch.Tensor):
            return False
        if self.dtypes is not None and recorded.dtype not in self.dtypes:
            return True
        rank = recorded.ndim
        if rank < self.least or (self.most is not None and rank > self.most):
            return True
        for dim, wanted in self.sizes:
            size = recorded.shape[dim]
            if type(size) is int and size != wanted:
                return True
        return False


@dataclass(frozen=True, eq=False)
class LiteralCheck:
    """What the literals among the arguments of a call ask of it.

    Attributes:
        literals: The literals.
    """

    literals: Sequence[FixedLiteral]

    @property
    def said(self) -> tuple[Any, ...]:
        """What is asked, which is equal for checks that ask the same."""
        return tuple((one.name, type(one.value), repr(one.value), one.is_dim, one.meaning) for one in self.literals)

    def rejects(self, value: Any, facts: GraphFacts | None = None) -> bool:
        """Whether one of the literals is certainly another one."""
        del facts
        if type(value) is not Node:
            return False
        # The pattern may be about a call that others look through, or about one behind it.
        call: Node | None = value
        while call is not None:
            if call.op != "call_function" or not differs(self.literals, canonical_arguments(call)):
                return False
            call = source_of(call)
        return True


@dataclass(frozen=True)
class LengthCheck:
    """What a list of terms asks of an argument.

    Attributes:
        least: Fewest elements.
        is_open: Whether there may be more.
    """

    least: int
    is_open: bool

    def rejects(self, value: Any, facts: GraphFacts | None = None) -> bool:
        """Whether it is a list that certainly has another length."""
        del facts
        if type(value) is not list:
            return False
        return len(value) < self.least or (not self.is_open and len(value) != self.least)


@dataclass(frozen=True)
class NumberCheck:
    """What the bounds of a variable for a number, or the numbers that it may be, ask of an argument.

    Attributes:
        variable: The variable.
    """

    variable: FloatVariable | ScalarVariable | ChoiceVariable

    def rejects(self, value: Any, facts: GraphFacts | None = None) -> bool:
        """Whether it is a number that is certainly out of bounds, whichever type it is matched as."""
        del facts
        return type(value) in (int, float) and not _may_be(self.variable, value, str(value))


@lru_cache(maxsize=4096)
def _may_be(variable: FloatVariable | ScalarVariable | ChoiceVariable, value: float, written: str) -> bool:
    """Whether a number is within bounds; `written` tells equal ones of different types apart."""
    return any(True for one in _read(value) for _ in admit(variable, one, {}))


_MOST_KNOWN = 1024
_OF_SIZES = frozenset(
    {"bshape", "dtype", "is_float", "norm", "numel", "promote", "rank", "same_shape", "shape", "size"}
)
"""Words that ask nothing of a tensor but its dtype and sizes."""


class KnownGuard:
    """A condition that remembers for what it fails: layers of a model have the same sizes again and again.

    Args:
        guard: The condition.

    Attributes:
        names: Names that it asks about, in order.
    """

    def __init__(self, guard: CompiledGuard) -> None:
        self.names = tuple(sorted(guard.needs))
        self._compiled = guard.compiled
        tree = ast.parse(guard.text, mode="eval")
        named = [one.id for one in ast.walk(tree) if isinstance(one, ast.Name)]
        sized = [one.id for node in ast.walk(tree) for one in _asked_for_sizes(node)]
        # Tensors of which more may be asked than dtype and sizes, such as strides, are asked each time.
        self._others = tuple(named.count(name) != sized.count(name) for name in self.names)
        self._known: dict[tuple[Any, ...], bool] = {}

    def asks_sizes_alone(self, name: str) -> bool:
        """Whether a name is given only to words that ask for dtype and sizes."""
        return not self._others[self.names.index(name)]

    def fails(self, *values: Any) -> bool:
        """Whether the condition certainly does not hold of values of the names."""
        key = self._key(values)
        found = None if key is None else self._known.get(key)
        if found is None:
            found = self._asked(values)
            if key is not None:
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[key] = found
        return found

    def _key(self, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return what the condition sees of values; None where that is more than dtypes and sizes that do not vary."""
        made: list[Any] = []
        for value, is_other in zip(values, self._others, strict=True):
            if type(value) is Node:
                if is_other:
                    return None
                recorded = value.meta["val"]
                shape = tuple(recorded.shape)
                for size in shape:
                    if type(size) is not int:
                        return None
                made += (recorded.dtype, shape)
            else:
                # Zeros of both signs are equal, and conditions may differ for them.
                written = value.hex() if type(value) is float else value
                made.append((list, *value) if type(value) is list else (type(value), written))
        return tuple(made)

    def _asked(self, values: tuple[Any, ...]) -> bool:
        try:
            return truth(self._compiled(NameView(dict(zip(self.names, values, strict=True))))) is False
        except (ExpressionError, TypeError):
            return False


def _asked_for_sizes(node: ast.AST) -> list[ast.Name]:
    """Return the names of which a part of a condition asks dtype and sizes."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OF_SIZES:
        return [one for one in node.args if isinstance(one, ast.Name)]
    if isinstance(node, ast.Attribute) and node.attr in ("dtype", "shape") and isinstance(node.value, ast.Name):
        return [node.value]
    return []


@dataclass(frozen=True, eq=False)
class GuardCheck:
    """What conditions on one variable alone ask of a value.

    Attributes:
        name: The variable.
        guards: Conditions that ask nothing of the graph.
        is_tensor: The variable stands for a tensor, and not for a number.
    """

    name: str
    guards: tuple[KnownGuard, ...]
    is_tensor: bool

    def rejects(self, value: Any, facts: GraphFacts | None = None) -> bool:
        """Whether a condition certainly does not hold."""
        del facts
        if self.is_tensor:
            if type(value) is Node and isinstance(value.meta.get("val"), torch.Tensor):
                for guard in self.guards:
                    if guard.fails(value):
                        return True
            return False
        if type(value) not in (int, float):
            return False
        return any(all(guard.fails(one) for one in _read(value)) for guard in self.guards)


@dataclass(frozen=True)
class ConstantCheck:
    """What a variable for a constant asks of a value of the program."""

    def rejects(self, value: Any, facts: GraphFacts | None = None) -> bool:
        """Whether it is certainly no constant; nothing is certain without facts of the graph."""
        return facts is not None and type(value) is Node and not facts.is_constant(value)


@dataclass(frozen=True)
class Named:
    """The name of what stands at a place.

    Attributes:
        name: The name.
    """

    name: str


@dataclass(frozen=True, eq=False)
class JointGuard:
    """What a condition on several names asks of tensors, numbers and lists of numbers.

    Attributes:
        guard: A condition that asks nothing of the graph.
        variables: Variables of its names for numbers, in order; None for other names.
    """

    guard: KnownGuard
    variables: tuple[Any, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names."""
        return self.guard.names

    def rejects(self, *values: Any) -> bool:
        """Whether the condition certainly does not hold."""
        ways = [values]
        for at, value in enumerate(values):
            if type(value) is Node:
                if not isinstance(value.meta.get("val"), torch.Tensor):
                    return False
            elif type(value) in (int, float):
                read = _read_for(self.variables[at], value)
                if not read:
                    return False
                ways = [(*way[:at], one, *way[at + 1 :]) for way in ways for one in read]
            elif type(value) is not list or not _are_ints(value):
                return False
        return all(self.guard.fails(*way) for way in ways)


def _are_ints(values: list[Any]) -> bool:
    return {int}.issuperset(map(type, values))


def _read(value: float) -> list[float]:
    """Return the numbers that a number is matched as: beside floats an integer is the equal float, and the reverse."""
    if type(value) is int:
        return [value, float(value)] if abs(value) < _EXACT else [value]
    return [value, int(value)] if value.is_integer() else [value]


def _read_for(variable: Any, value: float) -> list[Any]:
    """Return the numbers that a number is matched as by a variable; none where that is not certain."""
    if isinstance(variable, IntVariable | AxisVariable):
        return [value] if type(value) is int else []
    return [] if variable is None else _read(value)


Check = TensorCheck | LiteralCheck | LengthCheck | NumberCheck | GuardCheck | ConstantCheck


def tensor_check(name: str, variables: Mapping[str, Any]) -> TensorCheck | None:
    """Return what a variable asks of a value, or None if that is nothing that is quickly looked up."""
    variable = variables.get(name)
    if type(variable) is not TensorVariable or variable.allows_none:
        return None
    dtypes = variable.dtypes.member_set if variable.same_dtype_as is None else None
    dims = variable.dims
    if dims is None:
        return TensorCheck(dtypes, 0, None)
    is_open = [isinstance(dim, SequenceDim | BroadcastDim) for dim in dims]
    count = len(dims) - sum(is_open)
    # From the front as far as the first part of any length, from the back as far as the last one.
    front = is_open.index(True) if any(is_open) else len(dims)
    back = len(dims) - is_open[::-1].index(True) if any(is_open) else len(dims)
    written = [(at, dim) for at, dim in enumerate(dims) if at < front]
    written += [(at - len(dims), dim) for at, dim in enumerate(dims) if at >= back]
    sizes = tuple(
        (at, dim.size.value) for at, dim in written if isinstance(dim, SizeDim) and isinstance(dim.size, Number)
    )
    return TensorCheck(dtypes, count, None if any(is_open) else len(dims), sizes)


def number_check(name: str, variables: Mapping[str, Any]) -> NumberCheck | None:
    """Return what the bounds of a number, or the numbers that it may be, ask; None if there are none."""
    variable = variables.get(name)
    if type(variable) is ChoiceVariable and not variable.depends_on and not variable.allows_none:
        return NumberCheck(variable)
    if not isinstance(variable, FloatVariable | ScalarVariable) or (variable.low is None and variable.high is None):
        return None
    return NumberCheck(variable)


def guard_check(name: str, variables: Mapping[str, Any], guards: Sequence[CompiledGuard]) -> GuardCheck | None:
    """Return what conditions on one variable alone ask of a value, or None if there are none."""
    variable = variables.get(name)
    is_tensor = type(variable) is TensorVariable
    if not is_tensor and type(variable) not in _NUMBERS:
        return None
    if variable is None or variable.allows_none:
        return None
    alone = tuple(guard for guard in guards if guard.needs == {name} and _is_worth_asking(guard))
    return GuardCheck(name, tuple(map(KnownGuard, alone)), is_tensor) if alone else None


def joint_guards(variables: Mapping[str, Any], guards: Sequence[CompiledGuard]) -> tuple[JointGuard, ...]:
    """Return the conditions on several names that can be asked of tensors, numbers and lists of numbers alone.

    Names that are not variables are those of calls.
    """
    known = [KnownGuard(guard) for guard in guards if len(guard.needs) > 1 and _is_worth_asking(guard)]
    return tuple(JointGuard(one, tuple(_number_of(one, name, variables) for name in one.names)) for one in known)


_NUMBERS = (IntVariable, FloatVariable, ScalarVariable, ChoiceVariable)


def _number_of(guard: KnownGuard, name: str, variables: Mapping[str, Any]) -> Any:
    """Return the variable of a name that stands for a number, if it is certain what the condition sees of it."""
    variable = variables.get(name)
    if variable is None or variable.allows_none:
        return None
    # A dim may be counted from either end, which makes no difference to words that take dims.
    is_dim = type(variable) is AxisVariable and guard.asks_sizes_alone(name)
    return variable if is_dim or type(variable) in _NUMBERS else None


def constant_check(name: str, variables: Mapping[str, Any]) -> ConstantCheck | None:
    """Return what a variable asks of a value, or None if it need not be a constant."""
    return ConstantCheck() if "const" in getattr(variables.get(name), "qualifiers", ()) else None


def _is_worth_asking(guard: CompiledGuard) -> bool:
    """Whether a condition asks nothing of the graph, and fails often enough to be asked before the search as well."""
    return not asks_graph(guard.text) and not _SIZES_KNOWN.search(guard.text)


_SIZES_KNOWN = re.compile(r"\bstatic\(")
"""Of most programs all sizes are known, and then the matcher would ask a second time."""

_COUNTED = re.compile(r"\brange\((?=(len|rank)\()")


def asks_graph(text: str, but: Set[str] = frozenset()) -> bool:
    """Whether an expression uses functions that ask for facts of the graph.

    Args:
        text: The expression.
        but: Functions that are not counted.
    """
    # The range of a tensor is a fact, the range of its dims is not.
    named = set(re.findall(r"\w+", _COUNTED.sub("(", text))) & WORDS.keys() - but
    return any(word.needs_facts or word.is_opaque or word.of_tensor for word in map(WORDS.__getitem__, named))


def literal_check(term: Call, forms: Forms | None) -> LiteralCheck | None:
    """Return what the literals among the arguments of a call ask, or None if there are none.

    Args:
        term: The call.
        forms: Of its operator; variants may count other dims.
    """
    counts_alike = forms is None or len(forms.alike) == len(forms.variants)
    literals = [one for one in literals_in_place(term) if counts_alike or not one.is_dim]
    return LiteralCheck(literals) if literals else None
