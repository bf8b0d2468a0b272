"""What happens to a program: the pass contract, one file per pass, memory planning, and the passes people bring."""

from .analysis.graph_calls import graph_call_findings
from .analysis.live_memory import live_nbytes, peak_nbytes, planned_nbytes
from .config.lowering_config import (
    ConstraintBasedSymShapeEvalPass,
    DynamicMemoryPlanningMode,
    EdgeCompileConfig,
    ExecutorchBackendConfig,
    ToOutVarPass,
)
from .contract import Pass, PassReport, run_passes
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
from .export_pass.export_pass import ExportPass
from .export_pass.values import NodeMetadata, ProxyValue, map_args
from .legalize.dim_order import LegalizeDimOrder
from .legalize.dtype_policy import DtypeEntry, DtypePolicy, parse_dtype_policy, read_dtype_policy
from .legalize.dtypes import LegalizeDtypes, LegalizeReport
from .legalize.empties import LegalizeEmpties
from .legalize.integers import LegalizeIntegers
from .legalize.library_operators import DecomposeLibraryOperators, has_library_operators
from .legalize.needed import needs_legalizing
from .legalize.padding import LegalizePadding
from .legalize.sorts import LegalizeSorts
from .legalize.splits import LegalizeSplits
from .legalize.volumes import LegalizeVolumes
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
from .optimize.apply_rules import ApplyRules
from .optimize.eliminate_dead_code import EliminateDeadCode
from .optimize.fold_constants import FoldConstants, FoldReport
from .optimize.merge_equal_nodes import MergeEqualNodes, MergeReport
from .optimize.remove_unused_inputs import RemoveUnusedInputs
from .optimize.unfuse_operators import UnfuseOperators
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
from .pipelines.edge_passes import decomposition_passes, to_edge_passes
from .pipelines.executorch_passes import to_executorch_passes
from .to_aten.decompose_counting import DecomposeCounting
from .to_aten.decompose_to_core import DecomposeToCore, beyond_core
from .to_aten.decompose_whole_graph import DecomposeWholeGraph
from .to_aten.functionalize import Functionalize
from .to_aten.generate_debug_handles import GenerateDebugHandles
from .to_aten.hidden_operators import expose_operators
from .to_aten.inline_grad_regions import InlineGradRegions
from .to_aten.whole_graph_needed import WholeGraphNeededError
from .to_edge.convert_to_edge_operators import ConvertToEdgeOperators
from .to_edge.lift_constants import LiftConstants
from .to_edge.promote_types import PromoteTypes
from .to_edge.remove_metadata_asserts import RemoveMetadataAsserts
from .to_edge.remove_noops import RemoveNoops
from .to_edge.replace_views_with_copies import ReplaceViewsWithCopies
from .to_edge.scalars_to_tensors import ScalarsToTensors, SymbolsToTensors
from .to_edge.use_dim_order_operators import UseDimOrderOperators
from .to_executorch.bound_symbolic_shapes import BoundSymbolicShapes
from .to_executorch.convert_to_out_variants import ConvertToOutVariants
from .to_executorch.eliminate_views import EliminateViews
from .to_executorch.free_unbounded import FreeUnbounded
from .to_executorch.lower_symbolic_arithmetic import LowerSymbolicArithmetic
from .to_executorch.out_variants import OutVariantTable, missing_out_variants
from .to_executorch.propagate_specs import PropagateSpecs
from .to_executorch.remove_asserts import RemoveAsserts
from .to_executorch.separate_outputs import SeparateOutputs
from .to_executorch.separate_subgraph_results import SeparateBodyResults
from .to_executorch.write_back_mutations import WriteBackMutations
from .user_passes.base import ExportedProgramPassBase, ExportedProgramPassResult, PassBase, PassResult, PassType
from .user_passes.manager import PassManager
from .user_passes.running import CompleteMetadata, apply_user_passes

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
    "LegalizeEmpties",
    "LegalizeIntegers",
    "LegalizePadding",
    "LegalizeReport",
    "LegalizeSorts",
    "LegalizeSplits",
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
    "refuse_readers_of_shared_buffers",
    "run_passes",
    "settle_methods",
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
