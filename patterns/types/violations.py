"""Near misses: samples in which one variable breaks one promise of its type, and so must not be admitted."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .admission import admit_all
from .dtypes import DTYPE_CLASSES, DTYPE_NAMES
from .list_values import ValueMaker
from .literals import Interval, ValueSet, fits
from .sampling import Sample
from .solving import UnsolvedError
from .variables import (
    AboutVariable,
    AxesVariable,
    AxisVariable,
    BoolVariable,
    ChoiceVariable,
    DimsVariable,
    DtypeVariable,
    FactorsVariable,
    FloatVariable,
    IntVariable,
    ListVariable,
    PartitionVariable,
    PermutationVariable,
    ScalarVariable,
    ShapeVariable,
    StringVariable,
    TensorListVariable,
    TensorVariable,
    Variable,
)

Change = tuple[str, Any]


@dataclass(frozen=True)
class Violation:
    """A sample that breaks a promise.

    Attributes:
        variable: Whose.
        what: Which, in words.
        sample: The sample.
    """

    variable: str
    what: str
    sample: Sample


def violations(variable: Variable, sample: Sample, rng: random.Random) -> list[Violation]:
    """Return near misses of a sample.

    Args:
        variable: Whose type is broken.
        sample: A sample that is admitted.
        rng: Source of chance.

    Returns:
        One for each promise that can be broken; whatever happens to be another legal sample is left out.
    """
    found: list[Violation] = []
    seen: set[str] = set()
    for what, value in _changes(variable, sample.values[variable.name], rng):
        if what in seen:
            continue
        broken = _repaired(sample.with_value(variable.name, value), variable.name, rng)
        if admit_all(sample.variables, broken.values) is None:
            seen.add(what)
            found.append(Violation(variable.name, what, broken))
    return found


def _repaired(sample: Sample, name: str, rng: random.Random) -> Sample:
    """Draw again what is about the changed value, so that only one promise is broken."""
    for other, variable in sample.variables.items():
        if isinstance(variable, AboutVariable) and variable.of == name and sample.values[other] is not None:
            maker = ValueMaker(rng, "normal", {**sample.symbols, **sample.values})
            try:
                sample = sample.with_value(other, maker.make(variable))
            except UnsolvedError:
                continue
    return sample


def _changes(variable: Variable, value: Any, rng: random.Random) -> Iterator[Change]:
    if value is None:
        return
    if not variable.allows_none:
        yield "none where a value must be", None
    if isinstance(variable, TensorVariable):
        yield from _tensor_changes(variable, value, rng)
    elif isinstance(variable, TensorListVariable):
        yield "an empty list", []
        for what, changed in _tensor_changes(variable.element, value[-1], rng):
            yield f"last tensor: {what}", [*value[:-1], changed]
        if variable.count is not None:
            yield "a tensor too many", [*value, value[-1]]
    elif type(variable) in _CHANGES:
        yield from _CHANGES[type(variable)](variable, value)


# Tensors


def _tensor_changes(variable: TensorVariable, value: torch.Tensor, rng: random.Random) -> Iterator[Change]:
    members = variable.dtypes.member_set or {value.dtype}
    others = [dtype for name, dtype in DTYPE_NAMES.items() if name in (*DTYPE_CLASSES["any"], "c64")]
    outside = [dtype for dtype in others if dtype not in members]
    for dtype in rng.sample(outside, min(2, len(outside))):
        yield f"dtype {str(dtype).removeprefix('torch.')}", _plain(value).to(dtype)
    yield "a number instead of a tensor", 1.0
    yield "one dim more", value.unsqueeze(0)
    if value.dim():
        yield "one dim fewer", value.new_zeros(value.shape[1:])
    for dim in range(value.dim()):
        yield f"another size of dim {dim}", resized(value, dim, value.shape[dim] + 1)
        if value.shape[dim] > 2:
            yield f"another size of dim {dim}", resized(value, dim, value.shape[dim] - 1)
    if variable.domain is not None and value.numel():
        yield from _domain_changes(variable.domain, value)


def _plain(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor without what other dtypes cannot hold, so that conversion warns of nothing."""
    if value.dtype.is_complex:
        return value.real
    return torch.nan_to_num(value, 0.0, 1.0, -1.0).clamp(-100, 100) if value.is_floating_point() else value


def resized(value: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """Return a tensor with another size of one dim, elements repeated as needed."""
    if value.shape[dim] == 0:
        sizes = list(value.shape)
        sizes[dim] = size
        return value.new_ones(sizes)
    return value.index_select(dim, torch.arange(size) % value.shape[dim])


def _domain_changes(domain: Interval | ValueSet, value: torch.Tensor) -> Iterator[Change]:
    numbers: list[float] = [2, 3, -1, 0, 0.5, 7]
    if isinstance(domain, Interval):
        low, high = domain.low, domain.high
        numbers = ([] if low is None else [low - 1]) + ([] if high is None else [high + 1])
    if value.dtype.is_floating_point:
        numbers.append(math.nan)
    for number in numbers:
        if math.isinf(number) or not fits(number, value.dtype):
            continue
        changed = value.clone()
        changed[(0,) * value.dim()] = number
        if not domain.holds_for(changed):
            yield f"an element {number}", changed


# All else


def _int_changes(variable: IntVariable, value: int) -> Iterator[Change]:
    yield from _outside(variable, value, 1)
    yield "a float instead of an int", float(value)
    yield "a bool instead of an int", bool(value)


def _float_changes(variable: FloatVariable, value: float) -> Iterator[Change]:
    yield from _outside(variable, value, 0.5)
    yield "an int instead of a float", 1
    yield "a bool instead of a float", True


def _scalar_changes(variable: ScalarVariable, value: float) -> Iterator[Change]:
    yield from _outside(variable, value, 0.5)
    yield "a text instead of a number", "1"


def _outside(variable: IntVariable | FloatVariable | ScalarVariable, value: Any, step: float) -> Iterator[Change]:
    """Yield numbers below and above; how far bounds are that names decide, doubling finds."""
    for bound, sign, word in ((variable.low, -1, "below"), (variable.high, 1, "above")):
        if bound is None:
            continue
        if isinstance(bound, float):
            yield f"a number {word} the bound", bound + sign * max(step, abs(bound))
            continue
        for power in range(12):
            yield f"a number {word} the bound", value + sign * int(step) * (1 << power)


def _bool_changes(variable: BoolVariable, value: bool) -> Iterator[Change]:
    yield "an int instead of a bool", int(value)


def _string_changes(variable: StringVariable, value: str) -> Iterator[Change]:
    yield "a number instead of a text", 0
    if variable.choices:
        yield "another text", value + "_"


def _list_changes(variable: ListVariable, value: list[Any]) -> Iterator[Change]:
    filler = {"int": 1, "float": 1.0, "bool": True}[variable.element]
    yield "an element more", [*value, value[-1] if value else filler]
    if not value:
        return
    yield "an element fewer", value[:-1]
    yield "an element of another type", [*value[:-1], "1"]
    if variable.element == "int":
        yield "a float among ints", [*value[:-1], float(value[-1])]
    if variable.element == "bool":
        return
    inner = IntVariable if variable.element == "int" else FloatVariable
    bounds: Any = inner(name=variable.name, low=variable.low, high=variable.high)  # type: ignore[arg-type]
    for what, changed in _outside(bounds, value[-1], 1 if variable.element == "int" else 0.5):
        yield f"an element: {what}", [*value[:-1], changed]


def _shape_changes(variable: ShapeVariable, value: list[int]) -> Iterator[Change]:
    yield "a negative size", [*value, -1]
    yield "a number instead of a list", 3


def _choice_changes(variable: ChoiceVariable, value: Any) -> Iterator[Change]:
    if isinstance(value, bool):
        yield "the other truth", not value
        yield "an int instead of a bool", int(value)
    elif isinstance(value, int | float):
        yield "another number", value + 1
        yield "another number", value + 17
        yield "the same number in another type", float(value) if isinstance(value, int) else int(value) if (
            math.isfinite(value)) else 0  # fmt: skip
    elif isinstance(value, list):
        yield "another list", [*value, *value[:1], 0]
    yield "another text", "something else"


def _permutation_changes(variable: Variable, value: list[int]) -> Iterator[Change]:
    yield "a dim too many", [*value, len(value)]
    if len(value) >= 1:
        yield "a dim too few", [one for one in value if one != len(value) - 1]
        yield "a dim twice", [*value[:-1], value[0]]


def _axes_changes(variable: Variable, value: list[int]) -> Iterator[Change]:
    yield "a dim that is not there", [*value, 99]
    yield "a negative dim", [*value, -99]
    if value:
        yield "a dim twice", [*value, value[0]]


def _axis_changes(variable: Variable, value: int) -> Iterator[Change]:
    yield "a dim that is not there", 99
    yield "a negative dim that is not there", -99


def _factors_changes(variable: FactorsVariable, value: list[int]) -> Iterator[Change]:
    yield "more elements", [*value, 2]
    yield "no elements", [*value, 0]
    yield "another number of elements", [1] if 0 in value else [*value, 3]


def _partition_changes(variable: PartitionVariable, value: list[int]) -> Iterator[Change]:
    yield "parts that are too large together", [*value, 1]
    yield "a negative part", [*value, 1, -1]
    yield "no part", []


def _dims_changes(variable: DimsVariable, value: list[int]) -> Iterator[Change]:
    yield "a size more", [*value, 1]
    if value:
        yield "another size", [*value[:-1], value[-1] + 1]


def _dtype_changes(variable: DtypeVariable, value: torch.dtype) -> Iterator[Change]:
    yield "a text instead of a dtype", str(value)
    for dtype in (torch.complex128, torch.float32, torch.int64):
        yield f"dtype {str(dtype).removeprefix('torch.')}", dtype


_CHANGES: dict[type[Variable], Callable[[Any, Any], Iterator[Change]]] = {
    IntVariable: _int_changes,
    FloatVariable: _float_changes,
    ScalarVariable: _scalar_changes,
    BoolVariable: _bool_changes,
    StringVariable: _string_changes,
    ListVariable: _list_changes,
    ShapeVariable: _shape_changes,
    ChoiceVariable: _choice_changes,
    FactorsVariable: _factors_changes,
    PartitionVariable: _partition_changes,
    PermutationVariable: _permutation_changes,
    AxesVariable: _axes_changes,
    AxisVariable: _axis_changes,
    DimsVariable: _dims_changes,
    DtypeVariable: _dtype_changes,
}
