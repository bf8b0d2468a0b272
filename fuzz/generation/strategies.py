"""Programs as a hypothesis strategy: failures shrink to few calls, small sizes and plain dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from exirkit.fuzz.programs import Program
from exirkit.ir import Diagnostic, UsageError
from exirkit.patterns import CompiledRule

from .choices import DrawnChoices
from .generating import generate_from
from .patterns.programs import program_with_pattern
from .patterns.sources import WAYS
from .patterns.user_patterns import Pattern, sources_of
from .policy import Policy

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

# Of values; an instance is made for each.
_NUMBERS = 199


def programs(
    policy: Policy | None = None,
    *,
    pattern: Pattern | Sequence[Pattern] = (),
    examples: Iterable[tuple[Any, Sequence[Any]]] = (),
    rules: Iterable[CompiledRule] = (),
) -> SearchStrategy[Program]:
    """Return a strategy for programs that are valid by construction.

    With patterns, models or rules, each program has one of them in it, or a near miss of one.

    Args:
        policy: What programs are to contain, or what is around that which is insertion.
        pattern: A pattern, or several: a mapping with `vars`, `match` and perhaps `where`.
        examples: Models, each with its inputs.
        rules: Rules whose patterns are insertion.

    Raises:
        UsageError: EK822: hypothesis is not installed; EK875, EK876: something cannot be insertion.
        ModelError: What is wrong with a pattern.
    """
    try:
        from hypothesis import strategies
    except ImportError as error:
        raise UsageError(
            Diagnostic(
                code="EK822",
                message="strategies for programs need hypothesis, which is not installed",
                expected="`pip install hypothesis`, or `generate(seed)`, which needs nothing",
            )
        ) from error
    sources = sources_of(pattern, examples, rules)
    ways = [way for way in dict.fromkeys(WAYS) if way is not None]

    @strategies.composite
    def drawn(draw: DrawFn) -> Program:
        choices = DrawnChoices(lambda low, high: draw(strategies.integers(low, high)))
        if not sources:
            return generate_from(choices, policy or Policy())
        source, way, number = choices.pick(sources), choices.pick(ways), choices.integer(0, _NUMBERS)
        return program_with_pattern(choices, source, way, number, policy).program

    return drawn()


program_strategy = programs
"""The name under which `exirkit.fuzz` has the strategy; `exirkit.fuzz.programs` is the room of programs."""
