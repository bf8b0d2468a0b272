"""Quick checks of the values around a call: what the type of a variable, or a literal, excludes without a search.

A check may be too generous, never too strict: it rejects only what the matcher of the rule rejects as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from exirkit.patterns.forms.catalogue import Forms
from exirkit.patterns.functions.words import WORDS
from exirkit.patterns.matching.arguments import differs, literals_in_place
from exirkit.patterns.matching.state import CompiledGuard
from exirkit.patterns.operators.arguments import behind, canonical_arguments
from exirkit.patterns.syntax.expressions import ExpressionError, NameView, truth
from exirkit.patterns.syntax.terms import Call
from exirkit.patterns.types.scalars import FloatVariable, IntVariable, ScalarVariable
from exirkit.patterns.types.sizes import BroadcastDim, SequenceDim
from exirkit.patterns.types.tensors import TensorVariable

_EXACT = 1 << 53


@dataclass(frozen=True)
class TensorCheck:
    """What a variable for a tensor asks of a value.

    Attributes:
        dtypes: Those that the value may have; None for all.
        least: Least number of dims.
        most: Largest number of dims; None for any.
    """

    dtypes: frozenset[torch.dtype] | None
    least: int
    most: int | None

    def rejects(self, value: Any) -> bool:
        """Whether a value is certainly not of the type."""
        recorded = value.meta.get("val") if type(value) is Node else None
        if not isinstance(recorded, torch.Tensor):
            return False
        if self.dtypes is not None and recorded.dtype not in self.dtypes:
            return True
        rank = recorded.dim()
        return rank < self.least or (self.most is not None and rank > self.most)


@dataclass(frozen=True, eq=False)
class LiteralCheck:
    """What the literals among the arguments of a call ask of it.

    Attributes:
        literals: Names and values, and whether they are dims.
    """

    literals: Sequence[tuple[str, Any, bool]]

    def rejects(self, value: Any) -> bool:
        """Whether one of the literals is certainly another one."""
        call = behind(value) if type(value) is Node else None
        if call is None or call.op != "call_function":
            return False
        return differs(self.literals, canonical_arguments(call))


@dataclass(frozen=True, eq=False)
class GuardCheck:
    """What conditions on one variable alone ask of a value.

    Attributes:
        name: The variable.
        guards: Conditions that ask nothing of the graph.
        is_tensor: The variable stands for a tensor, and not for a number.
    """

    name: str
    guards: tuple[CompiledGuard, ...]
    is_tensor: bool

    def rejects(self, value: Any) -> bool:
        """Whether a condition certainly does not hold."""
        if self.is_tensor:
            is_known = type(value) is Node and isinstance(value.meta.get("val"), torch.Tensor)
            return is_known and any(_fails(guard, {self.name: value}) for guard in self.guards)
        if type(value) not in (int, float):
            return False
        return any(all(_fails(guard, {self.name: one}) for one in _read(value)) for guard in self.guards)


@dataclass(frozen=True)
class Named:
    """The name of what stands at a place.

    Attributes:
        name: The name.
    """

    name: str


@dataclass(frozen=True, eq=False)
class JointGuard:
    """What a condition on several names asks of tensors and lists of numbers.

    Attributes:
        names: The names.
        guard: A condition that asks nothing of the graph.
    """

    names: tuple[str, ...]
    guard: CompiledGuard

    def rejects(self, *values: Any) -> bool:
        """Whether the condition certainly does not hold."""
        for value in values:
            if type(value) is Node:
                if not isinstance(value.meta.get("val"), torch.Tensor):
                    return False
            elif type(value) is not list or any(type(one) is not int for one in value):
                return False
        return _fails(self.guard, dict(zip(self.names, values, strict=True)))


def _read(value: float) -> list[float]:
    """Return the numbers that a number is matched as: beside floats an integer is the equal float, and the reverse."""
    if type(value) is int:
        return [value, float(value)] if abs(value) < _EXACT else [value]
    return [value, int(value)] if value.is_integer() else [value]


def _fails(guard: CompiledGuard, names: Mapping[str, Any]) -> bool:
    try:
        return truth(guard.compiled(NameView(names))) is False
    except (ExpressionError, TypeError):
        return False


Check = TensorCheck | LiteralCheck | GuardCheck


def tensor_check(name: str, variables: Mapping[str, Any]) -> TensorCheck | None:
    """Return what a variable asks of a value, or None if that is nothing that is quickly looked up."""
    variable = variables.get(name)
    if type(variable) is not TensorVariable or variable.allows_none:
        return None
    dtypes = variable.dtypes.member_set if variable.same_dtype_as is None else None
    dims = variable.dims
    if dims is None:
        return TensorCheck(dtypes, 0, None)
    open_dims = sum(isinstance(dim, SequenceDim | BroadcastDim) for dim in dims)
    return TensorCheck(dtypes, len(dims) - open_dims, None if open_dims else len(dims))


def guard_check(name: str, variables: Mapping[str, Any], guards: Sequence[CompiledGuard]) -> GuardCheck | None:
    """Return what conditions on one variable alone ask of a value, or None if there are none."""
    variable = variables.get(name)
    is_tensor = type(variable) is TensorVariable
    if not is_tensor and type(variable) not in (IntVariable, FloatVariable, ScalarVariable):
        return None
    if variable is None or variable.allows_none:
        return None
    alone = tuple(guard for guard in guards if guard.needs == {name} and _is_worth_asking(guard))
    return GuardCheck(name, alone, is_tensor) if alone else None


def joint_guards(variables: Mapping[str, Any], guards: Sequence[CompiledGuard]) -> tuple[JointGuard, ...]:
    """Return the conditions on several names that can be asked of tensors and lists of numbers alone.

    Names that are not variables are those of calls.
    """
    return tuple(
        JointGuard(tuple(sorted(guard.needs)), guard)
        for guard in guards
        if len(guard.needs) > 1 and _is_worth_asking(guard)
    )


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
    literals = [one for one in literals_in_place(term) if counts_alike or not one[2]]
    return LiteralCheck(literals) if literals else None
