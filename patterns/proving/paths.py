"""Paths of a symbolic run: sizes and numbers that are symbols, and the conditions under which a run went as it did."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import z3

MOST_PATHS = 2000
"""Paths of one assignment that are followed before the prover gives up."""

TOO_MANY_PATHS = f"more than {MOST_PATHS} paths through its conditions"
_MOST_VALUES = 24
_EFFORT = 4_000_000
_GUARD_MILLISECONDS = 120_000


def new_solver(effort: int = _EFFORT, *, is_simple: bool = True) -> Any:
    """Return a solver that gives up after so many steps, a million of which take about half a second.

    Steps are counted, and not time, so that what is shown does not depend on how busy the machine is.
    """
    solver = z3.SimpleSolver() if is_simple else z3.Solver()
    solver.set("rlimit", effort)
    solver.set("timeout", _GUARD_MILLISECONDS)
    return solver


class InfeasibleError(Exception):
    """No values lead here, or the rule does not match on this path."""


class UnsupportedError(Exception):
    """The prover has no semantics for something; the text says for what."""


class UnprovedError(Exception):
    """What the replacement needs does not follow from what the pattern promises."""


class Path:
    """One path through pattern, conditions and replacement.

    Args:
        prefix: Outcomes of the first decisions; further ones are chosen, and their alternatives recorded.
        bound: Largest value of sizes that have to be enumerated; None: they may not be.

    Attributes:
        conditions: What holds on the path.
        alternatives: Prefixes of paths that part from this one.
        is_replacement: Whether requirements have to be proved, not assumed.
        was_bounded: Whether a size was enumerated up to the bound.
        is_real: Whether numbers of the rule are real numbers, not doubles.
        embeds_numbers: Whether integers of the rule meet elements, so that their order as bits has to be known.
        formulas: What was computed by a formula, or by a sum, that kernels round in their own way.
    """

    def __init__(self, prefix: tuple[Any, ...] = (), bound: int | None = None) -> None:
        self.prefix = prefix
        self.bound = bound
        self.taken: list[Any] = []
        self.alternatives: list[tuple[Any, ...]] = []
        self.conditions: list[Any] = []
        self.is_replacement = False
        self.was_bounded = False
        self._count = 0
        self._sizes: list[Any] = []
        self._of_floats: list[Any] = []
        self.has_floats = False
        self.is_real = False
        self.formulas: set[str] = set()
        self.is_assuming = False
        self.embeds_numbers = False
        self.values: dict[str, list[Any]] = {}
        self.doubles: list[tuple[Any, Any]] = []

    def fresh(self, name: str, sort: Any = None) -> Any:
        """Return a new constant; the same run gives it the same name."""
        self._count += 1
        return z3.Const(f"{name}!{self._count}", z3.IntSort() if sort is None else sort)

    def assume(self, condition: Any) -> None:
        """Restrict the path.

        Raises:
            InfeasibleError: Nothing is left of it.
        """
        condition = as_condition(condition)
        if z3.is_true(condition):
            return
        self.conditions.append(condition)
        if self.has_floats and mentions_floats(condition):
            self._of_floats.append(condition)
        else:
            self._sizes.append(condition)
        if z3.is_false(condition):
            raise InfeasibleError

    def check(self) -> None:
        """Raise an error if no values lead here.

        Raises:
            InfeasibleError: None do.
        """
        if _unsatisfiable(self.conditions):
            raise InfeasibleError

    def holds(self, condition: Any) -> bool:
        """Whether a condition follows from the path."""
        condition = as_condition(condition)
        if z3.is_true(condition):
            return True
        if z3.is_false(condition):
            return _unsatisfiable(self._sizes)
        # Conditions about floats are left out of what is about sizes: they cost many times as much, and say nothing.
        known = self.conditions if self.has_floats and mentions_floats(condition) else self._sizes
        return _unsatisfiable([*known, z3.simplify(z3.Not(condition))])

    def require(self, condition: Any, what: str) -> None:
        """Assume what an operator of the pattern needs; prove what one of the replacement does.

        Raises:
            UnprovedError: It does not follow.
        """
        if not self.is_replacement:
            self.assume(condition)
        elif not self.holds(condition):
            raise UnprovedError(f"the replacement needs {what}")

    def decide(self, condition: Any) -> bool:
        """Return one of the truths that a condition can have on the path, which goes on accordingly."""
        condition = as_condition(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return bool(z3.is_true(condition))
        if len(self.taken) < len(self.prefix):
            outcome = self.prefix[len(self.taken)]
            self.taken.append(outcome)
        elif self.holds(condition):
            outcome = True
            self.taken.append(outcome)
        elif self.holds(z3.Not(condition)):
            outcome = False
            self.taken.append(outcome)
        else:
            outcome = self._outcome((True, False))
        self.assume(condition if outcome else z3.Not(condition))
        return bool(outcome)

    def choose(self, options: tuple[Any, ...]) -> Any:
        """Return one of several values; other paths take the others."""
        return options[0] if len(options) == 1 else self._outcome(options)

    def concrete(self, value: Any) -> int:
        """Return an integer that a symbol stands for on this path; there have to be few.

        Raises:
            UnsupportedError: There may be any number of them.
        """
        found = _values_of(self._sizes, value)
        if len(found) > _MOST_VALUES:
            if self.bound is None:
                raise UnsupportedError("a loop, or an index, over a size that may be anything")
            self.was_bounded = True
            self.assume(z3.And(value >= -self.bound, value <= self.bound))
            return self.concrete(value)
        if not found:
            raise InfeasibleError
        chosen = int(self.choose(tuple(sorted(found))))
        self.assume(value == chosen)
        return chosen

    def _outcome(self, options: tuple[Any, ...]) -> Any:
        if len(self.taken) < len(self.prefix):
            outcome = self.prefix[len(self.taken)]
        else:
            outcome = options[0]
            self.alternatives += [(*self.taken, other) for other in options[1:]]
        self.taken.append(outcome)
        return outcome


def explore(run: Callable[[Path], None], *, bound: int | None = None) -> int:
    """Run on every path; return how many there were.

    Raises:
        UnsupportedError: There are too many.
    """
    pending: list[tuple[Any, ...]] = [()]
    count = 0
    while pending:
        if count >= MOST_PATHS:
            raise UnsupportedError(TOO_MANY_PATHS)
        count += 1
        path = Path(pending.pop(), bound)
        with contextlib.suppress(InfeasibleError):
            run(path)
        pending += path.alternatives
    return count


_ANSWERS: dict[tuple[int, ...], tuple[bool, list[Any]]] = {}
"""What the solver answered, by the identities of the conditions, which are kept so that they stay theirs."""

_MOST_ANSWERS = 200_000


def _unsatisfiable(conditions: list[Any]) -> bool:
    key = tuple(sorted({one.get_id() for one in conditions}))
    if key not in _ANSWERS:
        solver = new_solver()
        solver.add(*conditions)
        if len(_ANSWERS) >= _MOST_ANSWERS:
            _ANSWERS.clear()
        _ANSWERS[key] = solver.check() == z3.unsat, list(conditions)
    return _ANSWERS[key][0]


_VALUES: dict[tuple[int, ...], tuple[tuple[int, ...], list[Any]]] = {}
"""The values that a term can have under conditions, likewise."""


def _values_of(conditions: list[Any], value: Any) -> tuple[int, ...]:
    """Return the values that an integer can have, in the order in which the solver finds them, or one too many."""
    key = (*sorted({one.get_id() for one in conditions}), value.get_id())
    if key not in _VALUES:
        solver = new_solver()
        solver.add(*conditions)
        found: list[int] = []
        while len(found) <= _MOST_VALUES and solver.check() == z3.sat:
            found.append(solver.model().eval(value, model_completion=True).as_long())
            solver.add(value != found[-1])
        if len(_VALUES) >= _MOST_ANSWERS:
            _VALUES.clear()
        _VALUES[key] = tuple(found), [*conditions, value]
    return _VALUES[key][0]


def mentions_floats(term: Any) -> bool:
    """Whether a term has floats or real numbers in it."""
    pending, seen = [term], set()
    while pending:
        one = pending.pop()
        if one.get_id() in seen:
            continue
        seen.add(one.get_id())
        if z3.is_fp(one) or (
            z3.is_real(one) and not z3.is_app_of(one, z3.Z3_OP_TO_REAL) and not z3.is_rational_value(one)
        ):
            return True
        pending += one.children()
    return False


def double_of(path: Path, number: Number) -> Any:
    """Return an integer as a double, of which is known that rounding is monotone."""
    function = z3.Function("double_of_integer", z3.IntSort(), z3.FPSort(11, 53))
    made = function(number.term)
    path.has_floats = True
    if not any(one.eq(number.term) for one, _ in path.doubles):
        zero = z3.IntVal(0)
        if not path.doubles:
            path.doubles.append((zero, z3.FPVal(0.0, z3.FPSort(11, 53))))
        for other, term in path.doubles:
            path.assume(z3.Implies(number.term <= other, z3.fpLEQ(made, term)))
            path.assume(z3.Implies(number.term >= other, z3.fpGEQ(made, term)))
        path.assume(z3.Implies(number.term == 0, made == z3.FPVal(0.0, z3.FPSort(11, 53))))
        path.doubles.append((number.term, made))
    return made


def as_condition(condition: Any) -> Any:
    """Return a condition as the solver takes it, simplified."""
    if isinstance(condition, bool):
        return z3.BoolVal(condition)
    return z3.simplify(condition.term if isinstance(condition, Truth) else condition)


def integer(value: Any) -> Any:
    """Return an integer, or a symbol for one, as the solver takes it."""
    if isinstance(value, Number):
        return value.term
    return z3.IntVal(value) if isinstance(value, int) else value


def _scalar(number: Number) -> Any:
    from exirkit.patterns.proving.elements import Scalar

    return Scalar.of(number.path, number)


class Truth:
    """A condition over symbols; asked for its truth, it parts paths."""

    def __init__(self, path: Path, term: Any) -> None:
        self.path = path
        self.term = term

    def __bool__(self) -> bool:
        return self.path.decide(self.term)

    def all(self) -> Truth:
        """Return itself: it speaks of all elements already."""
        return self


class Number:
    """An integer that is a symbol: a size, or a number of the rule."""

    stand_in = 2

    def __init__(self, path: Path, term: Any) -> None:
        self.path = path
        self.term = term

    def made(self, term: Any) -> Any:
        """Return a number of the same path, a plain one if it is known."""
        term = z3.simplify(term)
        return term.as_long() if z3.is_int_value(term) else Number(self.path, term)

    def __repr__(self) -> str:
        return str(self.term)

    __hash__ = object.__hash__

    def __index__(self) -> int:
        return self.path.concrete(self.term)

    __int__ = __index__

    def __float__(self) -> float:
        raise UnsupportedError("a size as a float")

    def __bool__(self) -> bool:
        return self.path.decide(self.term != 0)

    def computed(self, name: str) -> Any:
        """Return a function of it, as a float of the rule."""
        return _scalar(self).computed(name)

    def __truediv__(self, other: Any) -> Any:
        return _scalar(self) / other

    def __rtruediv__(self, other: Any) -> Any:
        if self.path.decide(self.term == 0):
            raise ZeroDivisionError("division by a size of zero")
        return _scalar(self).into(other)

    def filled(self, sizes: Any, value: Any, dtype: Any) -> Any:
        """Return a tensor of one value."""
        from exirkit.patterns.proving.movement import filled

        return filled(self.path, list(sizes), value, dtype)

    def is_static(self) -> bool:
        """Return what `static` says: a program may have either."""
        return bool(self.path.choose((True, False)))

    def _with(self, other: Any, compute: Callable[[Any, Any], Any], *, is_swapped: bool = False) -> Any:
        if not isinstance(other, int | Number):
            return NotImplemented
        left, right = self.term, integer(other)
        return self.made(compute(right, left) if is_swapped else compute(left, right))

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b)

    def __radd__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b, is_swapped=True)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, list | tuple):
            return list(other) * self.__index__()
        return self._with(other, lambda a, b: a * b)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self.made(-self.term)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self.made(z3.If(self.term >= 0, self.term, -self.term))

    def _divided(self, a: Any, b: Any, compute: Callable[[Any, Any], Any]) -> Any:
        # The solver's division is Python's for positive divisors.
        if not self.path.decide(b > 0):
            if self.path.decide(b == 0):
                raise ZeroDivisionError("division by a size of zero")
            raise UnsupportedError("a division by a negative number")
        return compute(a, b)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: self._divided(a, b, lambda p, q: p / q))

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: self._divided(a, b, lambda p, q: p / q), is_swapped=True)

    def __mod__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: self._divided(a, b, lambda p, q: p % q))

    def __rmod__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: self._divided(a, b, lambda p, q: p % q), is_swapped=True)

    def _compared(self, other: Any, compute: Callable[[Any, Any], Any], unlike: bool | None) -> Any:
        if isinstance(other, float):
            if unlike is not None and not other.is_integer():
                return unlike
            other = int(other) if other.is_integer() else z3.RealVal(str(other))
        elif not isinstance(other, int | Number):
            is_plain = other is None or isinstance(other, str | list | tuple)
            return unlike if unlike is not None and is_plain else NotImplemented
        term = z3.simplify(compute(self.term, integer(other)))
        if z3.is_true(term) or z3.is_false(term):
            return bool(z3.is_true(term))
        return Truth(self.path, term)

    def __eq__(self, other: object) -> Any:
        return self._compared(other, lambda a, b: a == b, unlike=False)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, lambda a, b: a != b, unlike=True)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a < b, None)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a <= b, None)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a > b, None)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a >= b, None)
