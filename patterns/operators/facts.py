"""Facts about operators for rules: which arguments commute, which are dims, families; from the operator catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from exirkit.ir import catalogue, underlying
from exirkit.patterns.operators.table import OperatorTable
from exirkit.patterns.syntax.terms import Operator

Family = Literal[
    "unary_pointwise",
    "pointwise",
    "copy_like",
    "views",
    "reductions",
    "quantize",
    "dequantize",
    "creates",
    "undefined_for_empty",
]
FAMILIES: tuple[Family, ...] = (
    "unary_pointwise", "pointwise", "copy_like", "views", "reductions", "quantize", "dequantize",
)  # fmt: skip


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CommutesForm(_Form):
    """Two arguments that may be exchanged."""

    arguments: tuple[str, str]
    when: dict[str, int | float | bool] = {}


class DimsForm(_Form):
    """Arguments that count dims: of the first tensor, or of the result, which has one more."""

    of_tensor: dict[str, tuple[str, ...]]
    of_result: dict[str, tuple[str, ...]]


class FactsForm(_Form):
    """The facts of all operators."""

    commutes: dict[str, CommutesForm]
    dims: DimsForm
    pairs: dict[str, tuple[str, ...]]
    defaults: dict[str, dict[str, str]]
    families: dict[Family, tuple[str, ...]]


@dataclass(frozen=True)
class Traits:
    """Facts of one operator.

    Attributes:
        commutes: Pairs of arguments that may be exchanged, and the condition on the others.
        dims: Arguments that count dims.
        new_dims: How many dims the result has more than the first tensor, for counting `dims`.
        pairs: Lists in which one element stands for two.
        moves_data: It computes nothing: values come out as they went in.
        defaults: What arguments mean that have their defaults.
    """

    commutes: tuple[tuple[str, str, Callable[[Mapping[str, Any]], bool] | None], ...] = ()
    dims: frozenset[str] = frozenset()
    new_dims: int = 0
    pairs: frozenset[str] = frozenset()
    moves_data: bool = False
    defaults: Mapping[str, str] = field(default_factory=dict)

    @property
    def copy_like(self) -> bool:
        """Whether it only moves data."""
        return self.moves_data


_NOTHING = Traits()


@cache
def shipped_facts() -> FactsForm:
    """Return what the operator catalogue states for rules."""
    entries = sorted(catalogue().items())
    return FactsForm(
        commutes={name: CommutesForm(**facts.commutes.model_dump()) for name, facts in entries if facts.commutes},
        dims=DimsForm(
            of_tensor={name: facts.dims for name, facts in entries if facts.dims},
            of_result={name: facts.result_dims for name, facts in entries if facts.result_dims},
        ),
        pairs={name: facts.pairs for name, facts in entries if facts.pairs},
        defaults={name: facts.defaults for name, facts in entries if facts.defaults},
        families={
            family: tuple(name for name, facts in entries if family in facts.traits) for family in get_args(Family)
        },
    )


@cache
def _table() -> dict[Operator, Traits]:
    facts, find = shipped_facts(), OperatorTable().find
    moving = {*facts.families["copy_like"], *facts.families["views"], "aten.cat.default", "aten.stack.default"}
    of_result = facts.dims.of_result
    names = [*facts.commutes, *facts.dims.of_tensor, *of_result, *facts.pairs, *facts.defaults, *sorted(moving)]
    table: dict[Operator, Traits] = {}
    for name in dict.fromkeys(names):
        pair = facts.commutes.get(name)
        commutes = () if pair is None else ((*pair.arguments, _condition(pair.when)),)
        dims = facts.dims.of_tensor.get(name) or of_result.get(name, ())
        table[find(name)] = Traits(
            commutes, frozenset(dims), int(name in of_result), frozenset(facts.pairs.get(name, ())), name in moving,
            facts.defaults.get(name, {}),
        )  # fmt: skip
    return table


def _condition(when: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool] | None:
    if not when:
        return None
    return lambda arguments: all(arguments[name] == value for name, value in when.items())


def traits_of(op: Operator) -> Traits:
    """Return the facts of an operator, or of the one behind a handle."""
    return _table().get(underlying(op), _NOTHING)


@cache
def operators_with(family: str) -> tuple[Operator, ...]:
    """Return the operators of a family, by name.

    Raises:
        LookupError: There is no such family.
    """
    known = shipped_facts().families
    if family not in known:
        raise LookupError(f"there is no family {family!r}")
    return tuple(OperatorTable().find(name) for name in known[family])
