"""Programs for rules to work on: exported modules, decomposed, with an editor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram

from exirkit.ir import GraphEditor, copy_program
from exirkit.passes import decomposition_passes, run_passes


class Computes(torch.nn.Module):
    """A module around a function."""

    def __init__(self, function: Callable[..., Any], **parts: torch.nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self, *args)


def exported(
    function: Callable[..., Any], *args: torch.Tensor, keep: tuple[Any, ...] = (), **parts: Any
) -> GraphEditor:
    """Return an editor of a decomposed program that computes `function(module, *args)`; `keep` stays whole."""
    program = torch.export.export(Computes(function, **parts).eval(), args, strict=False)
    editor = GraphEditor(copy_program(program))
    run_passes(editor, decomposition_passes(frozenset(keep)))
    return editor


def targets(program: ExportedProgram) -> list[str]:
    """Return the operators of a program in order, without namespace and overload."""
    return [
        str(getattr(node.target, "__name__", node.target)).split(".")[-2 if "." in str(node.target) else -1]
        for node in program.graph.nodes
        if node.op == "call_function"
    ]


def outputs(program: ExportedProgram, *args: torch.Tensor) -> list[torch.Tensor]:
    """Run a program."""
    result = program.module()(*args)
    return list(result) if isinstance(result, tuple | list) else [result]
