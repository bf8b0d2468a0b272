"""What must hold: invariants of programs, checked without the passes that establish them."""

from .dialects.legality import (
    check_aten_program,
    check_backend_program,
    check_dtypes,
    check_edge_program,
    check_executorch_program,
    is_core,
)
from .dialects.reference_verifiers import (
    EXIRATenDialectVerifier,
    EXIRATenDialectVerifierBase,
    EXIRBackendDialectVerifier,
    EXIREdgeDialectVerifier,
    get_aten_verifier,
)
from .graph.control_flow import check_control_flow
from .graph.signature import check_debug_handles, check_signature, check_symbols
from .graph.structure import check_calls, check_structure
from .kernels.conditions import FUNCTIONS as CONDITION_FUNCTIONS
from .kernels.conditions import UNKNOWN, CallFacts, Fact, KernelCondition, TensorFacts, facts_of_call, read_condition
from .kernels.support import KernelTable, broken_conditions, check_kernel_names, check_kernels, check_out_arguments
from .memory.outputs import check_separate_body_results, check_separate_outputs, check_written_back
from .memory.plan import check_memory_plan, check_method_memory
from .memory.specs import check_specs
from .metadata.recorded_values import check_layouts, check_metadata
from .program_check import check_form, check_program

__all__ = [
    "CONDITION_FUNCTIONS",
    "UNKNOWN",
    "CallFacts",
    "EXIRATenDialectVerifier",
    "EXIRATenDialectVerifierBase",
    "EXIRBackendDialectVerifier",
    "EXIREdgeDialectVerifier",
    "Fact",
    "KernelCondition",
    "KernelTable",
    "TensorFacts",
    "broken_conditions",
    "check_aten_program",
    "check_backend_program",
    "check_calls",
    "check_control_flow",
    "check_debug_handles",
    "check_dtypes",
    "check_edge_program",
    "check_executorch_program",
    "check_form",
    "check_kernel_names",
    "check_kernels",
    "check_layouts",
    "check_memory_plan",
    "check_metadata",
    "check_method_memory",
    "check_out_arguments",
    "check_program",
    "check_separate_body_results",
    "check_separate_outputs",
    "check_signature",
    "check_specs",
    "check_structure",
    "check_symbols",
    "check_written_back",
    "facts_of_call",
    "get_aten_verifier",
    "is_core",
    "read_condition",
]
