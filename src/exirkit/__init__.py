"""Lower PyTorch models to ExecuTorch programs, with passes written as data and checked by machine.

The documented names of ExecuTorch's ahead-of-time API live here: `from exirkit import to_edge, ExportPass, ops`. The
reference runtime is `exirkit.runtime_ref`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram as ExportedProgram

    from exirkit.emit import EmitterOutput as EmitterOutput
    from exirkit.emit import ProgramFormatError as ProgramFormatError
    from exirkit.emit import ProgramVerifyError as ProgramVerifyError
    from exirkit.emit import emit_program as emit_program
    from exirkit.emit import print_program as print_program
    from exirkit.ir import CompileSpec as CompileSpec
    from exirkit.ir import ContractError as ContractError
    from exirkit.ir import Diagnostic as Diagnostic
    from exirkit.ir import DiagnosticError as DiagnosticError
    from exirkit.ir import GraphEditor as GraphEditor
    from exirkit.ir import InternalError as InternalError
    from exirkit.ir import ModelError as ModelError
    from exirkit.ir import TensorSpec as TensorSpec
    from exirkit.ir import UsageError as UsageError
    from exirkit.ir import create_constant_placeholder as create_constant_placeholder
    from exirkit.ir import delete_constant_placeholder as delete_constant_placeholder
    from exirkit.ir import get_buffer as get_buffer
    from exirkit.ir import get_lifted_tensor_constant as get_lifted_tensor_constant
    from exirkit.ir import get_param as get_param
    from exirkit.ir import get_param_tensor as get_param_tensor
    from exirkit.ir import is_buffer as is_buffer
    from exirkit.ir import is_get_attr_node as is_get_attr_node
    from exirkit.ir import is_lifted_tensor_constant as is_lifted_tensor_constant
    from exirkit.ir import is_param as is_param
    from exirkit.ir import is_param_node as is_param_node
    from exirkit.ir import ops as ops
    from exirkit.ir import set_param_tensor as set_param_tensor
    from exirkit.passes import AllNodePartitioner as AllNodePartitioner
    from exirkit.passes import ApplyRules as ApplyRules
    from exirkit.passes import BackendDetails as BackendDetails
    from exirkit.passes import CapabilityBasedPartitioner as CapabilityBasedPartitioner
    from exirkit.passes import ChangeInterface as ChangeInterface
    from exirkit.passes import DelegateMappingBuilder as DelegateMappingBuilder
    from exirkit.passes import DelegationBreakdown as DelegationBreakdown
    from exirkit.passes import DelegationInfo as DelegationInfo
    from exirkit.passes import DelegationSpec as DelegationSpec
    from exirkit.passes import DtypePolicy as DtypePolicy
    from exirkit.passes import EdgeCompileConfig as EdgeCompileConfig
    from exirkit.passes import ExecutorchBackendConfig as ExecutorchBackendConfig
    from exirkit.passes import ExportedProgramPassBase as ExportedProgramPassBase
    from exirkit.passes import ExportedProgramPassResult as ExportedProgramPassResult
    from exirkit.passes import ExportPass as ExportPass
    from exirkit.passes import FoldConstants as FoldConstants
    from exirkit.passes import GroupBasedPartitioner as GroupBasedPartitioner
    from exirkit.passes import LegalizeDtypes as LegalizeDtypes
    from exirkit.passes import MemoryPlanningAlgorithmSuite as MemoryPlanningAlgorithmSuite
    from exirkit.passes import MemoryPlanningPass as MemoryPlanningPass
    from exirkit.passes import MemoryPolicy as MemoryPolicy
    from exirkit.passes import MergeEqualNodes as MergeEqualNodes
    from exirkit.passes import NodeMetadata as NodeMetadata
    from exirkit.passes import Partitioner as Partitioner
    from exirkit.passes import PartitionResult as PartitionResult
    from exirkit.passes import Pass as Pass
    from exirkit.passes import PassBase as PassBase
    from exirkit.passes import PassManager as PassManager
    from exirkit.passes import PassResult as PassResult
    from exirkit.passes import Pipeline as Pipeline
    from exirkit.passes import PreprocessResult as PreprocessResult
    from exirkit.passes import ProxyValue as ProxyValue
    from exirkit.passes import ToOutVarPass as ToOutVarPass
    from exirkit.passes import UnfuseOperators as UnfuseOperators
    from exirkit.passes import WorthwhilePartitioner as WorthwhilePartitioner
    from exirkit.passes import exact as exact
    from exirkit.passes import format_delegated_graph as format_delegated_graph
    from exirkit.passes import (
        generate_grouped_partitions_from_list_of_nodes as generate_grouped_partitions_from_list_of_nodes,
    )
    from exirkit.passes import generate_partitions_from_list_of_nodes as generate_partitions_from_list_of_nodes
    from exirkit.passes import generate_pattern_op_partitions as generate_pattern_op_partitions
    from exirkit.passes import get_delegates as get_delegates
    from exirkit.passes import get_delegation_info as get_delegation_info
    from exirkit.passes import get_non_lowered_nodes as get_non_lowered_nodes
    from exirkit.passes import greedy as greedy
    from exirkit.passes import load_memory_policy as load_memory_policy
    from exirkit.passes import load_partitioner as load_partitioner
    from exirkit.passes import map_args as map_args
    from exirkit.passes import naive as naive
    from exirkit.passes import portfolio as portfolio
    from exirkit.passes import print_delegated_graph as print_delegated_graph
    from exirkit.passes import print_delegation_info as print_delegation_info
    from exirkit.passes import tag_constant_data as tag_constant_data
    from exirkit.passes import tag_mutated_buffer as tag_mutated_buffer
    from exirkit.patterns import bind_pattern_to_op as bind_pattern_to_op
    from exirkit.patterns import bisect_rewrites as bisect_rewrites
    from exirkit.patterns import builder as builder
    from exirkit.patterns import load_book as load_book
    from exirkit.patterns import normalized_arguments as normalized_arguments
    from exirkit.patterns import predicate as predicate
    from exirkit.patterns import unfuse as unfuse
    from exirkit.program import AddMulPartitionerDemo as AddMulPartitionerDemo
    from exirkit.program import BackendWithCompilerDemo as BackendWithCompilerDemo
    from exirkit.program import EdgeProgramManager as EdgeProgramManager
    from exirkit.program import ExecutorchProgramManager as ExecutorchProgramManager
    from exirkit.program import LoweredBackendModule as LoweredBackendModule
    from exirkit.program import ReferenceBackend as ReferenceBackend
    from exirkit.program import to_backend as to_backend
    from exirkit.program import to_edge as to_edge
    from exirkit.program import to_edge_transform_and_lower as to_edge_transform_and_lower
    from exirkit.verifiers import EXIRATenDialectVerifier as EXIRATenDialectVerifier
    from exirkit.verifiers import EXIRBackendDialectVerifier as EXIRBackendDialectVerifier
    from exirkit.verifiers import EXIREdgeDialectVerifier as EXIREdgeDialectVerifier
    from exirkit.verifiers import check_program as check_program
    from exirkit.visualization import generate_memory_trace as generate_memory_trace

__version__ = "0.1.0"

# Where each public name lives. Names are fetched on first use, so that `exirkit --help` does not wait for torch.
_HOMES: dict[str, str] = {
    "AddMulPartitionerDemo": "program",
    "AllNodePartitioner": "passes",
    "ApplyRules": "passes",
    "ChangeInterface": "passes",
    "BackendDetails": "passes",
    "BackendWithCompilerDemo": "program",
    "CapabilityBasedPartitioner": "passes",
    "CompileSpec": "ir",
    "ContractError": "ir",
    "DelegateMappingBuilder": "passes",
    "DelegationBreakdown": "passes",
    "DelegationInfo": "passes",
    "DelegationSpec": "passes",
    "Diagnostic": "ir",
    "DiagnosticError": "ir",
    "DtypePolicy": "passes",
    "EXIRATenDialectVerifier": "verifiers",
    "EXIRBackendDialectVerifier": "verifiers",
    "EXIREdgeDialectVerifier": "verifiers",
    "EdgeCompileConfig": "passes",
    "EdgeProgramManager": "program",
    "EmitterOutput": "emit",
    "ExecutorchBackendConfig": "passes",
    "ExecutorchProgramManager": "program",
    "ExportPass": "passes",
    "ExportedProgramPassBase": "passes",
    "ExportedProgramPassResult": "passes",
    "FoldConstants": "passes",
    "GraphEditor": "ir",
    "GroupBasedPartitioner": "passes",
    "InternalError": "ir",
    "LegalizeDtypes": "passes",
    "LoweredBackendModule": "program",
    "MemoryPlanningAlgorithmSuite": "passes",
    "MemoryPlanningPass": "passes",
    "MemoryPolicy": "passes",
    "MergeEqualNodes": "passes",
    "ModelError": "ir",
    "NodeMetadata": "passes",
    "PartitionResult": "passes",
    "Partitioner": "passes",
    "Pass": "passes",
    "PassBase": "passes",
    "PassManager": "passes",
    "PassResult": "passes",
    "Pipeline": "passes",
    "PreprocessResult": "passes",
    "ProgramFormatError": "emit",
    "ProgramVerifyError": "emit",
    "ProxyValue": "passes",
    "ReferenceBackend": "program",
    "TensorSpec": "ir",
    "ToOutVarPass": "passes",
    "UnfuseOperators": "passes",
    "UsageError": "ir",
    "WorthwhilePartitioner": "passes",
    "bind_pattern_to_op": "patterns",
    "bisect_rewrites": "patterns",
    "builder": "patterns",
    "check_program": "verifiers",
    "create_constant_placeholder": "ir",
    "delete_constant_placeholder": "ir",
    "emit_program": "emit",
    "exact": "passes",
    "format_delegated_graph": "passes",
    "generate_grouped_partitions_from_list_of_nodes": "passes",
    "generate_memory_trace": "visualization",
    "generate_partitions_from_list_of_nodes": "passes",
    "generate_pattern_op_partitions": "passes",
    "get_buffer": "ir",
    "get_delegates": "passes",
    "get_delegation_info": "passes",
    "get_lifted_tensor_constant": "ir",
    "get_non_lowered_nodes": "passes",
    "get_param": "ir",
    "get_param_tensor": "ir",
    "greedy": "passes",
    "is_buffer": "ir",
    "is_get_attr_node": "ir",
    "is_lifted_tensor_constant": "ir",
    "is_param": "ir",
    "is_param_node": "ir",
    "load_book": "patterns",
    "load_memory_policy": "passes",
    "load_partitioner": "passes",
    "map_args": "passes",
    "naive": "passes",
    "normalized_arguments": "patterns",
    "ops": "ir",
    "portfolio": "passes",
    "predicate": "patterns",
    "print_delegated_graph": "passes",
    "print_delegation_info": "passes",
    "print_program": "emit",
    "set_param_tensor": "ir",
    "tag_constant_data": "passes",
    "tag_mutated_buffer": "passes",
    "to_backend": "program",
    "to_edge": "program",
    "to_edge_transform_and_lower": "program",
    "unfuse": "patterns",
}

__all__ = ["ExportedProgram", "__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    """Fetch a public name from its room."""
    if name == "ExportedProgram":
        return import_module("torch.export").ExportedProgram
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"exirkit.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
