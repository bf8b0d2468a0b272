"""What happens to a program: the pass contract, one file per pass, memory planning, and the passes people bring."""

from typing import TYPE_CHECKING

from exirkit.ir import deprecated_names

from .analysis import graph_call_findings, live_nbytes, peak_nbytes, planned_nbytes
from .config.lowering_config import (
    ConstraintBasedSymShapeEvalPass,
    DynamicMemoryPlanningMode,
    EdgeCompileConfig,
    ExecutorchBackendConfig,
    ToOutVarPass,
)
from .config.policies import NbytesRange
from .contract import Pass, PassOptions, PassReport, RegisteredPass, run_passes
from .delegate.backend import TAG as DELEGATION_TAG
from .delegate.backend import (
    BackendDetails,
    DelegateMappingBuilder,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
    find_backend,
    keep_whole,
)
from .delegate.canonical_partitioners import (
    AllNodePartitioner,
    CapabilityBasedPartitioner,
    GroupBasedPartitioner,
    generate_grouped_partitions_from_list_of_nodes,
    generate_partitions_from_list_of_nodes,
    generate_pattern_op_partitions,
)
from .delegate.delegation_info import (
    DelegationBreakdown,
    DelegationInfo,
    format_delegated_graph,
    get_delegates,
    get_delegation_info,
    get_non_lowered_nodes,
    print_delegated_graph,
    print_delegation_info,
)
from .delegate.growing import Partition, cycles_among, grown_partitions, partitions_of
from .delegate.insertion import (
    Subprogram,
    insert_calls,
    leave_inputs,
    leave_writes,
    sort_for_delegates,
    subprogram_of,
    tag_constant_data,
    tag_kept_state,
    tag_mutated_buffer,
)
from .delegate.partitioning.data_partitioner import (
    DataPartitioner,
    PartitionAccount,
    TakenPartition,
    WhyNot,
    account_of,
    load_partitioner,
)
from .delegate.partitioning.deciding import why_not_delegable
from .delegate.partitioning.model import (
    Maximum,
    Minimum,
    Partitioning,
    RankRange,
    TakingRule,
    WholeOperators,
    load_partitioning,
    parse_partitioning,
    partitioning_schema,
    partitioning_schema_text,
)
from .export_pass.export_pass import ExportPass
from .export_pass.values import NodeMetadata, ProxyValue, map_args
from .legalize.dim_order import LegalizeDimOrder
from .legalize.dtypes import (
    DtypeEntry,
    DtypePolicy,
    LegalizeDtypes,
    LegalizeReport,
    parse_dtype_policy,
    read_dtype_policy,
)
from .legalize.operators import (
    DecomposeLibraryOperators,
    LegalizeEmpties,
    LegalizeIntegers,
    LegalizePadding,
    LegalizeSorts,
    LegalizeSplits,
    has_library_operators,
    needs_legalizing,
)
from .legalize.volumes import LegalizeVolumes
from .memory.graph.value_uses import ValueUse, value_uses
from .memory.methods import finalize_methods as finalize_methods
from .memory.methods import pool_of_arenas as pool_of_arenas
from .memory.methods import reject_readers as reject_readers_of_shared_buffers
from .memory.packing.pools import PooledPlan, PoolRequest, plan_pools
from .memory.packing.search import exact_placement
from .memory.planners import (
    PLANNERS,
    MemoryAlgoResult,
    MemoryPlanningAlgorithmSuite,
    SpecAllocResult,
    exact,
    greedy,
    naive,
    portfolio,
)
from .memory.planners import solve as solve_planning_problem
from .memory.planning_pass import MemoryPlanningPass
from .memory.policy.model import (
    MemoryPolicy,
    MemoryPool,
    PlacementRule,
    load_memory_policy,
    memory_policy_schema,
    memory_policy_schema_text,
    parse_memory_policy,
)
from .memory.problem import Body, PlannedValue, PlanningProblem, PlanningResult, Pool
from .optimize.clean_up import (
    ApplyRules,
    EliminateDeadCode,
    MergeEqualNodes,
    MergeReport,
    RemoveUnusedInputs,
    UnfuseOperators,
)
from .optimize.fold_constants import FoldConstants, FoldReport
from .pipelines.model import edge_settings, executorch_settings
from .pipelines.pipeline import (
    Pipeline,
    PipelineResult,
    StageEvent,
    StageReport,
    Watcher,
    decomposition_passes,
    shipped_pipelines,
    shipped_text,
    to_edge_passes,
    to_executorch_passes,
    watching,
)
from .to_aten.decompose_counting import DecomposeCounting
from .to_aten.decompose_to_core import (
    DecomposeToCore,
    DecomposeWholeGraph,
    WholeGraphNeededError,
    beyond_core,
    expose_operators,
)
from .to_aten.functionalize import Functionalize, InlineGradRegions
from .to_aten.generate_debug_handles import GenerateDebugHandles
from .to_edge.edge_operators import (
    ConvertToEdgeOperators,
    LiftConstants,
    PromoteTypes,
    ScalarsToTensors,
    SymbolsToTensors,
    UseDimOrderOperators,
)
from .to_edge.views import RemoveNoops, ReplaceViewsWithCopies
from .to_executorch.bound_symbolic_shapes import BoundSymbolicShapes, FreeUnbounded
from .to_executorch.out_variants import (
    ConvertToOutVariants,
    OutVariantTable,
    SeparateBodyResults,
    SeparateOutputs,
    WriteBackMutations,
    missing_out_variants,
)
from .to_executorch.propagate_specs import EliminateViews, PropagateSpecs
from .to_executorch.symbolic_arithmetic import LowerSymbolicArithmetic, RemoveAsserts, RemoveMetadataAsserts
from .user_passes.base import (
    ExportedProgramPassBase,
    ExportedProgramPassResult,
    PassBase,
    PassManager,
    PassResult,
    PassType,
)
from .user_passes.running import CompleteMetadata, apply_user_passes

if not TYPE_CHECKING:
    __getattr__ = deprecated_names(
        __name__,
        {
            "PoolWish": "exirkit.passes:PoolRequest",
            "circles_among": "exirkit.passes:cycles_among",
            "obstacle_to_taking": "exirkit.passes:why_not_delegable",
            "refuse_readers_of_shared_buffers": "exirkit.passes:reject_readers_of_shared_buffers",
            "settle_methods": "exirkit.passes:finalize_methods",
        },
    )

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
    "PoolRequest",
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
    "cycles_among",
    "decomposition_passes",
    "edge_settings",
    "exact",
    "exact_placement",
    "executorch_settings",
    "expose_operators",
    "finalize_methods",
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
    "reject_readers_of_shared_buffers",
    "run_passes",
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
    "why_not_delegable",
]
