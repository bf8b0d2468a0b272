"""Small exported programs for tests of passes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram

from exirkit.ir import EdgeProgramVerifier, GraphEditor, copy_program
from exirkit.passes import Pass, PassReport, decomposition_passes, run_passes, to_edge_passes


class Function(torch.nn.Module):
    """A module around a plain function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class Holder(Function):
    """A function of a module with stored tensors."""

    def __init__(self, function: Callable[..., Any], **tensors: torch.Tensor) -> None:
        super().__init__(function)
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def exported(model: torch.nn.Module | Callable[..., Any], *args: Any, **options: Any) -> ExportedProgram:
    """Trace a module or function in inference mode."""
    module = model if isinstance(model, torch.nn.Module) else Function(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(copy.deepcopy(module).eval(), args, strict=False, **options)


def core(model: torch.nn.Module | Callable[..., Any], *args: Any, **options: Any) -> ExportedProgram:
    """Trace and decompose to core ATen, with torch's own decomposition."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return copy_program(exported(model, *args, **options).run_decompositions(), verifier=EdgeProgramVerifier)


def edge(model: torch.nn.Module | Callable[..., Any], *args: Any) -> ExportedProgram:
    """Trace and lower to Edge, by passes only."""
    program = copy_program(exported(model, *args), verifier=EdgeProgramVerifier)
    run_passes(GraphEditor(program), [*decomposition_passes(), *to_edge_passes()])
    return program


def apply(one: Pass, program: ExportedProgram) -> PassReport:
    """Run one pass in place; a second run must find nothing to do."""
    report = one.run(GraphEditor(program))
    program.graph.lint()
    assert not one.run(GraphEditor(program)).modified, f"{one.name} is not idempotent"
    return report


def targets(program: ExportedProgram) -> list[str]:
    """Return the call targets in order."""
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def outputs(program: ExportedProgram, *args: Any) -> list[Any]:
    """Run a program eagerly and return its results flat."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(torch.utils._pytree.tree_leaves(program.module()(*args)))
