"""Conditions in the language of rules for what is not a rule: a policy that asks for properties of one value."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from exirkit.ir import ModelError, SourceText
from exirkit.patterns.functions.graph import GraphFacts
from exirkit.patterns.operators.table import OperatorTable
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.expressions import Compiled, ExpressionError, truth
from exirkit.patterns.syntax.programs import Scope, compile_guard


@dataclass(frozen=True)
class Condition:
    """A compiled condition.

    Attributes:
        text: As it was written, with its place.
        compute: Evaluates it.
        needs: Names that it mentions.
    """

    text: SourceText
    compute: Compiled
    needs: frozenset[str] = frozenset()

    def holds(self, facts: GraphFacts, **names: Any) -> bool:
        """Return whether the condition is true; one that sizes leave open is not.

        Args:
            facts: What the condition may ask about the graph.
            names: The values that it names.

        Raises:
            ModelError: EK223, it has no value here.
        """
        try:
            return truth(self.compute({**names, FACTS: facts})) is True
        except ExpressionError as error:
            scope = Scope(OperatorTable())
            scope.complain_of(self.text, "EK223", error)
            raise ModelError(scope.found) from None


def compile_condition(text: SourceText, names: Collection[str]) -> Condition:
    """Compile a condition over the given names.

    Raises:
        ModelError: EK220, it is not in the language, or names something else.
    """
    scope = Scope(OperatorTable())
    made = compile_guard(text, scope)
    if made is None:
        raise ModelError(scope.found)
    compute, needs, _ = made
    unknown = sorted(needs - set(names) - {FACTS})
    if unknown:
        scope.complain(text, "EK220", f"{unknown[0]!r} has no meaning here", None, f"it may name {', '.join(names)}")
        raise ModelError(scope.found)
    return Condition(text, compute, frozenset(needs - {FACTS}))
