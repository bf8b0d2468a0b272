"""Programs of ours with the operators of the official package."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from executorch.exir import EdgeCompileConfig as OfficialCompileConfig
from executorch.exir import memory as their_memory
from executorch.exir._serialize._named_data_store import NamedDataStore, NamedDataStoreOutput
from executorch.exir.backend.compile_spec_schema import CompileSpec as OfficialCompileSpec
from executorch.exir.dialects._ops import ops as official_ops
from executorch.exir.lowered_backend_module import LoweredBackendModule as OfficialDelegate
from executorch.exir.verification.verifier import EXIREdgeDialectVerifier
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import (
    DeferredTensor,
    EdgeOpOverload,
    OpOverload,
    ProgramInterface,
    alloc,
    called_graphs,
    copy_program,
    free,
    underlying,
    view,
)
from exirkit.program import LoweredBackendModule

from .specs import OfficialSpecs

# What passes call for memory, theirs and ours; some backends ask for it before programs are planned.
MEMORY = {their_memory.alloc: alloc, their_memory.free: free, their_memory.view: view}
_THEIRS = {ours: theirs for theirs, ours in MEMORY.items()}


class OfficialView(OfficialDelegate):  # type: ignore[misc]
    """A delegate of ours as one of the official package; what was compiled is converted when it is asked for.

    Args:
        ours: The delegate.

    Attributes:
        ours: The delegate.
    """

    ours: LoweredBackendModule

    def __init__(self, ours: LoweredBackendModule) -> None:
        # The official class wants the program and the data at once.
        torch.nn.Module.__init__(self)
        # Assigned as usual, it would become a part of this module.
        self.__dict__["ours"] = ours
        self._backend_id = ours.backend_id
        self._processed_bytes = ours.processed_bytes
        self._compile_specs = [OfficialCompileSpec(one.key, one.value) for one in ours.compile_specs]
        self.meta = ours.meta

    @cached_property
    def _original_exported_program(self) -> ExportedProgram:
        return official_program(self.ours.original_module)

    @cached_property
    def _named_data_store_output(self) -> NamedDataStoreOutput:
        store = NamedDataStore()
        for file, named in ((None, self.ours.named_data), *self.ours.external_data.items()):
            for key, data in named.items():
                store.add_named_data(key, data, external_tag=file)
        return store.get_named_data_store_output()


def official_program(program: ExportedProgram) -> ExportedProgram:
    """Return a program of ours with the operators, specs and delegates of the official package.

    Graphs are copied, weights and what backends have compiled are shared; tensors that are computed when they are read
    are computed, since backends read memory. What a planner has found is in the specs, as tools of the official package
    read it.

    Args:
        program: An Edge program, or what `ExecutorchProgramManager.exported_program` returns.
    """
    specs = OfficialSpecs()
    made = copy_program(
        program, verifier=EXIREdgeDialectVerifier(OfficialCompileConfig(_check_ir_validity=False), class_only=True)
    )
    for module in called_graphs(made.graph_module):
        signature = program.graph_signature if module is made.graph_module else None
        interface = ProgramInterface(module.graph, signature)
        for node in module.graph.nodes:
            if node.op == "call_function":
                node.target = official_operator(node)
            if (shown := specs.of_node(node, interface)) is not None:
                node.meta["spec"] = shown
        for name, child in list(module.named_children()):
            if isinstance(child, LoweredBackendModule):
                setattr(module, name, OfficialView(child))
        module.recompile()
    _bring_to_memory(made)
    return made


def _bring_to_memory(program: ExportedProgram) -> None:
    """Compute what is computed when it is read; several names of one tensor stay names of one."""
    known: dict[int, torch.Tensor] = {}
    for stored in (program.state_dict, program.constants):
        for name, value in stored.items():
            if isinstance(value, DeferredTensor):
                key = id(value.calculation)
                if key not in known:
                    known[key] = value.plain()
                stored[name] = known[key]


def official_operator(node: Node) -> Any:
    """Return the official operator that a call of ours stands for."""
    target = node.target
    op = underlying(target)
    if op is target and not hasattr(target, "_schema"):
        return _THEIRS.get(target, target)
    namespace, name = op._schema.name.split("::")
    overload = op._schema.overload_name or "default"
    if not isinstance(target, EdgeOpOverload) and isinstance(op, OpOverload):
        return op
    return getattr(getattr(getattr(official_ops.edge, namespace), name), overload)
