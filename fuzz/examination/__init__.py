"""A program that is exported, lowered and run once for all oracles, and how its results are compared."""

from .comparing import beyond_budget, difference, difference_of_types
from .dialect_runs import DialectRun, compared, dialect_runs, run_dialect
from .emission import emission_fault
from .equivalents import equivalent
from .examination import Examination, FailedError, NotRunError, RejectedError
from .expectations import expectations_of
from .file_runs import run_file
from .graph_runs import GraphFailedError, GraphResult, GraphSession
from .output_layouts import ExpectedLayouts
from .replanning import LAYOUTS, replanned
from .result_comparison import ResultComparison, file_differences
from .stage_audit import audited
from .symptoms import failure_of_error
from .unsupported import UNSUPPORTED
from .verdict import Comparisons, Failure, Verdict

__all__ = [
    "LAYOUTS",
    "UNSUPPORTED",
    "Comparisons",
    "DialectRun",
    "Examination",
    "ExpectedLayouts",
    "FailedError",
    "Failure",
    "GraphFailedError",
    "GraphResult",
    "GraphSession",
    "NotRunError",
    "RejectedError",
    "ResultComparison",
    "Verdict",
    "audited",
    "beyond_budget",
    "compared",
    "dialect_runs",
    "difference",
    "difference_of_types",
    "emission_fault",
    "equivalent",
    "expectations_of",
    "failure_of_error",
    "file_differences",
    "replanned",
    "run_dialect",
    "run_file",
]
