"""Whether one pattern matches wherever another does: never too generous, where that cannot be seen the answer is no."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.facts import traits_of
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Anything,
    Call,
    Item,
    Literal,
    OperatorCall,
    Optional,
    Sequence,
    Splat,
    Through,
    Variable,
)
from exirkit.patterns.types.scalars import OperatorVariable
from exirkit.patterns.types.sizes import AnyDim, SequenceDim, SizeDim
from exirkit.patterns.types.tensors import TensorVariable
from exirkit.patterns.types.variable import admit


def covers(one: CompiledRule, other: CompiledRule) -> bool:
    """Whether a rule without conditions matches at every root at which another one does.

    Types of variables that stand for calls of the other pattern are not compared; trials have to show that.
    """
    is_plain = not one.guards and not one.rule.unless and one.cases[-1].when is None and not other.rule.keep
    is_single = len(one.pattern.roots) == len(other.pattern.roots) == 1
    is_alike = one.pattern.is_variadic == other.pattern.is_variadic and one.rule.dialect == other.rule.dialect
    if not (is_plain and is_single and is_alike):
        return False
    return _Cover(one, other).covers(one.pattern.roots[0], other.pattern.roots[0])


@dataclass
class _Cover:
    one: CompiledRule
    other: CompiledRule
    bound: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)

    def covers(self, general: Any, special: Any) -> bool:
        """Whether the first term matches whatever the second one matches."""
        if isinstance(special, Alternatives) and not isinstance(general, Variable | Anything):
            return all(self._tried(general, branch) for _, branch in special.branches)
        if isinstance(general, Alternatives):
            return any(self._tried(branch, special) for _, branch in general.branches)
        if isinstance(general, Optional):
            passing = next(iter(general.inner.arguments.values()))
            return self._tried(general.inner, special) or self._tried(passing, special)
        if isinstance(general, Through):
            return self._tried(general.inner, special)
        return isinstance(general, Anything) or self._of_kind(general, special)

    def _of_kind(self, general: Any, special: Any) -> bool:
        match general:
            case Variable():
                return self._variable(general, special)
            case Literal():
                return isinstance(special, Literal) and _same(general.value, special.value)
            case Call():
                return isinstance(special, Call) and special.op is general.op and self._arguments(general, special)
            case Item():
                is_item = isinstance(special, Item) and special.index == general.index
                return is_item and self.covers(general.base, special.base)
            case Sequence():
                return self._sequence(general, special)
            case OperatorCall():
                return self._operator_call(general, special)
        return False

    def _tried(self, general: Any, special: Any) -> bool:
        bound, sizes = dict(self.bound), dict(self.sizes)
        if self.covers(general, special):
            return True
        self.bound, self.sizes = bound, sizes
        return False

    def _arguments(self, general: Call, special: Call) -> bool:
        if general.is_open:
            return all(
                name in special.arguments and self.covers(argument, special.arguments[name])
                for name, argument in general.arguments.items()
            )
        if special.is_open or general.arguments.keys() != special.arguments.keys():
            return False
        orders: list[dict[str, str]] = [{}]
        orders += [{a: b, b: a} for a, b, condition in traits_of(general.op).commutes if condition is None]
        for order in orders:
            bound, sizes = dict(self.bound), dict(self.sizes)
            pairs = ((term, special.arguments[order.get(name, name)]) for name, term in general.arguments.items())
            if all(self.covers(left, right) for left, right in pairs):
                return True
            self.bound, self.sizes = bound, sizes
        return False

    def _sequence(self, general: Sequence, special: Any) -> bool:
        if not isinstance(special, Sequence) or any(isinstance(item, Splat) for item in special.items):
            return False
        if len(general.items) != len(special.items) or any(isinstance(item, Splat) for item in general.items):
            return False
        return all(self.covers(left, right) for left, right in zip(general.items, special.items, strict=True))

    def _operator_call(self, general: OperatorCall, special: Any) -> bool:
        family = self.one.variables[general.variable]
        assert isinstance(family, OperatorVariable)
        if general.rest is not None or general.variable in self.bound:
            return False
        if isinstance(special, OperatorCall) and special.rest is None:
            theirs = self.other.variables[special.variable]
            is_inside = all(family.admits_operator(op) for op in theirs.operators())
            arguments = special.arguments
        elif isinstance(special, Call):
            is_inside = family.admits_operator(special.op)
            values = tuple(special.arguments.values())
            is_inside &= all(isinstance(one, Literal) and one.is_default for one in values[len(general.arguments) :])
            arguments = values[: len(general.arguments)]
        else:
            return False
        self.bound[general.variable] = special
        is_long = len(arguments) == len(general.arguments)
        return is_inside and is_long and all(map(self.covers, general.arguments, arguments))

    def _variable(self, general: Variable, special: Any) -> bool:
        if general.name in self.bound:
            return bool(self.bound[general.name] == special)
        self.bound[general.name] = special
        mine = self.one.variables[general.name]
        if isinstance(special, Variable):
            return self._type_covers(mine, self.other.variables[special.name])
        if isinstance(special, Literal):
            return not mine.depends_on and any(True for _ in admit(mine, special.value, {}))
        if isinstance(mine, TensorVariable):
            is_result = isinstance(special, Call | Item | OperatorCall | Optional | Through | Alternatives)
            return is_result and not mine.qualifiers and mine.domain is None and self._is_free(mine)
        return False

    def _type_covers(self, mine: Any, theirs: Any) -> bool:
        if type(mine) is not type(theirs) or (theirs.allows_none and not mine.allows_none):
            return False
        if not isinstance(mine, TensorVariable):
            plain = str(mine).removesuffix(" | none")
            return not mine.depends_on and (plain == str(theirs).removesuffix(" | none") or plain in _WHOLE)
        if mine.dtypes.same_as is not None or theirs.dtypes.same_as is not None:
            return False
        is_wide = theirs.dtypes.member_set <= mine.dtypes.member_set
        is_unqualified = set(mine.qualifiers) <= set(theirs.qualifiers)
        has_values = mine.domain is None or mine.domain == theirs.domain
        return is_wide and is_unqualified and has_values and (self._is_free(mine) or self._dims_cover(mine, theirs))

    def _is_free(self, mine: TensorVariable) -> bool:
        """Whether a type takes every shape: its one sequence of sizes is named nowhere else."""
        if mine.dims is None:
            return True
        (dim, *others) = mine.dims or (None,)
        if others or not isinstance(dim, SequenceDim):
            return False
        mentioned = [one for one in self.one.variables.values() if set(mine.binds) & {*one.binds, *one.depends_on}]
        return len(mentioned) == 1

    def _dims_cover(self, mine: TensorVariable, theirs: TensorVariable) -> bool:
        """Whether dims agree one by one, and names of sizes stand for names of sizes throughout."""
        if theirs.dims is None or len(mine.dims or ()) != len(theirs.dims):
            return False
        for left, right in zip(mine.dims or (), theirs.dims, strict=True):
            if isinstance(left, AnyDim) and isinstance(right, AnyDim | SizeDim):
                continue
            if type(left) is not type(right) or not isinstance(left, SizeDim | SequenceDim):
                return False
            if self.sizes.setdefault(str(left), str(right)) != str(right):
                return False
            if str(left).isdigit() and str(left) != str(right):
                return False
        return True


_WHOLE = {"int", "float", "scalar", "bool", "str", "shape", "dtype", "ints"}
"""Types that take every value of their kind."""


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and repr(left) == repr(right)
