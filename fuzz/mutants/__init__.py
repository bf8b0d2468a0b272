"""The mutation bench: bugs that are planted on purpose, to see whether generator, oracles and blame find them."""

from .bench import BenchOptions, run_bench, run_mutant
from .model import Mutant, mutant, shipped_mutants
from .observing import changes, observed
from .planting import Reach, planted
from .results import MutantResult, table_of

__all__ = [
    "BenchOptions",
    "Mutant",
    "MutantResult",
    "Reach",
    "changes",
    "mutant",
    "observed",
    "planted",
    "run_bench",
    "run_mutant",
    "shipped_mutants",
    "table_of",
]
