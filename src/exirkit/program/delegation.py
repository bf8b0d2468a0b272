"""Lowering programs, or parts of them, to backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from exirkit.ir import CALL_DELEGATE, CompileSpec, ContractError, Diagnostic, called_graphs, copy_program
from exirkit.passes import (
    DELEGATION_TAG,
    BackendDetails,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
    find_backend,
    greatest_handle,
    insert_call,
    leave_inputs,
    leave_writes,
    partitions_of,
    sort_for_delegates,
    subprogram_of,
)


class LoweredBackendModule(torch.nn.Module):
    """A program that a backend has compiled.

    It can be called like the module that it was made from, be a part of other modules, and be exported with them.

    Args:
        edge_program: What was compiled.
        backend_id: Name of the backend.
        processed_bytes: What it made of the program.
        compile_specs: What it was compiled for.
        named_data: Data that the delegate reads at run time, by name.
        debug_handle_map: Debug handles by identifier of the backend.

    Source: `LoweredBackendModule` of the ExecuTorch documentation.
    """

    def __init__(
        self,
        edge_program: ExportedProgram,
        backend_id: str,
        processed_bytes: bytes,
        compile_specs: list[CompileSpec],
        named_data: Mapping[str, bytes] | None = None,
        debug_handle_map: Mapping[Any, tuple[int, ...]] | None = None,
    ) -> None:
        super().__init__()
        self._original_module = edge_program
        self._backend_id = backend_id
        self._processed_bytes = processed_bytes
        self._compile_specs = compile_specs
        self._named_data = dict(named_data or {})
        self.meta: dict[str, Any] = {"debug_handle_map": debug_handle_map}

    @property
    def backend_id(self) -> str:
        """Name of the backend."""
        return self._backend_id

    @property
    def processed_bytes(self) -> bytes:
        """What the backend made of the program."""
        return self._processed_bytes

    @property
    def compile_specs(self) -> list[CompileSpec]:
        """What the program was compiled for."""
        return self._compile_specs

    @property
    def original_module(self) -> ExportedProgram:
        """What was compiled."""
        return self._original_module

    @property
    def named_data(self) -> dict[str, bytes]:
        """Data that the delegate reads at run time, by name."""
        return self._named_data

    def forward(self, *args: Any) -> Any:
        """Compute what the backend would, by running what was compiled."""
        return CALL_DELEGATE(self, *args)


def preprocessed(
    backend: type[BackendDetails], program: ExportedProgram, specs: list[CompileSpec]
) -> LoweredBackendModule:
    """Have a backend compile a program.

    Raises:
        ContractError: EK494, it returns something else than a `PreprocessResult` with bytes.
    """
    made = backend.preprocess(backend.copy_exported_program_for_preprocess(program), specs)
    if not isinstance(made, PreprocessResult) or not isinstance(made.processed_bytes, bytes):
        raise ContractError(
            Diagnostic(
                code="EK494",
                message=f"preprocess of {backend.__name__} returned {type(made).__name__}",
                expected="a PreprocessResult whose `processed_bytes` are bytes",
            )
        )
    return LoweredBackendModule(
        program,
        backend.__name__,
        made.processed_bytes,
        specs,
        made.data_store_output,
        made.debug_handle_map,
    )


@overload
def to_backend(args: str, edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> LoweredBackendModule: ...


@overload
def to_backend(args: ExportedProgram, edge_program: Partitioner) -> ExportedProgram: ...


def to_backend(args: Any, edge_program: Any, compile_specs: Sequence[CompileSpec] = ()) -> Any:
    """Lower a whole program, or what a partitioner takes of it.

    `to_backend(backend_id, edge_program, compile_specs)` returns a `LoweredBackendModule`;
    `to_backend(edge_program, partitioner)` a program that calls delegates.

    Raises:
        UsageError: EK490, there is no such backend.
        ContractError: EK491 to EK495, the partitioner or the backend broke its word.

    Source: `to_backend` of the ExecuTorch documentation.
    """
    if isinstance(args, str):
        return preprocessed(find_backend(args), edge_program, list(compile_specs))
    return delegated(args, edge_program)


def delegated(program: ExportedProgram, partitioner: Partitioner) -> ExportedProgram:
    """Return a program in which delegates compute what a partitioner takes; what is given stays as it is."""
    specs, made = tagged(program, partitioner)
    for module in list(called_graphs(made.graph_module)):
        _delegate_parts(made, module, specs)
    return made


def tagged(program: ExportedProgram, partitioner: Partitioner) -> tuple[Mapping[str, DelegationSpec], ExportedProgram]:
    """Return where partitions go, and a copy of the program with the tags of a partitioner.

    Raises:
        ContractError: EK495, it changed the graph, or used a tag of which it does not say where it goes.
    """
    made = copy_program(program)
    before = _described(made)
    found = partitioner.partition(made)
    result = found.tagged_exported_program if isinstance(found, PartitionResult) else None
    name = type(partitioner).__name__
    if result is None or _described(result) != before:
        what = "changed the graph" if result is not None else f"returned {type(found).__name__}"
        raise ContractError(
            Diagnostic(
                code="EK495",
                message=f"partitioner {name} {what}",
                expected="a PartitionResult with the program it was given, tags in `meta` added and nothing else",
            )
        )
    for module in called_graphs(result.graph_module):
        for node in module.graph.nodes:
            tag = node.meta.get(DELEGATION_TAG)
            if tag is not None and tag not in found.partition_tags:
                raise ContractError(
                    Diagnostic(
                        code="EK495",
                        message=f"%{node.name} has the tag {tag!r}, of which {name} does not say where it goes",
                        expected=f"one of {', '.join(sorted(found.partition_tags)) or 'the tags of partition_tags'}",
                    )
                )
    return found.partition_tags, result


def _described(program: ExportedProgram) -> list[Any]:
    return [
        (node.op, node.name, str(node.target), str(node.args), str(node.kwargs))
        for module in called_graphs(program.graph_module)
        for node in module.graph.nodes
    ]


def _delegate_parts(program: ExportedProgram, module: GraphModule, specs: Mapping[str, DelegationSpec]) -> None:
    taken = [subprogram_of(program, module, one) for one in partitions_of(module.graph)]
    is_top = module is program.graph_module
    if is_top:
        leave_writes(program, taken)
    sort_for_delegates(module, taken)
    handle = greatest_handle(module)
    for number, one in enumerate(taken):
        spec = specs[one.partition.tag]
        delegate = preprocessed(find_backend(spec.backend_id), one.program, spec.compile_specs)
        insert_call(module, one, delegate, _free_name(module, number), handle + number + 1)
    if is_top:
        leave_inputs(program, taken)
    for node in module.graph.nodes:
        node.meta.pop(DELEGATION_TAG, None)
    module.recompile()


def _free_name(module: GraphModule, number: int) -> str:
    while hasattr(module, f"lowered_module_{number}"):
        number += 1
    return f"lowered_module_{number}"


def flat_results(value: Any) -> list[Any]:
    """Return the results of a call in a row."""
    return list(pytree.tree_leaves(value))
