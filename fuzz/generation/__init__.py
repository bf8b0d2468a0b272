"""Making programs that are valid by construction."""

from .choices import Choices, DrawnChoices, SeededChoices
from .examples import ExamplePlants
from .features import Measurement, features_of, measure
from .generating import generate, generate_from, generate_with_facts, require_programs
from .operator_catalogue import Operator, read_operators, shipped_operators
from .planting import SURROUNDINGS, PlantedProgram, generate_planted, planted_from
from .plants import WAYS, Plant, PlantSource, RulePlants, Way
from .policy import CONTROL_FLOW, FLOORS, Plan, Policy, ieee_policy
from .rule_programs import from_rule, near_misses
from .standalone_plants import Pattern, sources_of
from .strategies import program_strategy, programs
from .values import Fact

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
