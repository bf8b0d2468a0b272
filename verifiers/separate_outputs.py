"""Outputs for which the caller provides memory are nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from exirkit.ir import Diagnostic

from .program_graphs import ProgramGraph, results_of, value_of


def check_separate_outputs(
    program: ExportedProgram, *, alloc_graph_input: bool = True, alloc_graph_output: bool = True
) -> list[Diagnostic]:
    """Check that no output has to be in two places at once.

    Args:
        program: Program whose outputs have been separated.
        alloc_graph_input: Memory of inputs is planned.
        alloc_graph_output: Memory of outputs is planned.

    Returns:
        All findings (EK356), in the order of the outputs.
    """
    return list(_findings(program, alloc_graph_input, alloc_graph_output))


def _findings(program: ExportedProgram, plans_inputs: bool, plans_outputs: bool) -> Iterator[Diagnostic]:
    graph, signature = ProgramGraph(program.graph_module, ""), program.graph_signature
    placeholders = program.graph.find_nodes(op="placeholder")
    inputs = {
        node
        for node, entry in zip(placeholders, signature.input_specs, strict=False)
        if entry.kind is InputKind.USER_INPUT
    }
    seen: dict[Node, int] = {}
    for place, (result, entry) in enumerate(
        zip(results_of(program.graph_module), signature.output_specs, strict=False)
    ):
        if entry.kind is not OutputKind.USER_OUTPUT or not isinstance(result, Node):
            continue
        if not isinstance(value_of(result), torch.Tensor):
            continue
        what = None
        if result in inputs and not (plans_inputs and plans_outputs):
            what = "an input"
        elif not plans_outputs and result.op == "placeholder":
            what = "stored with the program"
        elif not plans_outputs and result in seen:
            what = f"output {seen[result]} as well"
        seen.setdefault(result, place)
        if what is not None:
            yield graph.finding(
                "EK356",
                result,
                f"output {place}, %{result.name}, is {what}",
                expected="a value of its own, because the caller provides memory for inputs or outputs",
                hint="run SeparateOutputs after the last pass that changes what is returned",
            )
