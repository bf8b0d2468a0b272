"""What a program is: operators, dialects, tensor specs, diagnostics, and the one editor through which graphs change."""

from .bare_tensors import bare_tensor
from .body_editor import BodyEditor, SealedBodyError, base_of, bodies_of, shared_results
from .control_flow import (
    COND,
    MAP,
    SCAN,
    WHILE,
    ControlFlowCall,
    body_calls,
    control_flow_call,
    graph_argument,
    results_of_graph,
)
from .defined_operators import DefinedOperator, defined_operator
from .delegates import CALL_DELEGATE, CompileSpec, Delegate, delegate_attribute, delegate_of
from .diagnostics import (
    ContractError,
    Diagnostic,
    DiagnosticError,
    InternalError,
    Location,
    ModelError,
    UsageError,
    choices_hint,
)
from .dialects import ATEN, BACKEND, DIALECTS, EDGE, EXECUTORCH, Dialect
from .dim_order import (
    Dim,
    contiguous_stride,
    dim_order_from_memory_format,
    dim_order_from_stride,
    is_channels_last_dim_order,
    is_contiguous_dim_order,
    memory_format_from_dim_order,
    sample_ints,
    stride_from_dim_order,
)
from .editor import INFER, GraphEditor
from .editor_state import Checkpoint, Transaction
from .effect import Effect
from .fake_execution import fake_like, infer_static_value, infer_value
from .foreign_handles import handles_like
from .graph_modules import is_module_program, module_of_program, program_of_module
from .handle_exchange import give_foreign_handles, take_foreign_handles
from .in_place import (
    InPlaceTable,
    has_form_of,
    in_place_table,
    named_arguments,
    out_operator_name,
    overwritable_arguments,
)
from .inference import Inference, no_new_guards, no_torch_logs
from .machine_libraries import without_machine_libraries
from .memory_ops import AllocSpec, alloc, free, view
from .metadata import has_unbacked_symbols, is_static, same_argument, same_value
from .node_order import misordered
from .operators import (
    BackendOpOverload,
    EdgeOpOverload,
    MissingOutVariantError,
    UnknownOperatorError,
    edge_operator,
    ops,
    underlying,
)
from .out_variants import find_out_variant
from .plugins import find_plugins, load_plugin, load_plugins
from .programs import (
    EdgeProgramVerifier,
    ExecutorchProgramVerifier,
    called_graphs,
    copy_graph_module,
    copy_program,
    copy_signature,
    fake_mode_of,
)
from .provenance import (
    PROVENANCE_KEYS,
    inherited,
    locate,
    module_path,
    module_paths,
    show_value,
    source_line,
    stack_frames,
)
from .purity import has_effect, is_pure
from .quick_execution import has_quick_values, is_quick_on_ones, quick_value
from .raw_edits import EditWatch, RawEdit
from .size_points import Point, Ranges, at_point, evaluated, points_of, points_within, sorted_symbols, symbols_within
from .tensor_spec import ALIGNMENT, TensorShapeDynamism, TensorSpec, determine_shape_dynamism
from .torch_economy import cheap_tracing
from .user_code import is_torch_file, is_users_file, line_of_definition, line_of_frames, line_that_raised

__all__ = [
    "ALIGNMENT",
    "ATEN",
    "BACKEND",
    "CALL_DELEGATE",
    "COND",
    "DIALECTS",
    "EDGE",
    "EXECUTORCH",
    "INFER",
    "MAP",
    "PROVENANCE_KEYS",
    "SCAN",
    "WHILE",
    "AllocSpec",
    "BackendOpOverload",
    "BodyEditor",
    "Checkpoint",
    "CompileSpec",
    "ContractError",
    "ControlFlowCall",
    "DefinedOperator",
    "Delegate",
    "Diagnostic",
    "DiagnosticError",
    "Dialect",
    "Dim",
    "EdgeOpOverload",
    "EdgeProgramVerifier",
    "EditWatch",
    "Effect",
    "ExecutorchProgramVerifier",
    "GraphEditor",
    "InPlaceTable",
    "Inference",
    "InternalError",
    "Location",
    "MissingOutVariantError",
    "ModelError",
    "Point",
    "Ranges",
    "RawEdit",
    "SealedBodyError",
    "TensorShapeDynamism",
    "TensorSpec",
    "Transaction",
    "UnknownOperatorError",
    "UsageError",
    "alloc",
    "at_point",
    "bare_tensor",
    "base_of",
    "bodies_of",
    "body_calls",
    "called_graphs",
    "cheap_tracing",
    "choices_hint",
    "contiguous_stride",
    "control_flow_call",
    "copy_graph_module",
    "copy_program",
    "copy_signature",
    "defined_operator",
    "delegate_attribute",
    "delegate_of",
    "determine_shape_dynamism",
    "dim_order_from_memory_format",
    "dim_order_from_stride",
    "edge_operator",
    "evaluated",
    "fake_like",
    "fake_mode_of",
    "find_out_variant",
    "find_plugins",
    "free",
    "give_foreign_handles",
    "graph_argument",
    "handles_like",
    "has_effect",
    "has_form_of",
    "has_quick_values",
    "has_unbacked_symbols",
    "in_place_table",
    "infer_static_value",
    "infer_value",
    "inherited",
    "is_channels_last_dim_order",
    "is_contiguous_dim_order",
    "is_module_program",
    "is_pure",
    "is_quick_on_ones",
    "is_static",
    "is_torch_file",
    "is_users_file",
    "line_of_definition",
    "line_of_frames",
    "line_that_raised",
    "load_plugin",
    "load_plugins",
    "locate",
    "memory_format_from_dim_order",
    "misordered",
    "module_of_program",
    "module_path",
    "module_paths",
    "named_arguments",
    "no_new_guards",
    "no_torch_logs",
    "ops",
    "out_operator_name",
    "overwritable_arguments",
    "points_of",
    "points_within",
    "program_of_module",
    "quick_value",
    "results_of_graph",
    "same_argument",
    "same_value",
    "sample_ints",
    "shared_results",
    "show_value",
    "sorted_symbols",
    "source_line",
    "stack_frames",
    "stride_from_dim_order",
    "symbols_within",
    "take_foreign_handles",
    "underlying",
    "view",
    "without_machine_libraries",
]
