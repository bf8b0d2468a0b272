"""The signature of a program against its graph and its tables of stored tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind
from torch.fx import Node

from exirkit.ir import Diagnostic, results_of_graph, same_argument, value_of

from .program_graphs import ProgramGraph
from .value_types import type_of

_STORED = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
    InputKind.CUSTOM_OBJ: "object",
}
_MUTATIONS = {
    OutputKind.BUFFER_MUTATION: InputKind.BUFFER,
    OutputKind.PARAMETER_MUTATION: InputKind.PARAMETER,
    OutputKind.USER_INPUT_MUTATION: InputKind.USER_INPUT,
}


def check_signature(program: ExportedProgram) -> list[Diagnostic]:
    """Check that signature, graph and stored tensors say the same.

    Returns:
        All findings (EK323: number of inputs or outputs, EK324: names, EK325: a stored tensor is missing, EK326: a
        stored tensor is of another kind than its input, EK327: what an output is, EK328: what a mutation changes).
    """
    graph = ProgramGraph(program.graph_module, "")
    return [*_inputs(program, graph), *_outputs(program, graph), *_mutations(program, graph)]


def _inputs(program: ExportedProgram, graph: ProgramGraph) -> Iterator[Diagnostic]:
    nodes = program.graph.find_nodes(op="placeholder")
    specs = program.graph_signature.input_specs
    if len(nodes) != len(specs):
        yield _wrong_number(program, graph, "inputs", len(nodes), len(specs))
    taken: dict[tuple[Any, Any], str] = {}
    for node, spec in zip(nodes, specs, strict=False):
        name = getattr(spec.arg, "name", None)
        if name != node.name and not isinstance(spec.arg, ConstantArgument):
            yield _wrong_name(graph, node, "input", name, node.name)
        if spec.kind in _STORED:
            yield from _stored(program, graph, node, spec)
            key = (spec.kind, spec.target)
            if key in taken:
                yield graph.finding(
                    "EK324",
                    node,
                    f"%{node.name} and %{taken[key]} both stand for {spec.target!r}",
                    expected="one input for each stored tensor",
                )
            taken[key] = node.name


def _stored(program: ExportedProgram, graph: ProgramGraph, node: Node, spec: InputSpec) -> Iterator[Diagnostic]:
    what, target = _STORED[spec.kind], str(spec.target)
    in_state = spec.kind is InputKind.PARAMETER or (spec.kind is InputKind.BUFFER and spec.persistent is not False)
    tables = (program.state_dict, program.constants) if in_state else (program.constants,)
    found = next((table[target] for table in tables if target in table), None)
    if found is None:
        yield graph.finding(
            "EK325",
            node,
            f"no {what} is stored under {target!r}, which %{node.name} stands for",
            expected=f"an entry {target!r} in {'state_dict' if in_state else 'constants'}",
            hint="add stored tensors by add_constant of the editor, which writes signature and tables together",
        )
        return
    value = node.meta.get("val")
    if not isinstance(found, torch.Tensor) or not isinstance(value, torch.Tensor):
        return
    if (found.dtype, list(found.shape)) != (value.dtype, _static_sizes(value)):
        yield graph.finding(
            "EK326",
            node,
            f"the {what} {target!r} is {type_of(found)}, its input %{node.name} is recorded to be {type_of(value)}",
            expected="the same dtype and sizes",
            hint="who replaces a stored tensor replaces the recorded value of its input, too",
        )


def _static_sizes(value: torch.Tensor) -> list[Any]:
    return [size if isinstance(size, int) else size.node.expr for size in value.shape]


def _outputs(program: ExportedProgram, graph: ProgramGraph) -> Iterator[Diagnostic]:
    results, specs = results_of_graph(program.graph_module), program.graph_signature.output_specs
    output = _output_node(program)
    if output is None:
        return
    if len(results) != len(specs):
        yield _wrong_number(program, graph, "outputs", len(results), len(specs))
        return
    for place, (result, spec) in enumerate(zip(results, specs, strict=True)):
        if isinstance(result, Node):
            name = getattr(spec.arg, "name", None)
            if isinstance(spec.arg, ConstantArgument) or name != result.name:
                yield _wrong_name(graph, output, f"output {place}", name, result.name)
        elif not isinstance(spec.arg, ConstantArgument) or not same_argument(spec.arg.value, result):
            said = spec.arg.value if isinstance(spec.arg, ConstantArgument) else spec.arg
            yield graph.finding(
                "EK327",
                output,
                f"output {place} is {result!r}, the signature says {said!r}",
                expected="a ConstantArgument with the value that is returned",
            )


def _mutations(program: ExportedProgram, graph: ProgramGraph) -> Iterator[Diagnostic]:
    output = _output_node(program)
    if output is None:
        return
    inputs = dict(zip(_owners(program), program.graph.find_nodes(op="placeholder"), strict=False))
    changed: set[tuple[Any, Any]] = set()
    is_past_mutations = False
    for spec, result in zip(program.graph_signature.output_specs, results_of_graph(program.graph_module), strict=False):
        kind = _MUTATIONS.get(spec.kind)
        if kind is None:
            is_past_mutations = is_past_mutations or spec.kind is OutputKind.USER_OUTPUT
            continue
        owner = inputs.get((kind, str(spec.target)))
        key = (kind, spec.target)
        message = None
        if owner is None:
            message = f"the program changes {spec.target!r}, which is none of its inputs of that kind"
        elif key in changed:
            message = f"the program changes {spec.target!r} twice"
        elif is_past_mutations:
            message = f"the new value of {spec.target!r} is returned behind the outputs for the user"
        elif not _same_type(value_of(owner), value_of(result)):
            message = f"{spec.target!r} is {type_of(value_of(owner))}, and changed to {type_of(value_of(result))}"
        changed.add(key)
        if message is not None:
            yield graph.finding(
                "EK328",
                result if isinstance(result, Node) else output,
                message,
                expected="for each input that changes one new value of the same kind, in front of all other outputs",
            )


def _owners(program: ExportedProgram) -> list[tuple[InputKind, str]]:
    return [
        (spec.kind, str(spec.arg.name if spec.kind is InputKind.USER_INPUT else spec.target))
        for spec in program.graph_signature.input_specs
    ]


def _same_type(old: Any, new: Any) -> bool:
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        return True
    return old.dtype == new.dtype and same_argument(tuple(old.shape), tuple(new.shape))


def _output_node(program: ExportedProgram) -> Node | None:
    found = program.graph.find_nodes(op="output")
    return found[0] if found else None


def _wrong_number(program: ExportedProgram, graph: ProgramGraph, what: str, found: int, said: int) -> Diagnostic:
    return graph.finding(
        "EK323",
        _output_node(program) or next(iter(program.graph.nodes)),
        f"the graph has {found} {what}, its signature {said}",
        expected="a spec for each",
        hint="add and remove inputs and outputs through the graph editor, which keeps the signature",
    )


def _wrong_name(graph: ProgramGraph, node: Node, what: str, said: Any, found: str) -> Diagnostic:
    return graph.finding(
        "EK324",
        node,
        f"the signature calls {what} {said!r}, the graph %{found}",
        expected=f"the name {found!r} in the signature",
        hint="rename nodes, and order inputs, through the graph editor, which keeps the signature",
    )
