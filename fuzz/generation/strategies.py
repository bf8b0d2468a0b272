"""Programs as a hypothesis strategy: failures shrink to few calls, small sizes and plain dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exirkit.fuzz.programs import Program
from exirkit.ir import Diagnostic, UsageError

from .choices import DrawnChoices
from .generating import generate_from
from .policy import Policy

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy


def programs(policy: Policy | None = None) -> SearchStrategy[Program]:
    """Return a strategy for programs that are valid by construction.

    Args:
        policy: What programs are to contain.

    Raises:
        UsageError: EK822: hypothesis is not installed.
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
    chosen = policy or Policy()

    @strategies.composite
    def drawn(draw: DrawFn) -> Program:
        return generate_from(DrawnChoices(lambda low, high: draw(strategies.integers(low, high))), chosen)

    return drawn()
