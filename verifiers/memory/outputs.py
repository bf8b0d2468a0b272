"""Outputs and new values of inputs are where they belong, and results of subgraphs have memory of their own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from exirkit.ir import COND, MAP, Diagnostic, ProgramInterface, control_flow_call, results_of_graph, value_of
from exirkit.verifiers.graph.structure import ProgramGraph, graphs_of


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
    graph, interface = ProgramGraph(program.graph_module, ""), ProgramInterface.of(program)
    inputs = set(interface.user_inputs)
    seen: dict[Node, int] = {}
    for place, (result, entry) in enumerate(interface.results):
        if entry is None or entry.kind is not OutputKind.USER_OUTPUT or not isinstance(result, Node):
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


def check_separate_body_results(program: ExportedProgram) -> list[Diagnostic]:
    """Check that results of branches can be computed into the result of the call.

    Returns:
        All findings (EK357): a result of a branch is one of its inputs, a constant, or another of its results; or what
        a loop carries changes its place from round to round.
    """
    return [finding for graph in graphs_of(program) for node in graph.calls() for finding in _of_bodies(graph, node)]


def _of_bodies(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    call = control_flow_call(node)
    if call is None or call.kind == MAP:
        return
    for body in call.bodies if call.kind == COND else (call.body,):
        inputs = body.graph.find_nodes(op="placeholder")[: len(call.carried)]
        results = results_of_graph(body)
        for place, result in enumerate(results):
            if not isinstance(result, Node) or not isinstance(value_of(result), torch.Tensor):
                continue
            if call.kind == COND:
                is_wrong = result.op != "call_function" or result in results[:place]
            else:
                is_wrong = result in inputs and (place >= len(inputs) or result is not inputs[place])
            if is_wrong:
                yield graph.finding(
                    "EK357",
                    node,
                    f"result {place} of a body of %{node.name} is %{result.name}, which has a place of its own",
                    expected="a value that is computed where the result is to be",
                    hint="run SeparateBodyResults after the last pass that changes what bodies return",
                )


_COPY = torch.ops.aten.copy_.default


def check_written_back(program: ExportedProgram) -> list[Diagnostic]:
    """Check that every output that the signature calls a new value is written to the input that has the old one.

    Returns:
        All findings (EK358), in the order of the outputs.
    """
    return list(_unwritten(program))


def _unwritten(program: ExportedProgram) -> Iterator[Diagnostic]:
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
