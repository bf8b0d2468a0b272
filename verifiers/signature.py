"""The signature of a program agrees with its graph; symbols of sizes have ranges; calls have debug handles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind
from torch.fx import GraphModule, Node

from exirkit.ir import Diagnostic, fake_mode_of, pytree, results_of_graph, same_argument, value_of

from .structure import ProgramGraph, graphs_of, type_of

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
            yield graph.finding("EK327", output, f"output {place} is {result!r}, the signature says {said!r}")


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
            yield graph.finding("EK328", result if isinstance(result, Node) else output, message)


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
    )


def _wrong_name(graph: ProgramGraph, node: Node, what: str, said: Any, found: str) -> Diagnostic:
    return graph.finding(
        "EK324",
        node,
        f"the signature calls {what} {said!r}, the graph %{found}",
        expected=f"the name {found!r} in the signature",
        hint="rename nodes, and order inputs, through the graph editor, which keeps the signature",
    )


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def check_symbols(program: ExportedProgram) -> list[Diagnostic]:
    """Check that every symbol in a recorded value is bound by an input or by the node that finds its value out.

    Returns:
        All findings (EK320: a symbol that nothing binds, EK321: nothing is promised of a symbol, EK322: promises that
        no number keeps, EK329: a size that is promised to vary has become a number), in graph order.
    """
    graphs = graphs_of(program)
    findings = [*_impossible_ranges(program, graphs[0]), *_fixed_sizes(program, graphs[0])]
    bound: set[Any] = set()
    reported: set[Any] = set()
    for graph in graphs:
        # A body sees the symbols of its surroundings, which come first.
        for node in graph.module.graph.nodes:
            found = _symbols(node)
            if node.op == "placeholder":
                bound |= found
                findings += _unknown_ranges(graph, node, found, program, reported)
            bound |= set(node.meta.get("unbacked_bindings") or ())
            dangling = sorted(found - bound, key=str)
            if dangling:
                findings.append(_dangling(graph, node, dangling))
                # Once for each symbol: where it turns up first is where it was lost.
                bound |= found
    return findings


def _symbols(node: Node) -> set[Any]:
    found: set[Any] = set()
    value = node.meta.get("val")
    leaves = (value,) if isinstance(value, torch.Tensor) else pytree.tree_leaves(value)
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            for size in leaf.shape:
                if isinstance(size, torch.SymInt):
                    found |= size.node.expr.free_symbols
        elif isinstance(leaf, _SYMBOLIC):
            found |= leaf.node.expr.free_symbols
    return found


def _dangling(graph: ProgramGraph, node: Node, symbols: list[Any]) -> Diagnostic:
    names = ", ".join(map(str, symbols))
    return graph.finding(
        "EK320", node, f"%{node.name} speaks of {names}, which no input has and no node before it finds out"
    )


def _unknown_ranges(
    graph: ProgramGraph, node: Node, symbols: set[Any], program: ExportedProgram, reported: set[Any]
) -> Iterator[Diagnostic]:
    if graph.path:
        return
    known = {symbol for each in program.range_constraints for symbol in getattr(each, "free_symbols", ())}
    for symbol in sorted(symbols - known - reported, key=str):
        reported.add(symbol)
        yield graph.finding(
            "EK321",
            node,
            f"the program promises nothing of {symbol}, a size of input %{node.name}",
            expected=f"an entry for {symbol} in range_constraints",
        )


def _impossible_ranges(program: ExportedProgram, graph: ProgramGraph) -> Iterator[Diagnostic]:
    for symbol, promised in program.range_constraints.items():
        if _is_empty(promised):
            for node in graph.module.graph.nodes:
                if getattr(symbol, "free_symbols", {symbol}) & _symbols(node):
                    yield graph.finding(
                        "EK322",
                        node,
                        f"no number is {symbol}, which is promised to be from {promised.lower} to {promised.upper}",
                    )
                    break


def _fixed_sizes(program: ExportedProgram, graph: ProgramGraph) -> Iterator[Diagnostic]:
    """Find symbols that torch has replaced by numbers, because the model asked for the number of a size."""
    env = fake_mode_of(graph.module).shape_env
    if env is None:
        return
    for symbol, promised in program.range_constraints.items():
        number = env.replacements.get(symbol)
        if not isinstance(number, sympy.Integer) or not promised.lower < promised.upper:
            continue
        for node in graph.module.graph.find_nodes(op="placeholder"):
            if symbol in _symbols_as_recorded(node.meta.get("val")):
                yield graph.finding(
                    "EK329",
                    node,
                    f"{symbol}, a size of input %{node.name}, has become {number} everywhere in the program",
                    expected=f"a size from {promised.lower} to {promised.upper}, as promised",
                )
                break


def _symbols_as_recorded(value: Any) -> set[Any]:
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    # The public attribute has the number instead of the symbol.
    return {symbol for size in sizes if isinstance(size, torch.SymInt) for symbol in size.node._expr.free_symbols}


def _is_empty(promised: Any) -> bool:
    lower, upper = promised.lower, promised.upper
    if not isinstance(lower, int | sympy.Number) or not isinstance(upper, int | sympy.Number):
        return False
    return bool(lower > upper) or bool(upper < 0)


def check_debug_handles(program: ExportedProgram | GraphModule) -> list[Diagnostic]:
    """Check that every call has a debug handle, and that calls that come from different nodes have different ones.

    Args:
        program: Program of any dialect.

    Returns:
        All findings (EK350: no handle, EK351: no number, EK352: one for nodes of different origin), in graph order.
    """
    findings: list[Diagnostic] = []
    for graph in graphs_of(program):
        owners: dict[int, tuple[Node, Any]] = {}
        for node in graph.calls():
            findings += _findings(graph, node, owners)
    return findings


def _findings(graph: ProgramGraph, node: Node, owners: dict[int, tuple[Node, Any]]) -> Iterator[Diagnostic]:
    handle = node.meta.get("debug_handle")
    if handle is None:
        yield graph.finding("EK350", node, f"%{node.name} has no debug handle")
        return
    several = handle if isinstance(handle, tuple) else (handle,)
    if not several or not all(type(one) is int and one > 0 for one in several):
        yield graph.finding("EK351", node, f"the debug handle of %{node.name} is {handle!r}")
        return
    origin = _origin(node)
    if len(several) > 1 or origin is None:
        return
    owner, known = owners.setdefault(several[0], (node, origin))
    if known != origin:
        yield graph.finding(
            "EK352",
            node,
            f"%{node.name} has the debug handle {handle} of %{owner.name}, which comes from another node of the model",
        )


def _origin(node: Node) -> Any:
    """Return what identifies the node of the exported program from which this one descends, or None."""
    sources = node.meta.get("from_node")
    if not sources:
        return None
    source = sources[0]
    while source.from_node:
        source = source.from_node[0]
    return (source.graph_id, source.name)
