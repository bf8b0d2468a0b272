"""What happens to a program: the pass contract, one file per pass, memory planning, and the passes people bring."""

from .apply_rules import ApplyRules
from .bound_symbolic_shapes import BoundSymbolicShapes
from .contract import Pass, PassReport, run_passes
from .convert_to_edge_operators import ConvertToEdgeOperators
from .convert_to_out_variants import ConvertToOutVariants
from .decompose_to_core import DecomposeToCore, beyond_core
from .decompose_whole_graph import DecomposeWholeGraph
from .delegate import (
    DELEGATION_TAG,
    BackendDetails,
    DataPartitioner,
    DelegationSpec,
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
    grown_partitions,
    insert_calls,
    keep_whole,
    leave_inputs,
    leave_writes,
    load_partitioner,
    load_partitioning,
    parse_partitioning,
    partitioning_schema,
    partitioning_schema_text,
    partitions_of,
    sort_for_delegates,
    subprogram_of,
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
from .inline_grad_regions import InlineGradRegions
from .legalize_dim_order import LegalizeDimOrder
from .legalize_dtypes import LegalizeDtypes, LegalizeReport
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
from .memory import refuse_readers as refuse_readers_of_shared_buffers
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
    "ApplyRules",
    "BackendDetails",
    "Body",
    "BoundSymbolicShapes",
    "CompleteMetadata",
    "ConstraintBasedSymShapeEvalPass",
    "ConvertToEdgeOperators",
    "ConvertToOutVariants",
    "DataPartitioner",
    "DecomposeToCore",
    "DecomposeWholeGraph",
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
    "InlineGradRegions",
    "LegalizeDimOrder",
    "LegalizeDtypes",
    "LegalizeReport",
    "LiftConstants",
    "LowerSymbolicArithmetic",
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
    "find_backend",
    "graph_call_findings",
    "greedy",
    "grown_partitions",
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
    "parse_dtype_policy",
    "parse_memory_policy",
    "parse_partitioning",
    "partitioning_schema",
    "partitioning_schema_text",
    "partitions_of",
    "peak_nbytes",
    "plan_pools",
    "planned_nbytes",
    "portfolio",
    "read_dtype_policy",
    "read_out_variants",
    "refuse_readers_of_shared_buffers",
    "run_passes",
    "shipped_out_variants",
    "shipped_pipelines",
    "shipped_text",
    "solve_planning_problem",
    "sort_for_delegates",
    "subprogram_of",
    "to_edge_passes",
    "to_executorch_passes",
    "value_uses",
    "watching",
]
