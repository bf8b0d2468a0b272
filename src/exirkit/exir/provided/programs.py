"""Programs whose graph was replaced or edited by hand: signatures, constants, copies."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram, ExportGraphSignature
from torch.fx import GraphModule

from exirkit.ir import GraphEditor, Verifier, copy_program, fake_like, fake_mode_of
from exirkit.passes import ExportedProgramPassManager, LiftConstants, updated_signature

DEBUG_HANDLE_KEY = "debug_handle"
FROM_NODE_KEY = "from_node"
UNSET_DEBUG_HANDLE = 0


def _get_updated_graph_signature(old_signature: ExportGraphSignature, new_gm: GraphModule) -> ExportGraphSignature:
    """Return a signature with the names of the inputs and outputs of a graph.

    Raises:
        ContractError: EK113, the graph has more or fewer of them.
    """
    return updated_signature(old_signature, new_gm)


def _get_updated_range_constraints(gm: GraphModule) -> dict[Any, Any]:
    """Return the ranges of the symbolic sizes of a graph, by symbol."""
    shape_env = fake_mode_of(gm).shape_env
    if shape_env is None:
        return {}
    ranges = {shape_env.replacements.get(symbol, symbol): found for symbol, found in shape_env.var_to_range.items()}
    return ranges | {one: found for one, found in shape_env.var_to_range.items() if one not in shape_env.replacements}


def _update_exported_program_graph_module(
    exported_program: ExportedProgram, gm: GraphModule, override_verifiers: list[type[Verifier]] | None = None
) -> ExportedProgram:
    """Return a program with another graph, which shares the tensors of the given one."""
    made = copy_program(exported_program)
    made._graph_module = gm
    made._graph_signature = _get_updated_graph_signature(exported_program.graph_signature, gm)
    made._range_constraints = _get_updated_range_constraints(gm)
    made._verifiers = list(override_verifiers or made._verifiers)
    gm.meta.update({key: value for key, value in exported_program.graph_module.meta.items() if key not in gm.meta})
    return made


def _transform(
    self: ExportedProgram, *passes: Any, override_verifiers: list[type[Verifier]] | None = None
) -> ExportedProgram:
    """Return the program after some passes, in order; the program itself if none of them changes anything."""
    result = ExportedProgramPassManager(list(passes))(self, override_verifiers)
    return result.exported_program if result.modified else self


def _copy_module(new_prog: GraphModule, new_gm: GraphModule) -> None:
    """Give a module the graph, the parts and the metadata of another one."""
    new_prog.meta.update(new_gm.meta)
    for name, _ in list(new_prog.named_children()):
        delattr(new_prog, name)
    for name, child in new_gm.named_children():
        setattr(new_prog, name, child)
    for node in new_gm.graph.find_nodes(op="get_attr"):
        held = getattr(new_gm, str(node.target), None)
        if isinstance(held, torch.Tensor):
            setattr(new_prog, str(node.target), held)
    new_prog.graph = new_gm.graph


def lift_constant_tensor_pass(ep: ExportedProgram) -> ExportedProgram:
    """Make stored tensors of those that hang on the graph; the program itself is edited and returned."""
    LiftConstants().run(GraphEditor(ep))
    ep.graph_module.recompile()
    return ep


def get_fake_program(real_exported_program: ExportedProgram) -> ExportedProgram:
    """Return a copy of a program whose parameters and buffers are fake tensors, so that nothing can write to them."""
    made = copy_program(real_exported_program)
    mode = fake_mode_of(made.graph_module)
    made._state_dict = {name: fake_like(mode, tensor) for name, tensor in made._state_dict.items()}
    return made
