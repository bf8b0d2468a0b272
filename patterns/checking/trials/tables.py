"""Near misses of tables: every row must be read in trials, and with the value of another row results must differ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from exirkit.ir import Diagnostic
from exirkit.patterns.checking.trials.rule_trials import RAISED, RuleTrials, Trial
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.expressions import ExpressionError
from exirkit.patterns.syntax.table_calls import TABLES

_OTHERS = 3


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        table: Name of the table.
        key: What it is looked up by.
    """

    table: str
    key: Any


def rows_of(rule: CompiledRule) -> list[tuple[str, Row]]:
    """Return the rows of the tables that a rule uses, each with its text."""
    return [(f"{name}[{_shown(key)}]", Row(name, key)) for name, rows in rule.tables.items() for key in rows]


def _shown(value: Any) -> str:
    return name_of(value) if hasattr(value, "_schema") else str(value).removeprefix("torch.")


class _Exchanged:
    """Gives one row another value; notes whether that was read."""

    def __init__(self, row: Row, value: Any) -> None:
        self.wanted = row
        self.value = value
        self.is_read = False

    def row(self, table: str, key: Any, value: Any) -> Any:
        """Return the value to use."""
        if Row(table, key) != self.wanted:
            return value
        self.is_read = True
        return self.value


def exchanged_rows(trials: RuleTrials, trial: Trial, row: Row) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield names with which a row has the value of another one, and what that is.

    Nothing is yielded for values for which the rule does not read the row. Where no row has another value, there is
    nothing to exchange, and None is yielded instead of names.
    """
    rows = trials.rule.tables[row.table]
    others: list[Any] = []
    for value in rows.values():
        if value != rows[row.key] and value not in others:
            others.append(value)
    for value in others[:_OTHERS] or [rows[row.key]]:
        probe = _Exchanged(row, value)
        names = {**trial.names, TABLES: probe}
        # With another value it may well fail: what counts is that the row was read.
        with suppress(ExpressionError, *RAISED):
            trials.replaced(names)
        if probe.is_read:
            yield _shown(value), names if others else None


def row_without_witness(rule: CompiledRule, text: str, *, is_tried: bool) -> Diagnostic:
    """Return the diagnostic about a row that trials do not show to be needed, EK229.

    Args:
        rule: The rule.
        text: The row, as `rows_of` names it.
        is_tried: It was read, and the values of other rows made no difference.
    """
    what = "gives the same results with the value of another row" if is_tried else "is never read in trials"
    return rule.texts.rule.diagnostic(
        "EK229",
        f"rule {rule.id}: the row {text} {what}",
        length=len(rule.id),
        hint="list it under `verify: {skip: ...}` with the reason" if is_tried else "let the types draw its key",
    )
