"""Edge programs of the official package as programs of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from executorch.exir import EdgeProgramManager as OfficialManager
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule as OfficialDelegate
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import (
    CALL_DELEGATE,
    CompileSpec,
    EdgeProgramVerifier,
    GraphEditor,
    called_graphs,
    copy_program,
    take_foreign_handles,
)
from exirkit.passes import EdgeCompileConfig, LiftConstants, stored_data
from exirkit.program import EdgeProgramManager, LoweredBackendModule

from .operators import OfficialView


def edge_from_official(programs: Any, compile_config: EdgeCompileConfig | None = None) -> EdgeProgramManager:
    """Return a manager of ours with what the official package has lowered to Edge; delegates come along.

    Args:
        programs: An official `EdgeProgramManager`, one of its programs, or programs by method name; they are not
            changed.
        compile_config: Choices that later steps respect. Their programs may hold operators that ours do not, so by
            default they are not checked for being core operators.
    """
    config = compile_config or EdgeCompileConfig(_check_ir_validity=False)
    if isinstance(programs, OfficialManager):
        names = sorted(programs.methods)
        return EdgeProgramManager(
            {name: _ours(programs.exported_program(name)) for name in names}, programs._config_methods, config
        )
    named: Mapping[str, ExportedProgram] = programs if isinstance(programs, Mapping) else {"forward": programs}
    return EdgeProgramManager({name: _ours(program) for name, program in named.items()}, None, config)


def _ours(program: ExportedProgram) -> ExportedProgram:
    made = copy_program(program, verifier=EdgeProgramVerifier)
    for module in called_graphs(made.graph_module):
        _convert_delegates(module)
    take_foreign_handles(made.graph_module)
    # The official exporter leaves numbers as tensors on the bodies of control flow that use them.
    LiftConstants().run(GraphEditor(made))
    for module in called_graphs(made.graph_module):
        module.recompile()
    return made


def _convert_delegates(module: GraphModule) -> None:
    converted: dict[str, LoweredBackendModule] = {}
    for node in module.graph.nodes:
        if node.target is not executorch_call_delegate:
            continue
        node.target = CALL_DELEGATE
        attribute: Node = node.args[0]
        name = str(attribute.target)
        if name not in converted:
            converted[name] = _delegate(getattr(module, name))
            setattr(module, name, converted[name])


def _delegate(theirs: OfficialDelegate) -> LoweredBackendModule:
    if isinstance(theirs, OfficialView):
        return theirs.ours
    specs = [CompileSpec(one.key, bytes(one.value)) for one in theirs.compile_specs]
    named, external = stored_data(theirs.named_data_store_output)
    return LoweredBackendModule(
        _ours(theirs.original_module),
        theirs.backend_id,
        bytes(theirs.processed_bytes),
        specs,
        named,
        theirs.meta.get("debug_handle_map") if theirs.meta else None,
        external,
    )
