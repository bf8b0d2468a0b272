"""What must hold for every program, from cheap to dear."""

from .comparing import difference_of_types
from .compilers import Compiler, ExirkitCompiler, FunctionCompiler, Lowering, compiler_of, every_choice
from .drawn_choices import drawn_choices, simpler_choices
from .equivalents import equivalent
from .examination import Examination, FailedError, NotRunError, RefusedError
from .graph_runs import GraphFailedError, GraphResult, GraphSession
from .ladder import RUNGS, USUAL_RUNGS, check, examine, rungs_of
from .lowering_trace import LoweringTrace, Snapshot, name_of_pass
from .named_parts import place_pipelines, rules_of_book, rules_of_pipeline
from .official_compiler import OfficialCompiler, OfficialExportError
from .refusals import REFUSALS
from .rung import ResultComparison, Rung
from .rungs_of_graphs import DialectRun, compared, run_dialect
from .rungs_of_plans import LAYOUTS, replanned
from .verdict import Comparisons, Failure, Verdict

__all__ = [
    "LAYOUTS",
    "REFUSALS",
    "RUNGS",
    "USUAL_RUNGS",
    "Comparisons",
    "Compiler",
    "DialectRun",
    "Examination",
    "ExirkitCompiler",
    "FailedError",
    "Failure",
    "FunctionCompiler",
    "GraphFailedError",
    "GraphResult",
    "GraphSession",
    "Lowering",
    "LoweringTrace",
    "NotRunError",
    "OfficialCompiler",
    "OfficialExportError",
    "RefusedError",
    "ResultComparison",
    "Rung",
    "Snapshot",
    "Verdict",
    "check",
    "compared",
    "compiler_of",
    "difference_of_types",
    "drawn_choices",
    "equivalent",
    "every_choice",
    "examine",
    "name_of_pass",
    "place_pipelines",
    "replanned",
    "rules_of_book",
    "rules_of_pipeline",
    "run_dialect",
    "rungs_of",
    "simpler_choices",
]
