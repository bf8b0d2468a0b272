"""The mutation bench: mutants of the compiler, to measure whether generator, oracles and triage find them."""

from .applying import Reach, applied
from .bench import MutationBenchOptions, run_mutant, run_mutation_bench
from .model import Mutant, mutant, shipped_mutants
from .observing import changes, observed
from .results import MutantResult, mutant_table

__all__ = [
    "Mutant",
    "MutantResult",
    "MutationBenchOptions",
    "Reach",
    "applied",
    "changes",
    "mutant",
    "mutant_table",
    "observed",
    "run_mutant",
    "run_mutation_bench",
    "shipped_mutants",
]
