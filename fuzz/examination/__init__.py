"""A program that is exported, lowered and run once for all oracles, and how its results are compared."""

from .comparing import difference_of_types
from .equivalents import equivalent
from .examination import Examination, FailedError, NotRunError, RefusedError
from .graph_runs import GraphFailedError, GraphResult, GraphSession
from .unsupported import REFUSALS
from .verdict import Comparisons, Failure, Verdict

__all__ = [
    "REFUSALS",
    "Comparisons",
    "Examination",
    "FailedError",
    "Failure",
    "GraphFailedError",
    "GraphResult",
    "GraphSession",
    "NotRunError",
    "RefusedError",
    "Verdict",
    "difference_of_types",
    "equivalent",
]
