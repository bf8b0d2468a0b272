"""Making programs that are valid by construction."""

from .choices import Choices, DrawnChoices, SeededChoices
from .generating import generate, generate_from, generate_with_facts
from .operator_catalogue import Operator, read_operators, shipped_operators
from .policy import FLOORS, Plan, Policy
from .values import Fact

__all__ = [
    "FLOORS",
    "Choices",
    "DrawnChoices",
    "Fact",
    "Operator",
    "Plan",
    "Policy",
    "SeededChoices",
    "generate",
    "generate_from",
    "generate_with_facts",
    "read_operators",
    "shipped_operators",
]
