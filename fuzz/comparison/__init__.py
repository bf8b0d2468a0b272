"""From a difference between a model and what it is lowered to, to the pass, rule, node and instruction behind it."""

from .comparing import (
    ComparedFile,
    MethodComparison,
    OutputGap,
    RuntimeDifference,
    compare_method,
    drawn_inputs,
    eager_outputs,
    is_own_file,
)
from .eager_gap import InstructionGap, MethodGap, gap_to_eager, record_of, with_debug_handles
from .eager_times import profile_eagerly
from .file_values import InstructionValues, Official, RuntimeResult, WrongInstruction, run_reference
from .first_wrong import (
    MethodJudge,
    NodePlace,
    WrongNode,
    WrongStep,
    first_false_step,
    first_wrong_node,
    first_wrong_step,
    place_of,
    results_of,
)
from .lowering_steps import LoweringChoices, LoweringSteps, lower_in_steps
from .measured_report import MeasuredReport, lower_recorded, measured_gaps, measured_times, write_measured_report
from .traced_runs import NotTracedError, Traced, TracedRuntime, trace_runs
from .value_gaps import Tolerances, ValueGap, gap_of

__all__ = [
    "ComparedFile",
    "InstructionGap",
    "InstructionValues",
    "LoweringChoices",
    "LoweringSteps",
    "MeasuredReport",
    "MethodComparison",
    "MethodGap",
    "MethodJudge",
    "NodePlace",
    "NotTracedError",
    "Official",
    "OutputGap",
    "RuntimeDifference",
    "RuntimeResult",
    "Tolerances",
    "Traced",
    "TracedRuntime",
    "ValueGap",
    "WrongInstruction",
    "WrongNode",
    "WrongStep",
    "compare_method",
    "drawn_inputs",
    "eager_outputs",
    "first_false_step",
    "first_wrong_node",
    "first_wrong_step",
    "gap_of",
    "gap_to_eager",
    "is_own_file",
    "lower_in_steps",
    "lower_recorded",
    "measured_gaps",
    "measured_times",
    "place_of",
    "profile_eagerly",
    "record_of",
    "results_of",
    "run_reference",
    "trace_runs",
    "with_debug_handles",
    "write_measured_report",
]
