"""Making programs that are valid by construction."""

from .choices import Choices, DrawnChoices, SeededChoices
from .features import Measurement, features_of, measure
from .generating import generate, generate_from, generate_with_facts
from .operator_catalogue import Operator, read_operators, shipped_operators
from .policy import FLOORS, Plan, Policy
from .rule_programs import from_rule, near_misses
from .strategies import programs
from .values import Fact

__all__ = [
    "FLOORS",
    "Choices",
    "DrawnChoices",
    "Fact",
    "Measurement",
    "Operator",
    "Plan",
    "Policy",
    "SeededChoices",
    "features_of",
    "from_rule",
    "generate",
    "generate_from",
    "generate_with_facts",
    "measure",
    "near_misses",
    "programs",
    "read_operators",
    "shipped_operators",
]
