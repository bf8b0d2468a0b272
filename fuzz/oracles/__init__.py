"""What must hold for every program, from cheap to dear."""

from exirkit.fuzz.compilers.compilers import (
    Compiler,
    ExirkitCompiler,
    FunctionCompiler,
    Lowering,
    compiler_of,
    every_choice,
)
from exirkit.fuzz.compilers.drawn_choices import drawn_choices, simpler_choices
from exirkit.fuzz.compilers.lowering_trace import LoweringTrace, Snapshot, name_of_pass
from exirkit.fuzz.compilers.named_parts import place_pipelines, rules_of_book, rules_of_pipeline
from exirkit.fuzz.compilers.official_compiler import OfficialCompiler, OfficialExportError
from exirkit.fuzz.examination.comparing import difference_of_types
from exirkit.fuzz.examination.equivalents import equivalent
from exirkit.fuzz.examination.examination import Examination, FailedError, NotRunError, RefusedError
from exirkit.fuzz.examination.graph_runs import GraphFailedError, GraphResult, GraphSession
from exirkit.fuzz.examination.unsupported import REFUSALS
from exirkit.fuzz.examination.verdict import Comparisons, Failure, Verdict

from .ladder import RUNGS, USUAL_RUNGS, check, examine, rungs_of
from .rung import ResultComparison, Rung
from .rungs_of_graphs import DialectRun, compared, run_dialect
from .rungs_of_plans import LAYOUTS, replanned

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
