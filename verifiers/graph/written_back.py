"""New values of buffers, parameters and inputs are copied to where they belong."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import Diagnostic, ProgramInterface

from .program_graphs import ProgramGraph

_COPY = torch.ops.aten.copy_.default


def check_written_back(program: ExportedProgram) -> list[Diagnostic]:
    """Check that every output that the signature calls a new value is written to the input that has the old one.

    Returns:
        All findings (EK358), in the order of the outputs.
    """
    return list(_findings(program))


def _findings(program: ExportedProgram) -> Iterator[Diagnostic]:
    graph, interface = ProgramGraph(program.graph_module, ""), ProgramInterface.of(program)
    for owner, result, entry in interface.mutations:
        if not isinstance(result, Node) or result is owner:
            continue
        if result.target is not _COPY or result.args[0] is not owner:
            yield graph.finding(
                "EK358",
                result,
                f"%{result.name} is the new value of {entry.target}, and nothing writes it to %{owner.name}",
                expected=f"copy_(%{owner.name}, ...)",
                hint="run WriteBackMutations, and let no later pass replace the copies that it makes",
            )
