"""A program that is exported, lowered and run once for all oracles, and how its results are compared."""

from .comparing import Budget, beyond_budget, difference, difference_of_types
from .dialect_runs import DialectRun, compared, dialect_runs, run_dialect
from .emission import emission_fault
from .equivalents import equivalent
from .examination import Examination, FailedError, NotRunError, RejectedError
from .expectations import expectations_of
from .file_runs import run_file, run_in_turn
from .graph_runs import GraphFailedError, GraphResult, GraphSession
from .output_layouts import ExpectedLayouts
from .relations import differing_outputs, failures_of_relative
from .relatives import Relative, halves, renamed, reordered, with_dead_code
from .replanning import LAYOUTS, replanned
from .result_comparison import ResultComparison, file_differences
from .stage_audit import audited, watch_stages
from .symptoms import failure_of_error, was_met_before
from .unsupported import UNSUPPORTED
from .verdict import Comparisons, Failure, Verdict

__all__ = [
    "LAYOUTS",
    "UNSUPPORTED",
    "Budget",
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
    "Relative",
    "ResultComparison",
    "Verdict",
    "audited",
    "beyond_budget",
    "compared",
    "dialect_runs",
    "difference",
    "difference_of_types",
    "differing_outputs",
    "emission_fault",
    "equivalent",
    "expectations_of",
    "failure_of_error",
    "failures_of_relative",
    "file_differences",
    "halves",
    "renamed",
    "reordered",
    "replanned",
    "run_dialect",
    "run_file",
    "run_in_turn",
    "was_met_before",
    "watch_stages",
    "with_dead_code",
]
