"""Values for the variables of a rule that stand for all that their types admit: symbols, and choices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import z3

from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.proving.elements import BITS, DOUBLE, FLOATS, Elements, Scalar, number_term
from exirkit.patterns.proving.meanings import broadcast_sizes
from exirkit.patterns.proving.paths import InfeasibleError, Number, Path, UnsupportedError, integer
from exirkit.patterns.proving.tensors import SymbolicTensor, input_tensor, product
from exirkit.patterns.types.lists import (
    AxesVariable,
    AxisVariable,
    FactorsVariable,
    ListVariable,
    PartitionVariable,
    PermutationVariable,
    ShapeVariable,
)
from exirkit.patterns.types.literals import Interval, Literal, Reference, ValueSet, fits, rounded
from exirkit.patterns.types.quantized import LimitVariable, ParameterTensor, ZeroPointVariable
from exirkit.patterns.types.sampling import Sampler
from exirkit.patterns.types.scalars import (
    BoolVariable,
    ChoiceVariable,
    DtypeVariable,
    FloatVariable,
    IntVariable,
    OperatorVariable,
    ScalarVariable,
    StringVariable,
)
from exirkit.patterns.types.sizes import Arithmetic, BroadcastDim, Measure, Name, SequenceDim
from exirkit.patterns.types.sizes import Number as PlainNumber
from exirkit.patterns.types.tensors import DimsVariable, TensorListVariable, TensorVariable

LARGEST_SIZE = (1 << 63) - 1
"""Sizes are 64-bit integers."""

LONGEST_LIST = 3
"""Lists of any length are proved up to this one, and the proof says so."""


@dataclass
class Scope:
    """What a proof is about.

    Attributes:
        most_dims: Most dims of a sequence `*S`, of a tensor of any shape, and of `factors`.
        is_parametric: One dtype stands for all: nothing depends on it.
        is_real: Numbers of the rule are real numbers, not doubles.
        opaque: Parameters of quantized values whose dtype nothing depends on.
        met: What was chosen: lengths by name of the sequence or list.
    """

    most_dims: int
    is_parametric: bool = False
    is_real: bool = False
    opaque: frozenset[str] = frozenset()
    met: dict[str, set[int]] = field(default_factory=dict)

    def note(self, name: str, length: int) -> int:
        """Record a length."""
        self.met.setdefault(name, set()).add(length)
        return length


class Assigner:
    """Makes the values of one path.

    Args:
        rule: A compiled rule.
        scope: What the proof is about.
    """

    def __init__(self, rule: CompiledRule, scope: Scope) -> None:
        self.rule = rule
        self.scope = scope
        sampler = Sampler(rule.variables)
        self.variables: Mapping[str, Any] = sampler.ordered
        self.dims = sampler.problem.dims

    def values(self, path: Path, may_be: Callable[[Mapping[str, torch.dtype]], bool]) -> dict[str, Any]:
        """Return values of all variables and sizes.

        Args:
            path: The path; it is followed no further where the dtypes exclude a match.
            may_be: Says so of the dtypes of tensors.
        """
        return _Assignment(self, path).made(may_be)


class _Assignment:
    def __init__(self, assigner: Assigner, path: Path) -> None:
        self.scope = assigner.scope
        self.variables = assigner.variables
        self.dims = assigner.dims
        self.path = path
        self.names: dict[str, Any] = {}
        self.broadcast: dict[str, list[list[Any]]] = {}
        self.dtypes: dict[str, torch.dtype] = {}

    def made(self, may_be: Callable[[Mapping[str, torch.dtype]], bool]) -> dict[str, Any]:
        for name, variable in self.variables.items():
            if type(variable) is TensorVariable and variable.same_dtype_as is None and not variable.allows_none:
                self.dtypes[name] = self._dtype(variable)
        if not may_be(self.dtypes):
            raise InfeasibleError
        waiting = [(name, one) for name, one in self.variables.items() if not isinstance(one, DimsVariable)]
        named = {name for name, one in self.variables.items() if isinstance(one, DimsVariable)}
        # What binds sequences comes before what broadcasts to them.
        waiting.sort(key=lambda one: self._order(one[0], one[1], named))
        for name, variable in waiting:
            if variable.allows_none and self.path.choose((False, True)):
                self.names[name] = None
                continue
            self.names[name] = self._value(name, variable)
        self._bind_shapes(named)
        return self.names

    def _order(self, name: str, variable: Any, named: set[str]) -> int:
        if isinstance(variable, TensorVariable) and not isinstance(variable, ParameterTensor):
            dims = self.dims.get(name, ())
            return 2 if any(isinstance(one, BroadcastDim) for one in dims) else 1
        if isinstance(variable, TensorListVariable):
            return 1
        if isinstance(variable, DtypeVariable) and variable.same_dtype_as is None:
            return 0
        if isinstance(variable, IntVariable) and not variable.depends_on:
            return 0
        return 3 + len(variable.depends_on & self.variables.keys())

    def _bind_shapes(self, named: set[str]) -> None:
        """Let what broadcasts together do so, and make the shapes that nothing has asked for yet."""
        for shapes in self.broadcast.values():
            broadcast_sizes(self.path, shapes)
        for name in named - self.names.keys():
            self._sequence(name)

    # Sizes

    def size(self, name: str) -> Any:
        """Return the size of a name; a new one is at least 0."""
        if name not in self.names:
            variable = self.variables.get(name)
            if variable is not None and not isinstance(variable, TensorVariable):
                self.names[name] = self._value(name, variable)
            else:
                made = Number(self.path, self.path.fresh(name))
                self.path.assume(z3.And(made.term >= 0, made.term <= LARGEST_SIZE))
                self.names[name] = made
        return self.names[name]

    def evaluated(self, expression: Any) -> Any:
        """Return the value of a size expression."""
        if isinstance(expression, PlainNumber):
            return expression.value
        if isinstance(expression, Name):
            return self.size(expression.name)
        if isinstance(expression, Measure):
            value = self._value_with_sizes(expression.name)
            if value is None:
                raise UnsupportedError(f"a size of {expression.name}, which comes later")
            sizes = value.shape if isinstance(value, SymbolicTensor) else value
            return product(sizes) if expression.kind == "numel" else len(sizes)
        if isinstance(expression, Arithmetic):
            left, right = self.evaluated(expression.left), self.evaluated(expression.right)
            return _ARITHMETIC[expression.op](left, right)
        raise UnsupportedError("a size that is computed")

    def _value_with_sizes(self, name: str) -> Any:
        """Return a tensor, or a shape that has a name; None if it comes later."""
        if name not in self.names and isinstance(self.variables.get(name), DimsVariable):
            return self._sequence(name)
        return self.names.get(name)

    def _sizes(self, dims: Sequence[Any], suffix: str = "") -> list[Any]:
        found: list[Any] = []
        broadcast: tuple[str, list[Any]] | None = None
        for dim in dims:
            if isinstance(dim, SequenceDim):
                found += self._sequence(f"{dim.name}{suffix if '.' in str(dim.name) else ''}")
            elif isinstance(dim, BroadcastDim):
                broadcast = dim.name, self._broadcast(dim.name)
                found += broadcast[1]
            else:
                size = dim.size
                if isinstance(size, Name) and "." in size.name:
                    size = Name(f"{size.name}{suffix}")
                made = self.evaluated(size)
                self.path.assume(integer(made) >= 0)
                found.append(made)
        return found

    def _sequence(self, name: str) -> Sequence[Any]:
        if name in self.variables and isinstance(self.variables[name], DimsVariable) and name not in self.names:
            self.names[name] = self._sizes(self.variables[name].dims)
        if name not in self.names:
            length = self.path.choose(tuple(range(self.scope.most_dims + 1)))
            self.scope.note(f"dims of {name}", length)
            self.names[name] = tuple(self._fresh_sizes(name, length))
        found: Sequence[Any] = self.names[name]
        return found

    def _fresh_sizes(self, name: str, count: int) -> list[Any]:
        made = [Number(self.path, self.path.fresh(f"{name}[{at}]")) for at in range(count)]
        for one in made:
            self.path.assume(z3.And(one.term >= 0, one.term <= LARGEST_SIZE))
        return made

    def _broadcast(self, name: str) -> list[Any]:
        if isinstance(self.variables.get(name), DimsVariable):
            # Tensors broadcast to a shape that has a name; it may be larger than what they broadcast to together.
            self._sequence(name)
        known = self.names.get(name)
        most = self.scope.most_dims if known is None else len(known)
        length = self.path.choose(tuple(range(most + 1)))
        self.scope.note(f"dims that broadcast to {name}", length)
        made = self._fresh_sizes(f"~{name}", length)
        if known is None:
            self.broadcast.setdefault(name, []).append(made)
            return made
        for one, other in zip(made[::-1], list(known)[::-1], strict=False):
            self.path.assume(z3.Or(one.term == 1, one.term == integer(other)))
        return made

    # Values

    def _value(self, name: str, variable: Any) -> Any:
        for kind, make in self._makers():
            if isinstance(variable, kind):
                return make(name, variable)
        raise UnsupportedError(f"variables of the type {variable}")

    def _makers(self) -> list[tuple[type, Callable[[str, Any], Any]]]:
        return [
            (ParameterTensor, self._parameter),
            (TensorVariable, self._tensor),
            (TensorListVariable, self._tensor_list),
            (IntVariable, self._integer),
            (FloatVariable, self._float),
            (ScalarVariable, self._scalar),
            (BoolVariable, lambda name, one: self.path.choose((False, True))),
            (StringVariable, self._string),
            (ChoiceVariable, self._choice),
            (DtypeVariable, self._dtype_value),
            (OperatorVariable, lambda name, one: self.path.choose(tuple(one.operators()))),
            ((ZeroPointVariable), self._within_dtype),
            ((LimitVariable), self._within_dtype),
            (PermutationVariable, self._permutation),
            (AxesVariable, self._axes),
            (AxisVariable, self._axis),
            (FactorsVariable, self._factors),
            (PartitionVariable, self._partition),
            (ListVariable, self._list),
            (ShapeVariable, self._shape),
        ]

    def _dtype(self, variable: Any) -> torch.dtype:
        same_as = variable.dtypes.same_as
        if same_as is not None and not variable.dtypes.names:
            return self._dtype_of(same_as)
        options = variable.dtype_options()
        if same_as is not None:
            options = (*options, self._dtype_of(same_as))
        if self.scope.is_parametric:
            options = (torch.float32 if torch.float32 in options else options[0],)
        found: torch.dtype = self.path.choose(tuple(options))
        return found

    def _dtype_of(self, name: str) -> torch.dtype:
        if name not in self.names:
            self.names[name] = self._value(name, self.variables[name])
        value = self.names[name]
        if value is None:
            raise InfeasibleError
        found: torch.dtype = value if isinstance(value, torch.dtype) else value.dtype
        return found

    def _tensor(self, name: str, variable: Any, suffix: str = "") -> SymbolicTensor:
        dtype = self.dtypes[name] if name in self.dtypes else self._dtype(variable)
        dims = self.dims.get(name, ()) if variable.dims is not None else (SequenceDim(f"{name}.0"),)
        return input_tensor(self.path, f"{name}{suffix}", self._sizes(dims, suffix), dtype, _domain(variable, dtype))

    def _tensor_list(self, name: str, variable: Any) -> list[Any]:
        least = variable.least
        if variable.count is not None:
            count = int(self.evaluated(variable.count))
        else:
            count = self.path.choose(tuple(range(least, LONGEST_LIST + 1)))
            self.scope.note(f"tensors in {name}", count)
        made: list[Any] = []
        for at in range(count):
            element = variable.element
            dtype = self._dtype(element) if not made or element.dtypes.same_as else made[0].dtype
            dims = self.dims.get(name, ())
            sizes = self._sizes(dims, f"#{at}")
            made.append(input_tensor(self.path, f"{name}#{at}", sizes, dtype, _domain(element, dtype)))
        return made

    def _parameter(self, name: str, variable: Any) -> SymbolicTensor:
        dtype = variable.dtype_options()[0] if name in self.scope.opaque else self._dtype(variable)
        if variable.of is None:
            sizes = self.path.choose(((), (1,)))
        else:
            of, at = self._value_with_sizes(variable.of), variable.at
            if of is None:
                raise UnsupportedError(f"parameters of {variable.of}, which comes later")
            shape = of.shape if isinstance(of, SymbolicTensor) else of
            at = int(self.names[at]) if isinstance(at, str) else at
            if not -len(shape) <= at < len(shape):
                raise InfeasibleError
            sizes = (shape[at],)
        return input_tensor(self.path, name, list(sizes), dtype, _domain(variable, dtype))

    def _integer(self, name: str, variable: Any) -> Any:
        made = Number(self.path, self.path.fresh(name))
        for end, is_low in ((variable.low, True), (variable.high, False)):
            if end is not None:
                limit = integer(self.evaluated(end))
                self.path.assume(made.term >= limit if is_low else made.term <= limit)
        return made

    def _float(self, name: str, variable: Any) -> Scalar:
        made = Scalar(self.path, self.path.fresh(name, z3.RealSort() if self.scope.is_real else DOUBLE))
        for end, is_low in ((variable.low, True), (variable.high, False)):
            if end is None or end in (float("inf"), float("-inf")):
                continue
            options = []
            for limit in {float(end), float(rounded(end))}:
                term = number_term(limit, is_real=self.scope.is_real)
                if self.scope.is_real:
                    options.append(made.term >= term if is_low else made.term <= term)
                else:
                    options.append(z3.fpGEQ(made.term, term) if is_low else z3.fpLEQ(made.term, term))
            self.path.assume(z3.Or(*options))
        return made

    def _scalar(self, name: str, variable: Any) -> Any:
        low, high = variable.low, variable.high
        bools = tuple(one for one in (False, True) if (low is None or one >= low) and (high is None or one <= high))
        kinds = ("float", "int", *bools)
        kind = self.path.choose(kinds)
        if kind == "float":
            return self._float(name, variable)
        if kind != "int":
            return kind
        made = Number(self.path, self.path.fresh(name))
        for end, is_low in ((variable.low, True), (variable.high, False)):
            if end is not None and end not in (float("inf"), float("-inf")):
                limit = z3.RealVal(str(end))
                self.path.assume(z3.ToReal(made.term) >= limit if is_low else z3.ToReal(made.term) <= limit)
        return made

    def _string(self, name: str, variable: Any) -> str:
        if not variable.choices:
            raise UnsupportedError("a string that may be any")
        found: str = self.path.choose(tuple(variable.choices))
        return found

    def _choice(self, name: str, variable: Any) -> Any:
        one = self.path.choose(tuple(variable.choices))
        if isinstance(one, Literal):
            return list(one.value) if isinstance(one.value, tuple) else one.value
        assert isinstance(one, Reference)
        if one.name not in self.names:
            self.names[one.name] = self._value(one.name, self.variables[one.name])
        return self.names[one.name]

    def _dtype_value(self, name: str, variable: Any) -> torch.dtype:
        if variable.same_dtype_as is not None:
            return self._dtype_of(variable.same_dtype_as)
        options = tuple(variable.dtype_options())
        found: torch.dtype = options[0] if self.scope.is_parametric else self.path.choose(options)
        return found

    def _within_dtype(self, name: str, variable: Any) -> Any:
        dtype = self._dtype_of(variable.of)
        if dtype.is_floating_point or dtype == torch.bool:
            raise InfeasibleError
        limits = torch.iinfo(dtype)
        made = Number(self.path, self.path.fresh(name))
        self.path.assume(z3.And(made.term >= limits.min, made.term <= limits.max))
        return made

    def _rank_of(self, name: str) -> int:
        value = self.names.get(name)
        if value is None:
            if name in self.variables:
                raise UnsupportedError(f"dims of {name}, which may be missing")
            value = self._sequence(name)
        return value.dim() if isinstance(value, SymbolicTensor) else len(value)

    def _permutation(self, name: str, variable: Any) -> list[int]:
        options = tuple(itertools.permutations(range(self._rank_of(variable.of))))
        return list(self.path.choose(options))

    def _axes(self, name: str, variable: Any) -> list[int]:
        rank = self._rank_of(variable.of)
        options = [chosen for count in range(rank + 1) for chosen in itertools.permutations(range(rank), count)]
        return list(self.path.choose(tuple(options)))

    def _axis(self, name: str, variable: Any) -> int:
        rank = self._rank_of(variable.of)
        if not rank:
            raise InfeasibleError
        found: int = self.path.choose(tuple(range(-rank, rank)))
        return found

    def _factors(self, name: str, variable: Any) -> list[Any]:
        length = self.path.choose(tuple(range(self.scope.most_dims + 1)))
        self.scope.note(f"sizes in {name}", length)
        made = self._fresh_sizes(name, length)
        of = self.names[variable.of]
        sizes = of.shape if isinstance(of, SymbolicTensor) else of
        self.path.assume(integer(product(made)) == integer(product(sizes)))
        return made

    def _partition(self, name: str, variable: Any) -> list[Any]:
        count = self.path.choose(tuple(range(1, LONGEST_LIST + 1)))
        self.scope.note(f"parts in {name}", count)
        made = self._fresh_sizes(name, count)
        of, at = self.names[variable.of], variable.at
        sizes = of.shape if isinstance(of, SymbolicTensor) else of
        at = int(self.names[at]) if isinstance(at, str) else at
        if not -len(sizes) <= at < len(sizes):
            raise InfeasibleError
        total: Any = 0
        for one in made:
            total = total + one
        self.path.assume(integer(total) == integer(sizes[at]))
        return made

    def _list(self, name: str, variable: Any) -> list[Any]:
        if variable.count is not None:
            count = int(self.evaluated(variable.count))
        else:
            count = self.path.choose(tuple(range(LONGEST_LIST + 2)))
            self.scope.note(f"numbers in {name}", count)
        if variable.element == "bool":
            return [self.path.choose((False, True)) for _ in range(count)]
        if variable.element == "float":
            return [self._float(f"{name}[{at}]", variable) for at in range(count)]
        return [self._integer(f"{name}[{at}]", variable) for at in range(count)]

    def _shape(self, name: str, variable: Any) -> list[Any]:
        length = self.path.choose(tuple(range(self.scope.most_dims + 1)))
        self.scope.note(f"sizes in {name}", length)
        return self._fresh_sizes(name, length)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def _domain(variable: Any, dtype: torch.dtype) -> Any:
    """Return what the type of a tensor says of each element, or None."""
    domain = variable.domain
    if domain is None:
        return None
    if isinstance(domain, ValueSet):
        numbers = [one for one in domain.numbers if fits(one, dtype)]
        return lambda ev, one: [z3.Or(*(ev.equal(one, ev.constant(number, dtype), dtype) for number in numbers))]
    assert isinstance(domain, Interval)
    low, high = domain.limits(dtype)

    def facts(elements: Elements, one: Any) -> list[Any]:
        found = []
        if dtype in BITS:
            limits = torch.iinfo(dtype)
            least = None if low is None or low <= limits.min else low
            greatest = None if high is None or high >= limits.max else high
        else:
            least, greatest = low, high
        if dtype not in FLOATS and dtype not in BITS:
            return []
        if least is not None:
            found.append(z3.Not(elements.less(one, elements.constant(least, dtype), dtype)))
        if greatest is not None:
            found.append(z3.Not(elements.less(elements.constant(greatest, dtype), one, dtype)))
        if found:
            found.append(z3.Not(elements.is_nan(one, dtype)))
        return found

    return facts
