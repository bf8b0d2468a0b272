"""Programs of ours with the operators of the official package."""

from __future__ import annotations

from typing import Any

from executorch.exir import EdgeCompileConfig as OfficialCompileConfig
from executorch.exir import memory as their_memory
from executorch.exir.dialects._ops import ops as official_ops
from executorch.exir.verification.verifier import EXIREdgeDialectVerifier
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import EdgeOpOverload, OpOverload, alloc, called_graphs, copy_program, free, underlying, view

# What passes call for memory, theirs and ours; some backends ask for it before programs are planned.
MEMORY = {their_memory.alloc: alloc, their_memory.free: free, their_memory.view: view}
_THEIRS = {ours: theirs for theirs, ours in MEMORY.items()}


def official_program(program: ExportedProgram) -> ExportedProgram:
    """Return an Edge program of ours with the operators of the official package; graphs are copied, weights shared."""
    made = copy_program(
        program, verifier=EXIREdgeDialectVerifier(OfficialCompileConfig(_check_ir_validity=False), class_only=True)
    )
    for module in called_graphs(made.graph_module):
        for node in module.graph.nodes:
            if node.op == "call_function":
                node.target = _official_operator(node)
        module.recompile()
    return made


def _official_operator(node: Node) -> Any:
    target = node.target
    op = underlying(target)
    if op is target and not hasattr(target, "_schema"):
        return _THEIRS.get(target, target)
    namespace, name = op._schema.name.split("::")
    overload = op._schema.overload_name or "default"
    if not isinstance(target, EdgeOpOverload) and isinstance(op, OpOverload):
        return op
    return getattr(getattr(getattr(official_ops.edge, namespace), name), overload)
