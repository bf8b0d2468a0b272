"""Making programs that are valid by construction."""

from .choices import Choices, DrawnChoices, SeededChoices
from .features import Measurement, features_of, measure
from .focus import CHOICE, Focus, focusable
from .generating import generate, generate_from, generate_with_facts, require_programs
from .method.values import Fact
from .operators.catalogue import Operator, read_operators, shipped_operators
from .patterns.models import ModelPatterns
from .patterns.programs import (
    SURROUNDINGS,
    ProgramWithPattern,
    from_rule,
    generate_with_pattern,
    near_misses,
    program_with_pattern,
)
from .patterns.sources import WAYS, Candidate, PatternSource, RulePatterns, Way
from .patterns.user_patterns import Pattern, sources_of
from .policy import CONTROL_FLOW, FLOORS, QUANTIZATION, Plan, Policy, ieee_policy, shipped_policies
from .seed_corpus import is_of_corpus, program_of, seed_of_choices
from .strategies import program_strategy, programs

__all__ = [
    "CHOICE",
    "CONTROL_FLOW",
    "FLOORS",
    "QUANTIZATION",
    "SURROUNDINGS",
    "WAYS",
    "Candidate",
    "Choices",
    "DrawnChoices",
    "Fact",
    "Focus",
    "Measurement",
    "ModelPatterns",
    "Operator",
    "Pattern",
    "PatternSource",
    "Plan",
    "Policy",
    "ProgramWithPattern",
    "RulePatterns",
    "SeededChoices",
    "Way",
    "features_of",
    "focusable",
    "from_rule",
    "generate",
    "generate_from",
    "generate_with_facts",
    "generate_with_pattern",
    "ieee_policy",
    "is_of_corpus",
    "measure",
    "near_misses",
    "program_of",
    "program_strategy",
    "program_with_pattern",
    "programs",
    "read_operators",
    "require_programs",
    "seed_of_choices",
    "shipped_operators",
    "shipped_policies",
    "sources_of",
]
