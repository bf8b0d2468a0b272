"""What happens to a program: the pass contract, passes by step, memory planning, and the passes people bring."""

from typing import TYPE_CHECKING

from exirkit.ir import deprecated_names, late_names

from .analysis import LiveBytes as LiveBytes
from .analysis import LiveValues as LiveValues
from .analysis import peak_nbytes as peak_nbytes
from .analysis import planned_nbytes as planned_nbytes
from .config.lowering_config import ConstraintBasedSymShapeEvalPass as ConstraintBasedSymShapeEvalPass
from .config.lowering_config import DynamicMemoryPlanningMode as DynamicMemoryPlanningMode
from .config.lowering_config import EdgeCompileConfig as EdgeCompileConfig
from .config.lowering_config import ExecutorchBackendConfig as ExecutorchBackendConfig
from .config.lowering_config import ToOutVarPass as ToOutVarPass
from .config.policies import NbytesRange as NbytesRange
from .contract import Pass as Pass
from .contract import PassOptions as PassOptions
from .contract import PassReport as PassReport
from .contract import RegisteredPass as RegisteredPass
from .contract import run_passes as run_passes
from .delegate.backend import DELEGATION_TAG as DELEGATION_TAG
from .delegate.backend import BackendDetails as BackendDetails
from .delegate.backend import DelegateMappingBuilder as DelegateMappingBuilder
from .delegate.backend import DelegationSpec as DelegationSpec
from .delegate.backend import Partitioner as Partitioner
from .delegate.backend import PartitionResult as PartitionResult
from .delegate.backend import PreprocessResult as PreprocessResult
from .delegate.backend import find_backend as find_backend
from .delegate.backend import keep_whole as keep_whole
from .delegate.backend import stored_data as stored_data
from .delegate.canonical_partitioners import AllNodePartitioner as AllNodePartitioner
from .delegate.canonical_partitioners import CapabilityBasedPartitioner as CapabilityBasedPartitioner
from .delegate.canonical_partitioners import GroupBasedPartitioner as GroupBasedPartitioner
from .delegate.canonical_partitioners import (
    generate_grouped_partitions_from_list_of_nodes as generate_grouped_partitions_from_list_of_nodes,
)
from .delegate.canonical_partitioners import (
    generate_partitions_from_list_of_nodes as generate_partitions_from_list_of_nodes,
)
from .delegate.canonical_partitioners import generate_pattern_op_partitions as generate_pattern_op_partitions
from .delegate.delegation_info import DelegationBreakdown as DelegationBreakdown
from .delegate.delegation_info import DelegationInfo as DelegationInfo
from .delegate.delegation_info import format_delegated_graph as format_delegated_graph
from .delegate.delegation_info import get_delegates as get_delegates
from .delegate.delegation_info import get_delegation_info as get_delegation_info
from .delegate.delegation_info import get_non_lowered_nodes as get_non_lowered_nodes
from .delegate.delegation_info import print_delegated_graph as print_delegated_graph
from .delegate.delegation_info import print_delegation_info as print_delegation_info
from .delegate.growing import Partition as Partition
from .delegate.growing import cycles_among as cycles_among
from .delegate.growing import grown_partitions as grown_partitions
from .delegate.growing import partitions_of as partitions_of
from .delegate.insertion import Subprogram as Subprogram
from .delegate.insertion import insert_calls as insert_calls
from .delegate.insertion import leave_inputs as leave_inputs
from .delegate.insertion import leave_writes as leave_writes
from .delegate.insertion import sort_for_delegates as sort_for_delegates
from .delegate.insertion import subprogram_of as subprogram_of
from .delegate.insertion import tag_constant_data as tag_constant_data
from .delegate.insertion import tag_kept_state as tag_kept_state
from .delegate.insertion import tag_mutated_buffer as tag_mutated_buffer
from .delegate.partitioning.data_partitioner import DataPartitioner as DataPartitioner
from .delegate.partitioning.data_partitioner import PartitionAccount as PartitionAccount
from .delegate.partitioning.data_partitioner import WhyNot as WhyNot
from .delegate.partitioning.data_partitioner import account_of as account_of
from .delegate.partitioning.data_partitioner import load_partitioner as load_partitioner
from .delegate.partitioning.deciding import why_not_delegable as why_not_delegable
from .delegate.partitioning.model import Minimum as Minimum
from .delegate.partitioning.model import Partitioning as Partitioning
from .delegate.partitioning.model import TakingRule as TakingRule
from .delegate.partitioning.model import parse_partitioning as parse_partitioning
from .delegate.partitioning.model import partitioning_schema as partitioning_schema
from .delegate.partitioning.model import partitioning_schema_text as partitioning_schema_text
from .delegate.worthwhile import LEFT_OUTSIDE as LEFT_OUTSIDE
from .delegate.worthwhile import LeftOutside as LeftOutside
from .delegate.worthwhile import WorthwhilePartitioner as WorthwhilePartitioner
from .export_pass.export_pass import ExportPass as ExportPass
from .export_pass.values import PROTECTED_KEYS as PROTECTED_KEYS
from .export_pass.values import NodeMetadata as NodeMetadata
from .export_pass.values import ProxyValue as ProxyValue
from .export_pass.values import map_args as map_args
from .legalize.dim_order import LegalizeDimOrder as LegalizeDimOrder
from .legalize.dtypes import DtypePolicy as DtypePolicy
from .legalize.dtypes import LegalizeDtypes as LegalizeDtypes
from .legalize.dtypes import LegalizeReport as LegalizeReport
from .legalize.dtypes import parse_dtype_policy as parse_dtype_policy
from .legalize.dtypes import read_dtype_policy as read_dtype_policy
from .legalize.operators import LegalizeArguments as LegalizeArguments
from .legalize.operators import LegalizePadding as LegalizePadding
from .legalize.operators import LegalizeScaledSums as LegalizeScaledSums
from .legalize.operators import LegalizeSplits as LegalizeSplits
from .legalize.operators import has_library_operators as has_library_operators
from .legalize.operators import needs_legalizing as needs_legalizing
from .legalize.quantized import LegalizeQuantized as LegalizeQuantized
from .legalize.special_values import LegalizeSpecialValues as LegalizeSpecialValues
from .memory.graph.value_uses import ValueUse as ValueUse
from .memory.graph.value_uses import value_uses as value_uses
from .memory.methods import finalize_methods as finalize_methods
from .memory.methods import pool_of_arenas as pool_of_arenas
from .memory.methods import reject_readers_of_shared_buffers as reject_readers_of_shared_buffers
from .memory.packing.pools import PooledPlan as PooledPlan
from .memory.packing.pools import PoolRequest as PoolRequest
from .memory.packing.pools import plan_pools as plan_pools
from .memory.packing.search import exact_placement as exact_placement
from .memory.planners import PLANNERS as PLANNERS
from .memory.planners import MemoryAlgoResult as MemoryAlgoResult
from .memory.planners import MemoryPlanningAlgorithmSuite as MemoryPlanningAlgorithmSuite
from .memory.planners import SpecAllocResult as SpecAllocResult
from .memory.planners import exact as exact
from .memory.planners import greedy as greedy
from .memory.planners import naive as naive
from .memory.planners import portfolio as portfolio
from .memory.planners import solve_planning_problem as solve_planning_problem
from .memory.planning_pass import MemoryPlanningPass as MemoryPlanningPass
from .memory.policy.model import MemoryPolicy as MemoryPolicy
from .memory.policy.model import MemoryPool as MemoryPool
from .memory.policy.model import PlacementRule as PlacementRule
from .memory.policy.model import load_memory_policy as load_memory_policy
from .memory.policy.model import memory_policy_schema as memory_policy_schema
from .memory.policy.model import memory_policy_schema_text as memory_policy_schema_text
from .memory.policy.model import parse_memory_policy as parse_memory_policy
from .memory.problem import Body as Body
from .memory.problem import PlannedValue as PlannedValue
from .memory.problem import PlanningProblem as PlanningProblem
from .memory.problem import PlanningResult as PlanningResult
from .memory.problem import Pool as Pool
from .optimize.clean_up import ApplyRules as ApplyRules
from .optimize.clean_up import ChangeInterface as ChangeInterface
from .optimize.clean_up import EliminateDeadCode as EliminateDeadCode
from .optimize.clean_up import MergeEqualNodes as MergeEqualNodes
from .optimize.clean_up import MergeReport as MergeReport
from .optimize.clean_up import RemoveUnusedInputs as RemoveUnusedInputs
from .optimize.clean_up import UnfuseOperators as UnfuseOperators
from .optimize.fold_constants import FoldConstants as FoldConstants
from .optimize.fold_constants import FoldReport as FoldReport
from .optimize.fold_constants import with_stored_integers as with_stored_integers
from .optimize.propagate import PropagationPass as PropagationPass
from .optimize.propagate import PropagationReport as PropagationReport
from .optimize.propagate import convertible_inputs as convertible_inputs
from .optimize.propagate import counted_propagations as counted_propagations
from .optimize.quantized_embeddings import FuseQuantizedEmbeddings as FuseQuantizedEmbeddings
from .optimize.quantized_embeddings import has_quantized_embeddings as has_quantized_embeddings
from .optimize.quantized_kernels import UseQuantizedKernels as UseQuantizedKernels
from .optimize.quantized_kernels import has_quantized_blocks as has_quantized_blocks
from .optimize.tile_regions import TileRegions as TileRegions
from .optimize.tile_regions import Tiling as Tiling
from .optimize.unread_state import RemoveUnreadState as RemoveUnreadState
from .pipelines.model import edge_settings as edge_settings
from .pipelines.model import executorch_settings as executorch_settings
from .pipelines.pipeline import Pipeline as Pipeline
from .pipelines.pipeline import decomposition_passes as decomposition_passes
from .pipelines.pipeline import noted_fall_backs as noted_fall_backs
from .pipelines.pipeline import shipped_pipelines as shipped_pipelines
from .pipelines.pipeline import shipped_text as shipped_text
from .pipelines.pipeline import to_edge_passes as to_edge_passes
from .pipelines.pipeline import to_executorch_passes as to_executorch_passes
from .stage_events import StageEvent as StageEvent
from .stage_events import watching as watching
from .to_aten.debug_handles import GenerateDebugHandles as GenerateDebugHandles
from .to_aten.decompose_to_core import DecomposeToCore as DecomposeToCore
from .to_aten.decompose_to_core import beyond_core as beyond_core
from .to_aten.decompose_to_core import expose_operators as expose_operators
from .to_aten.functionalize import Functionalize as Functionalize
from .to_aten.operator_recorder import WholeGraphNeededError as WholeGraphNeededError
from .to_aten.whole_graph import DecomposeWholeGraph as DecomposeWholeGraph
from .to_edge.edge_operators import ConvertToEdgeOperators as ConvertToEdgeOperators
from .to_edge.edge_operators import LiftConstants as LiftConstants
from .to_edge.edge_operators import PromoteTypes as PromoteTypes
from .to_edge.edge_operators import RemoveNoops as RemoveNoops
from .to_edge.edge_operators import ReplaceViewsWithCopies as ReplaceViewsWithCopies
from .to_edge.edge_operators import ScalarsToTensors as ScalarsToTensors
from .to_edge.edge_operators import UseDimOrderOperators as UseDimOrderOperators
from .to_executorch.in_place import WriteInPlace as WriteInPlace
from .to_executorch.out_variants import ConvertToOutVariants as ConvertToOutVariants
from .to_executorch.out_variants import OutVariantTable as OutVariantTable
from .to_executorch.out_variants import SeparateBodyResults as SeparateBodyResults
from .to_executorch.out_variants import SeparateOutputs as SeparateOutputs
from .to_executorch.out_variants import WriteBackMutations as WriteBackMutations
from .to_executorch.out_variants import missing_out_variants as missing_out_variants
from .to_executorch.propagate_specs import EliminateViews as EliminateViews
from .to_executorch.propagate_specs import PropagateSpecs as PropagateSpecs
from .to_executorch.symbolic_shapes import BoundSymbolicShapes as BoundSymbolicShapes
from .to_executorch.symbolic_shapes import LowerSymbolicArithmetic as LowerSymbolicArithmetic
from .to_executorch.symbolic_shapes import RemoveAsserts as RemoveAsserts
from .to_executorch.symbolic_shapes import RemoveMetadataAsserts as RemoveMetadataAsserts
from .user_passes.base import ExportedProgramPassBase as ExportedProgramPassBase
from .user_passes.base import ExportedProgramPassResult as ExportedProgramPassResult
from .user_passes.base import PassBase as PassBase
from .user_passes.base import PassManager as PassManager
from .user_passes.base import PassResult as PassResult
from .user_passes.base import PassType as PassType
from .user_passes.base import code_of_pass as code_of_pass
from .user_passes.program_manager import ExportedProgramPassManager as ExportedProgramPassManager
from .user_passes.program_manager import updated_signature as updated_signature
from .user_passes.running import apply_user_passes as apply_user_passes

if TYPE_CHECKING:
    from .quantization_noise.quantizing import quantize_program as quantize_program
    from .quantization_noise.report import Grouping as Grouping
    from .quantization_noise.report import GroupNoise as GroupNoise
    from .quantization_noise.report import LayerNoise as LayerNoise
    from .quantization_noise.report import QuantizationReport as QuantizationReport
    from .quantization_noise.report import quantization_report as quantization_report
    from .quantization_noise.search import FloatModules as FloatModules
    from .quantization_noise.search import SearchStep as SearchStep
    from .quantization_noise.search import leaving_text as leaving_text
    from .quantization_noise.search import search_float_modules as search_float_modules
    from .quantization_noise.search import stored_bytes as stored_bytes
    from .quantizer.annotating import Annotator as Annotator
    from .quantizer.annotating import QuantizationPlan as QuantizationPlan
    from .quantizer.explaining import CallAccount as CallAccount
    from .quantizer.explaining import account_of_model as account_of_model
    from .quantizer.model import QuantizerPolicy as QuantizerPolicy
    from .quantizer.model import check_quantizer as check_quantizer
    from .quantizer.model import load_quantizer as load_quantizer
    from .quantizer.model import parse_quantizer as parse_quantizer
    from .quantizer.model import quantizer_schema as quantizer_schema
    from .quantizer.model import quantizer_schema_text as quantizer_schema_text
    from .quantizer.model import quantizer_text as quantizer_text
    from .quantizer.model import shipped_quantizers as shipped_quantizers
    from .quantizer.torchao_quantizer import data_quantizer as data_quantizer
    from .quantizer.torchao_quantizer import with_numbers_as_tensors as with_numbers_as_tensors
else:
    __getattr__ = deprecated_names(
        __name__,
        {
            "PoolWish": "exirkit.passes:PoolRequest",
            "circles_among": "exirkit.passes:cycles_among",
            "obstacle_to_taking": "exirkit.passes:why_not_delegable",
            "refuse_readers_of_shared_buffers": "exirkit.passes:reject_readers_of_shared_buffers",
            "settle_methods": "exirkit.passes:finalize_methods",
        },
        # What quantizes models is not needed to lower them.
        late_names(
            __name__,
            {
                "Annotator": "quantizer.annotating",
                "CallAccount": "quantizer.explaining",
                "FloatModules": "quantization_noise.search",
                "GroupNoise": "quantization_noise.report",
                "Grouping": "quantization_noise.report",
                "LayerNoise": "quantization_noise.report",
                "QuantizationPlan": "quantizer.annotating",
                "QuantizationReport": "quantization_noise.report",
                "QuantizerPolicy": "quantizer.model",
                "SearchStep": "quantization_noise.search",
                "account_of_model": "quantizer.explaining",
                "check_quantizer": "quantizer.model",
                "data_quantizer": "quantizer.torchao_quantizer",
                "leaving_text": "quantization_noise.search",
                "load_quantizer": "quantizer.model",
                "parse_quantizer": "quantizer.model",
                "quantization_report": "quantization_noise.report",
                "quantize_program": "quantization_noise.quantizing",
                "quantizer_schema": "quantizer.model",
                "quantizer_schema_text": "quantizer.model",
                "quantizer_text": "quantizer.model",
                "search_float_modules": "quantization_noise.search",
                "shipped_quantizers": "quantizer.model",
                "stored_bytes": "quantization_noise.search",
                "with_numbers_as_tensors": "quantizer.torchao_quantizer",
            },
        ),
    )
