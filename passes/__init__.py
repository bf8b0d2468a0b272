"""What happens to a program: the pass contract, one file per pass, memory planning, and the passes people bring."""

from .apply_rules import ApplyRules
from .bound_symbolic_shapes import BoundSymbolicShapes
from .contract import Pass, PassReport, run_passes
from .convert_to_edge_operators import ConvertToEdgeOperators
from .convert_to_out_variants import ConvertToOutVariants
from .decompose_counting import DecomposeCounting
from .decompose_to_core import DecomposeToCore, beyond_core
from .decompose_whole_graph import DecomposeWholeGraph
from .delegate import (
    DELEGATION_TAG,
    AllNodePartitioner,
    BackendDetails,
    CapabilityBasedPartitioner,
    DataPartitioner,
    DelegateMappingBuilder,
    DelegationBreakdown,
    DelegationInfo,
    DelegationSpec,
    GroupBasedPartitioner,
    Maximum,
    Minimum,
    Partition,
    PartitionAccount,
    Partitioner,
    Partitioning,
    PartitionResult,
    PreprocessResult,
    RankRange,
    Subprogram,
    TakenPartition,
    TakingRule,
    WholeOperators,
    WhyNot,
    account_of,
    circles_among,
    find_backend,
    format_delegated_graph,
    generate_grouped_partitions_from_list_of_nodes,
    generate_partitions_from_list_of_nodes,
    generate_pattern_op_partitions,
    get_delegates,
    get_delegation_info,
    get_non_lowered_nodes,
    grown_partitions,
    insert_calls,
    keep_whole,
    leave_inputs,
    leave_writes,
    load_partitioner,
    load_partitioning,
    obstacle_to_taking,
    parse_partitioning,
    partitioning_schema,
    partitioning_schema_text,
    partitions_of,
    print_delegated_graph,
    print_delegation_info,
    sort_for_delegates,
    subprogram_of,
    tag_constant_data,
    tag_kept_state,
    tag_mutated_buffer,
)
from .dtype_policy import DtypeEntry, DtypePolicy, parse_dtype_policy, read_dtype_policy
from .eliminate_dead_code import EliminateDeadCode
from .eliminate_views import EliminateViews
from .export_pass import ExportPass
from .export_pass_values import NodeMetadata, ProxyValue, map_args
from .fold_constants import FoldConstants, FoldReport
from .free_unbounded import FreeUnbounded
from .functionalize import Functionalize
from .generate_debug_handles import GenerateDebugHandles
from .graph_calls import graph_call_findings
from .hidden_operators import expose_operators
from .inline_grad_regions import InlineGradRegions
from .legalization import needs_legalizing
from .legalize_dim_order import LegalizeDimOrder
from .legalize_dtypes import LegalizeDtypes, LegalizeReport
from .legalize_integers import LegalizeIntegers
from .legalize_padding import LegalizePadding
from .legalize_sorts import LegalizeSorts
from .legalize_volumes import LegalizeVolumes
from .library_operators import DecomposeLibraryOperators, has_library_operators
from .lift_constants import LiftConstants
from .live_memory import live_nbytes, peak_nbytes, planned_nbytes
from .lower_symbolic_arithmetic import LowerSymbolicArithmetic
from .lowering_config import (
    ConstraintBasedSymShapeEvalPass,
    DynamicMemoryPlanningMode,
    EdgeCompileConfig,
    ExecutorchBackendConfig,
    ToOutVarPass,
)
from .memory import (
    PLANNERS,
    Body,
    MemoryAlgoResult,
    MemoryPlanningAlgorithmSuite,
    MemoryPlanningPass,
    MemoryPolicy,
    MemoryPool,
    NbytesRange,
    PlacementRule,
    PlannedValue,
    PlanningProblem,
    PlanningResult,
    Pool,
    PooledPlan,
    PoolWish,
    SpecAllocResult,
    ValueUse,
    exact,
    exact_placement,
    greedy,
    load_memory_policy,
    memory_policy_schema,
    memory_policy_schema_text,
    naive,
    parse_memory_policy,
    plan_pools,
    portfolio,
    value_uses,
)
from .memory import pool_of_arenas as pool_of_arenas
from .memory import refuse_readers as refuse_readers_of_shared_buffers
from .memory import settle_methods as settle_methods
from .memory import solve as solve_planning_problem
from .merge_equal_nodes import MergeEqualNodes, MergeReport
from .out_variants import OutVariantTable, missing_out_variants, read_out_variants, shipped_out_variants
from .pass_base import ExportedProgramPassBase, ExportedProgramPassResult, PassBase, PassResult, PassType
from .pass_manager import PassManager
from .pipelines import (
    PassOptions,
    Pipeline,
    PipelineResult,
    RegisteredPass,
    StageEvent,
    StageReport,
    Watcher,
    edge_settings,
    executorch_settings,
    shipped_pipelines,
    shipped_text,
    watching,
)
from .promote_types import PromoteTypes
from .propagate_specs import PropagateSpecs
from .remove_asserts import RemoveAsserts
from .remove_metadata_asserts import RemoveMetadataAsserts
from .remove_noops import RemoveNoops
from .remove_unused_inputs import RemoveUnusedInputs
from .replace_views_with_copies import ReplaceViewsWithCopies
from .scalars_to_tensors import ScalarsToTensors, SymbolsToTensors
from .separate_body_results import SeparateBodyResults
from .separate_outputs import SeparateOutputs
from .to_edge import decomposition_passes, to_edge_passes
from .to_executorch import to_executorch_passes
from .unfuse_operators import UnfuseOperators
from .use_dim_order_operators import UseDimOrderOperators
from .user_passes import CompleteMetadata, apply_user_passes
from .whole_graph_needed import WholeGraphNeededError
from .write_back_mutations import WriteBackMutations

__all__ = [
    "DELEGATION_TAG",
    "PLANNERS",
    "AllNodePartitioner",
    "ApplyRules",
    "BackendDetails",
    "Body",
    "BoundSymbolicShapes",
    "CapabilityBasedPartitioner",
    "CompleteMetadata",
    "ConstraintBasedSymShapeEvalPass",
    "ConvertToEdgeOperators",
    "ConvertToOutVariants",
    "DataPartitioner",
    "DecomposeCounting",
    "DecomposeLibraryOperators",
    "DecomposeToCore",
    "DecomposeWholeGraph",
    "DelegateMappingBuilder",
    "DelegationBreakdown",
    "DelegationInfo",
    "DelegationSpec",
    "DtypeEntry",
    "DtypePolicy",
    "DynamicMemoryPlanningMode",
    "EdgeCompileConfig",
    "EliminateDeadCode",
    "EliminateViews",
    "ExecutorchBackendConfig",
    "ExportPass",
    "ExportedProgramPassBase",
    "ExportedProgramPassResult",
    "FoldConstants",
    "FoldReport",
    "FreeUnbounded",
    "Functionalize",
    "GenerateDebugHandles",
    "GroupBasedPartitioner",
    "InlineGradRegions",
    "LegalizeDimOrder",
    "LegalizeDtypes",
    "LegalizeIntegers",
    "LegalizePadding",
    "LegalizeReport",
    "LegalizeSorts",
    "LegalizeVolumes",
    "LiftConstants",
    "LowerSymbolicArithmetic",
    "Maximum",
    "MemoryAlgoResult",
    "MemoryPlanningAlgorithmSuite",
    "MemoryPlanningPass",
    "MemoryPolicy",
    "MemoryPool",
    "MergeEqualNodes",
    "MergeReport",
    "Minimum",
    "NbytesRange",
    "NodeMetadata",
    "OutVariantTable",
    "Partition",
    "PartitionAccount",
    "PartitionResult",
    "Partitioner",
    "Partitioning",
    "Pass",
    "PassBase",
    "PassManager",
    "PassOptions",
    "PassReport",
    "PassResult",
    "PassType",
    "Pipeline",
    "PipelineResult",
    "PlacementRule",
    "PlannedValue",
    "PlanningProblem",
    "PlanningResult",
    "Pool",
    "PoolWish",
    "PooledPlan",
    "PreprocessResult",
    "PromoteTypes",
    "PropagateSpecs",
    "ProxyValue",
    "RankRange",
    "RegisteredPass",
    "RemoveAsserts",
    "RemoveMetadataAsserts",
    "RemoveNoops",
    "RemoveUnusedInputs",
    "ReplaceViewsWithCopies",
    "ScalarsToTensors",
    "SeparateBodyResults",
    "SeparateOutputs",
    "SpecAllocResult",
    "StageEvent",
    "StageReport",
    "Subprogram",
    "SymbolsToTensors",
    "TakenPartition",
    "TakingRule",
    "ToOutVarPass",
    "UnfuseOperators",
    "UseDimOrderOperators",
    "ValueUse",
    "Watcher",
    "WholeGraphNeededError",
    "WholeOperators",
    "WhyNot",
    "WriteBackMutations",
    "account_of",
    "apply_user_passes",
    "beyond_core",
    "circles_among",
    "decomposition_passes",
    "edge_settings",
    "exact",
    "exact_placement",
    "executorch_settings",
    "expose_operators",
    "find_backend",
    "format_delegated_graph",
    "generate_grouped_partitions_from_list_of_nodes",
    "generate_partitions_from_list_of_nodes",
    "generate_pattern_op_partitions",
    "get_delegates",
    "get_delegation_info",
    "get_non_lowered_nodes",
    "graph_call_findings",
    "greedy",
    "grown_partitions",
    "has_library_operators",
    "insert_calls",
    "keep_whole",
    "leave_inputs",
    "leave_writes",
    "live_nbytes",
    "load_memory_policy",
    "load_partitioner",
    "load_partitioning",
    "map_args",
    "memory_policy_schema",
    "memory_policy_schema_text",
    "missing_out_variants",
    "naive",
    "needs_legalizing",
    "obstacle_to_taking",
    "parse_dtype_policy",
    "parse_memory_policy",
    "parse_partitioning",
    "partitioning_schema",
    "partitioning_schema_text",
    "partitions_of",
    "peak_nbytes",
    "plan_pools",
    "planned_nbytes",
    "pool_of_arenas",
    "portfolio",
    "print_delegated_graph",
    "print_delegation_info",
    "read_dtype_policy",
    "read_out_variants",
    "refuse_readers_of_shared_buffers",
    "run_passes",
    "settle_methods",
    "shipped_out_variants",
    "shipped_pipelines",
    "shipped_text",
    "solve_planning_problem",
    "sort_for_delegates",
    "subprogram_of",
    "tag_constant_data",
    "tag_kept_state",
    "tag_mutated_buffer",
    "to_edge_passes",
    "to_executorch_passes",
    "value_uses",
    "watching",
]
