"""The mutation bench: bugs that are planted on purpose, to see whether generator, oracles and blame find them."""

from .bench import MutationBenchOptions, run_mutant, run_mutation_bench
from .model import Mutant, mutant, shipped_mutants
from .observing import changes, observed
from .planting import Reach, planted
from .results import MutantResult, mutant_table

__all__ = [
    "Mutant",
    "MutantResult",
    "MutationBenchOptions",
    "Reach",
    "changes",
    "mutant",
    "mutant_table",
    "observed",
    "planted",
    "run_mutant",
    "run_mutation_bench",
    "shipped_mutants",
]
