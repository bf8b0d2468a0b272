"""Lowering programs, or parts of them, to backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule

from exirkit.emit import Program
from exirkit.ir import CALL_DELEGATE, CompileSpec, ContractError, Diagnostic, called_graphs, copy_program
from exirkit.passes import (
    DELEGATION_TAG,
    BackendDetails,
    DelegationSpec,
    EdgeCompileConfig,
    Partition,
    Partitioner,
    PartitionResult,
    PreprocessResult,
    Subprogram,
    find_backend,
    insert_calls,
    leave_inputs,
    leave_writes,
    partitions_of,
    sort_for_delegates,
    stored_data,
    subprogram_of,
    with_stored_integers,
)

if TYPE_CHECKING:
    from .managers import ExecutorchProgramManager


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
        external_data: Data that the delegate reads at run time from data files, by name, by the name of the file.

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
        external_data: Mapping[str, Mapping[str, bytes]] | None = None,
    ) -> None:
        super().__init__()
        self._original_module = edge_program
        self._backend_id = backend_id
        self._processed_bytes = processed_bytes
        self._compile_specs = compile_specs
        self._named_data = dict(named_data or {})
        self._external_data = {file: dict(named) for file, named in (external_data or {}).items()}
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

    @property
    def external_data(self) -> dict[str, dict[str, bytes]]:
        """Data that the delegate reads at run time from data files, by name, by the name of the file."""
        return self._external_data

    def __deepcopy__(self, memo: dict[int, Any]) -> LoweredBackendModule:
        """Return another module with the same contents, none of which changes."""
        return LoweredBackendModule(
            self._original_module,
            self._backend_id,
            self._processed_bytes,
            self._compile_specs,
            self._named_data,
            self.meta["debug_handle_map"],
            self._external_data,
        )

    def program(self) -> Program:
        """Return an emitted program whose method `forward` calls the delegate and nothing else."""
        return self._alone().executorch_program

    def buffer(self) -> bytes:
        """Return a `.pte` file whose method `forward` calls the delegate and nothing else."""
        return bytes(self._alone().buffer)

    def _alone(self) -> ExecutorchProgramManager:
        # Managers of Edge programs delegate, too.
        from .managers import EdgeProgramManager

        config = EdgeCompileConfig(_check_ir_validity=False)
        return EdgeProgramManager(_calling(self), compile_config=config).to_executorch()

    def forward(self, *args: Any) -> Any:
        """Compute what the backend would, by running what was compiled."""
        return CALL_DELEGATE(self, *args)


def _lowered(
    backend: type[BackendDetails], program: ExportedProgram, specs: list[CompileSpec], made: Any
) -> LoweredBackendModule:
    if not isinstance(made, PreprocessResult) or not isinstance(made.processed_bytes, bytes):
        raise ContractError(
            Diagnostic.of(
                "EK741",
                f"preprocess of {backend.__name__} returned {type(made).__name__}",
                expected="a PreprocessResult whose `processed_bytes` are bytes",
            )
        )
    named, external = stored_data(made.data_store_output)
    lowered = LoweredBackendModule(
        program,
        backend.__name__,
        made.processed_bytes,
        specs,
        named,
        made.debug_handle_map,
        {**external, **(made.external_data or {})},
    )
    if made._delegate_info_meta is not None:
        lowered.meta["_delegate_info_meta"] = made._delegate_info_meta
    return lowered


def _calling(delegate: LoweredBackendModule) -> ExportedProgram:
    """Return a program that calls a delegate and nothing else."""
    source = copy_program(delegate.original_module)
    specs = source.graph_signature.input_specs
    stored = {spec.arg.name for spec in specs if spec.kind is not InputKind.USER_INPUT}
    written = {spec.target for spec in source.graph_signature.output_specs if spec.target is not None}
    inputs = tuple(node for node in source.graph.find_nodes(op="placeholder") if node.name in stored)
    calls = tuple(node for node in source.graph.nodes if node.op == "call_function")
    whole = subprogram_of(source, source.graph_module, Partition("whole", inputs, calls))
    assert set(whole.written) == written, "a delegate keeps all the state that it writes"
    leave_writes(source, [whole])
    insert_calls(source.graph_module, [whole], [delegate])
    leave_inputs(source, [whole])
    source.graph_module.recompile()
    return source


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
        ContractError: EK491 to EK493, EK741, EK742, the partitioner or the backend broke its word.

    Source: `to_backend` of the ExecuTorch documentation.
    """
    if isinstance(args, str):
        backend, specs = _backend(args), list(compile_specs)
        given = backend.copy_exported_program_for_preprocess(edge_program)
        return _lowered(backend, edge_program, specs, backend.preprocess(given, specs))
    return delegated(args, edge_program)


def _backend(name: str) -> type[BackendDetails]:
    """Return a backend; those of exirkit register when their module is imported, which needs this one."""
    import_module(".demo_backend", __package__)
    return find_backend(name)


# Where the official package declares what a partitioner is.
_OFFICIAL = "executorch.exir.backend.partitioner"


def accepted(partitioner: Partitioner) -> Partitioner:
    """Return a partitioner as one of ours: `OfficialPartitioner` wraps one of the official package."""
    if all(one.__module__ != _OFFICIAL for one in type(partitioner).__mro__):
        return partitioner
    # The bridge is built on this room, and needs the official package, which is there if its partitioner is.
    bridge: Any = import_module("exirkit.bridge")
    made: Partitioner = bridge.OfficialPartitioner(partitioner)
    return made


def delegated(program: ExportedProgram, partitioner: Partitioner) -> ExportedProgram:
    """Return a program in which delegates compute what a partitioner takes; what is given stays as it is."""
    return delegated_methods({"forward": program}, {"forward": partitioner})["forward"]


def delegated_methods(
    programs: Mapping[str, ExportedProgram], partitioners: Mapping[str, Partitioner]
) -> dict[str, ExportedProgram]:
    """Return programs in which delegates compute what partitioners take.

    Each backend is given what it gets of all methods at once, so that its delegates may share.

    Args:
        programs: By method; they are not changed.
        partitioners: By method; programs of other methods stay as they are.
    """
    partitioners = {name: accepted(one) for name, one in partitioners.items()}
    made = {name: with_stored_integers(one) if name in partitioners else one for name, one in programs.items()}
    works: dict[str, list[_Work]] = {}
    for method, partitioner in partitioners.items():
        specs, made[method] = tagged(made[method], partitioner)
        for module in list(called_graphs(made[method].graph_module)):
            for one in partitions_of(module.graph):
                spec = specs[one.tag]
                taken = subprogram_of(made[method], module, one)
                works.setdefault(spec.backend_id, []).append(_Work(method, module, taken, spec))
    for backend, parts in works.items():
        _compile(_backend(backend), parts)
    for method in partitioners:
        mine = [one for parts in works.values() for one in parts if one.method == method]
        for module in list(called_graphs(made[method].graph_module)):
            _call_delegates(made[method], module, [one for one in mine if one.module is module])
    return made


@dataclass
class _Work:
    """A part of a program that becomes a delegate."""

    method: str
    module: GraphModule
    taken: Subprogram
    spec: DelegationSpec
    delegate: LoweredBackendModule | None = None


def _compile(backend: type[BackendDetails], parts: Sequence[_Work]) -> None:
    """Have a backend compile its parts of all methods at once."""
    by_method: dict[str, list[_Work]] = {}
    for one in parts:
        by_method.setdefault(one.method, []).append(one)
    results = backend.preprocess_multimethod(
        {
            method: [backend.copy_exported_program_for_preprocess(one.taken.program) for one in mine]
            for method, mine in by_method.items()
        },
        {method: [one.spec.compile_specs for one in mine] for method, mine in by_method.items()},
    )
    for method, mine in by_method.items():
        for one, result in zip(mine, _results(backend, results, method, len(mine)), strict=True):
            one.delegate = _lowered(backend, one.taken.program, one.spec.compile_specs, result)


def _results(backend: type[BackendDetails], results: Any, method: str, count: int) -> list[Any]:
    found = results.get(method) if isinstance(results, Mapping) else None
    if not isinstance(found, list) or len(found) != count:
        raise ContractError(
            Diagnostic.of(
                "EK741",
                f"preprocess_multimethod of {backend.__name__} returned {found!r} for {method}",
                expected=f"a list of {count} PreprocessResult, one for each program",
            )
        )
    return found


def tagged(program: ExportedProgram, partitioner: Partitioner) -> tuple[Mapping[str, DelegationSpec], ExportedProgram]:
    """Return where partitions go, and a copy of the program with the tags of a partitioner.

    Raises:
        ContractError: EK742, it changed the graph, or used a tag of which it does not say where it goes.
    """
    made = copy_program(program)
    before = _described(made)
    found = partitioner.partition(made)
    result = found.tagged_exported_program if isinstance(found, PartitionResult) else None
    name = type(partitioner).__name__
    if result is None or _described(result) != before:
        what = "changed the graph" if result is not None else f"returned {type(found).__name__}"
        raise ContractError(
            Diagnostic.of(
                "EK742",
                f"partitioner {name} {what}",
                expected="a PartitionResult with the program it was given, tags in `meta` added and nothing else",
            )
        )
    for module in called_graphs(result.graph_module):
        for node in module.graph.nodes:
            tag = node.meta.get(DELEGATION_TAG)
            if tag is not None and tag not in found.partition_tags:
                raise ContractError(
                    Diagnostic.of(
                        "EK742",
                        f"%{node.name} has the tag {tag!r}, of which {name} does not say where it goes",
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


def _call_delegates(program: ExportedProgram, module: GraphModule, parts: Sequence[_Work]) -> None:
    """Replace the parts of one graph by calls."""
    ready = {one.taken.partition.tag: one for one in parts}
    # Backends took the parts in turn; in the graph they run in the order of what they need.
    ordered = [ready[one.tag] for one in partitions_of(module.graph)]
    taken = [one.taken for one in ordered]
    is_top = module is program.graph_module
    if is_top:
        leave_writes(program, taken)
    sort_for_delegates(module, taken)
    insert_calls(module, taken, [one.delegate for one in ordered if one.delegate is not None])
    if is_top:
        leave_inputs(program, taken)
    for node in module.graph.nodes:
        node.meta.pop(DELEGATION_TAG, None)
    module.recompile()
