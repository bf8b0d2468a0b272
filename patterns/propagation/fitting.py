"""Which row says what a call does, and what it says of each tensor; for calls of trials and of programs alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exirkit.ir import split_arguments, value_of
from exirkit.patterns.syntax.terms import Operator

from .compilation import holds_tensors, is_covered_kind

if TYPE_CHECKING:
    from .declaration import Propagation, Transfer


@dataclass(frozen=True)
class Slot:
    """One tensor argument of a call.

    Attributes:
        name: Name of the argument.
        index: Its place in a list of tensors; None if the argument is the tensor.
        tensor: The tensor, or the node behind it.
    """

    name: str
    index: int | None
    tensor: Any


def slots_of(op: Operator, named: Mapping[str, Any]) -> Iterator[Slot]:
    """Yield the tensor arguments of a call, given all its arguments by name."""
    for argument in op._schema.arguments:
        value = named.get(argument.name)
        if value is None or not holds_tensors(argument):
            continue
        if isinstance(value, list | tuple):
            yield from (Slot(argument.name, at, one) for at, one in enumerate(value) if is_tensor(one))
        elif is_tensor(value):
            yield Slot(argument.name, None, value)


def with_tensors(named: Mapping[str, Any], tensors: Mapping[tuple[str, int | None], Any]) -> dict[str, Any]:
    """Return arguments with other tensors, by the name and index of their slots."""
    made = {name: list(value) if isinstance(value, list | tuple) else value for name, value in named.items()}
    for (name, index), tensor in tensors.items():
        if index is None:
            made[name] = tensor
        else:
            made[name][index] = tensor
    return made


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor, or a node that stands for one."""
    return is_covered_kind(value_of(value))


def results_in(value: Any) -> list[Any]:
    """Return the tensors that a call gives."""
    return [one for one in (value if isinstance(value, list | tuple) else (value,)) if is_covered_kind(one)]


def row_for(made: Propagation, op: Operator, named: Mapping[str, Any], result: Any) -> Transfer | None:
    """Return the first row that fits a call, or None.

    Args:
        made: The propagation.
        op: Operator.
        named: All arguments by name: tensors, or nodes.
        result: What the call gives: a tensor, or several.
    """
    return next((row for row in made.rows_of.get(op, ()) if fits(made, row, op, named, result)), None)


def fits(made: Propagation, row: Transfer, op: Operator, named: Mapping[str, Any], result: Any) -> bool:
    """Return whether a row speaks of a call.

    Its conditions hold, and tensors that it gives another value than the first are those that can have one; of several
    results, some.
    """
    results = results_in(result)
    names = made.answered({**named, "result": results[0] if results else None})
    if not all(one.holds(names) for one in row.where):
        return False
    said = row.model.result or made.first
    if said != made.first and not any(map(made.covers, results)):
        return False
    return all(
        row.of_argument(slot.name, made.first) == made.first or made.covers(slot.tensor) or made.is_neutral(slot.tensor)
        for slot in slots_of(op, named)
    )


def called(op: Operator, named: Mapping[str, Any]) -> Any:
    """Return the results of a call whose arguments have names."""
    args, kwargs = split_arguments(op, named)
    return op(*args, **kwargs)
