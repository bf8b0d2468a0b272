"""Making programs that are valid by construction."""

from .choices import Choices, DrawnChoices, SeededChoices
from .features import Measurement, features_of, measure
from .generating import generate, generate_from, generate_with_facts, require_programs
from .method.values import Fact
from .operators.catalogue import Operator, read_operators, shipped_operators
from .patterns.models import ExamplePlants
from .patterns.programs import SURROUNDINGS, PlantedProgram, generate_planted, planted_from
from .patterns.rule_programs import from_rule, near_misses
from .patterns.sources import WAYS, Plant, PlantSource, RulePlants, Way
from .patterns.user_patterns import Pattern, sources_of
from .policy import CONTROL_FLOW, FLOORS, Plan, Policy, ieee_policy
from .strategies import program_strategy, programs

__all__ = [
    "CONTROL_FLOW",
    "FLOORS",
    "SURROUNDINGS",
    "WAYS",
    "Choices",
    "DrawnChoices",
    "ExamplePlants",
    "Fact",
    "Measurement",
    "Operator",
    "Pattern",
    "Plan",
    "Plant",
    "PlantSource",
    "PlantedProgram",
    "Policy",
    "RulePlants",
    "SeededChoices",
    "Way",
    "features_of",
    "from_rule",
    "generate",
    "generate_from",
    "generate_planted",
    "generate_with_facts",
    "ieee_policy",
    "measure",
    "near_misses",
    "planted_from",
    "program_strategy",
    "programs",
    "read_operators",
    "require_programs",
    "shipped_operators",
    "sources_of",
]
