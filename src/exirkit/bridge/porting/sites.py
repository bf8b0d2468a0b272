"""What a pass has changed: subgraphs of the program before and after it that compute the same value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.fuzz import GraphSession
from exirkit.ir import underlying

_Values: TypeAlias = dict[Node, Any]
_MOST_NODES = 24


@dataclass(frozen=True)
class Site:
    """A place that a pass has changed.

    Attributes:
        before: The calls that were there, in order.
        after: The calls that are there now, in order; empty if one of the inputs takes the place of the result.
        results: The nodes that give the result before and after.
        inputs: What both read from elsewhere: the node before and its counterpart after.
        examples: Values of the inputs.
        is_exact: Both give the same bits.
    """

    before: tuple[Node, ...]
    after: tuple[Node, ...]
    results: tuple[Node, Node]
    inputs: tuple[tuple[Node, Node], ...]
    examples: tuple[torch.Tensor, ...]
    is_exact: bool = True

    @property
    def skeleton(self) -> str:
        """Operators and their connections, without literals: the same for all sites of one rule."""
        names = {one: f"i{index}" for index, (one, _) in enumerate(self.inputs)}
        left = _skeleton(self.before, names, self.results[0])
        right = _skeleton(self.after, {one: f"i{index}" for index, (_, one) in enumerate(self.inputs)}, self.results[1])
        return f"{left} -> {right}"

    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return what was there and what is there now, as functions of the inputs."""
        return (
            _function(self.before, [one for one, _ in self.inputs], self.results[0]),
            _function(self.after, [one for _, one in self.inputs], self.results[1]),
        )


@dataclass
class _Graphs:
    """Two graphs with the values of their nodes, and numbers that equal calculations have in common."""

    values: _Values
    numbers: dict[Node, int]
    known_after: frozenset[int]


def sites_of(before: ExportedProgram, after: ExportedProgram, inputs: Sequence[Any]) -> Iterator[Site]:
    """Yield the places at which two programs that give the same results differ.

    Both are run. From the results on, calls of one operator whose operands have the same values are passed through; a
    pair of nodes that is left computes one value in two ways. Its site reaches up to what both programs have in common.

    Args:
        before: The program that a pass was given.
        after: What it made of it.
        inputs: Flat inputs.
    """
    values: _Values = {}
    for program in (before, after):
        GraphSession(program).run(inputs, values.__setitem__)
    ids: dict[Any, int] = {}
    numbers = {**_numbered(before, ids, "before"), **_numbered(after, ids, "after")}
    graphs = _Graphs(
        values,
        numbers,
        frozenset(numbers[node] for node in after.graph.nodes if node.op != "output"),
    )
    seen: set[tuple[Node, Node]] = set()
    for left, right in zip(_results(before), _results(after), strict=True):
        for pair in _differing(left, right, graphs, seen):
            site = _site(*pair, graphs)
            if site is not None:
                yield site


def _results(program: ExportedProgram) -> list[Node]:
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    return [one for one in output.args[0] if isinstance(one, Node)]


def _numbered(program: ExportedProgram, ids: dict[Any, int], side: str) -> dict[Node, int]:
    """Number nodes so that equal calculations from equal inputs have equal numbers, in both programs."""
    found: dict[Node, int] = {}
    kinds = {one.arg.name: str(one.target or one.kind) for one in program.graph_signature.input_specs}
    place = 0
    for node in program.graph.nodes:
        if node.op == "placeholder":
            stored = kinds.get(node.name, "")
            is_input = "USER_INPUT" in stored
            key: Any = ("input", place) if is_input else ("stored", stored)
            place += is_input
        elif node.op == "call_function":
            key = (_name(node), _keyed(node.args, found), _keyed(node.kwargs, found))
        else:
            key = (side, node.name)
        found[node] = ids.setdefault(key, len(ids))
    return found


def _keyed(value: Any, numbers: Mapping[Node, int]) -> Any:
    if isinstance(value, Node):
        return ("%", numbers[value])
    if isinstance(value, list | tuple):
        return tuple(_keyed(one, numbers) for one in value)
    if isinstance(value, dict):
        return tuple((key, _keyed(one, numbers)) for key, one in sorted(value.items()))
    return (type(value).__name__, str(value))


def _name(node: Node) -> str:
    return str(getattr(underlying(node.target), "__qualname__", node.target)) + str(underlying(node.target))


def _differing(left: Node, right: Node, graphs: _Graphs, seen: set[tuple[Node, Node]]) -> Iterator[tuple[Node, Node]]:
    """Yield pairs of nodes that compute one value in two ways."""
    if (left, right) in seen or graphs.numbers[left] == graphs.numbers[right]:
        return
    seen.add((left, right))
    operands = list(zip(left.all_input_nodes, right.all_input_nodes, strict=False))
    is_alike = (
        left.op == right.op == "call_function"
        and _name(left) == _name(right)
        and _without_nodes(left) == _without_nodes(right)
        and len(left.all_input_nodes) == len(right.all_input_nodes)
        and all(_is_equal(graphs.values.get(one), graphs.values.get(other)) for one, other in operands)
    )
    if not is_alike:
        yield left, right
        return
    for one, other in operands:
        yield from _differing(one, other, graphs, seen)


def _without_nodes(node: Node) -> str:
    return str(torch.fx.node.map_arg((node.args, node.kwargs), lambda _: "%"))


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(_is_equal(*each) for each in zip(one, other, strict=True))
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is type(other) and bool(one == other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    rtol = 2e-2 if one.dtype in (torch.float16, torch.bfloat16) else 1e-3
    return torch.allclose(one.double(), other.double(), rtol=rtol, atol=1e-5, equal_nan=True)


def _site(left: Node, right: Node, graphs: _Graphs) -> Site | None:
    """Return the site of a pair of nodes, or None if it is not one that a rule could describe."""
    if left.op != "call_function":
        return None
    # A program may make one calculation several times: what stands above the site counts.
    cone = _cone(left)
    above = {graphs.numbers[one]: one for one in reversed(left.graph.nodes) if one in cone}
    leaves = _leaves_after(right, graphs, above)
    if leaves is None:
        return None
    counterpart = {above[graphs.numbers[one]]: one for one in leaves}
    inner = _region_before(left, set(counterpart), graphs)
    if inner is None:
        return None
    before = _in_order(left, inner)
    read = list(dict.fromkeys(one for node in before for one in node.all_input_nodes if one not in inner))
    if not set(counterpart) <= set(read):
        return None
    inputs = tuple((one, counterpart.get(one, one)) for one in read)
    examples: tuple[Any, ...] = tuple(graphs.values.get(one) for one, _ in inputs)
    calls = _in_order(right, _between(right, set(leaves)))
    is_usable = all(isinstance(one, torch.Tensor) for one in examples) and len(inner) + len(calls) <= _MOST_NODES
    results = [graphs.values.get(one) for one in (left, right)]
    tensors = [one for one in results if isinstance(one, torch.Tensor)]
    is_exact = len(tensors) < 2 or bool((tensors[0].eq(tensors[1]) | tensors[0].isnan()).all())
    return Site(before, calls, (left, right), inputs, examples, is_exact) if is_usable else None


def _leaves_after(right: Node, graphs: _Graphs, above: Mapping[int, Node]) -> list[Node] | None:
    """Return the nodes at which what is there now begins: what the program had before, above the site."""
    leaves: list[Node] = []
    pending, seen = [right], set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if graphs.numbers[node] in above:
            leaves.append(node)
        elif node.op != "call_function":
            # A new tensor, which rules write in their own way.
            return None
        else:
            pending += node.all_input_nodes
    return leaves


def _region_before(left: Node, leaves: set[Node], graphs: _Graphs) -> set[Node] | None:
    """Return the calls that were there: down to the leaves, and all that is gone."""
    inner = {left}
    while True:
        frontier = {one for node in inner for one in node.all_input_nodes} - inner
        gone = {
            one
            for one in frontier - leaves
            if one.op == "call_function" and graphs.numbers[one] not in graphs.known_after
        }
        missing = leaves - frontier
        needed = {one for one in frontier - leaves if one.op == "call_function" and _cone(one) & missing}
        if not gone | needed:
            return inner if not missing else None
        inner |= gone | needed
        if len(inner) > _MOST_NODES:
            return None


def _cone(node: Node) -> set[Node]:
    """Return all that a node is computed from, without itself."""
    found: set[Node] = set()
    pending = list(node.all_input_nodes)
    while pending:
        one = pending.pop()
        if one not in found:
            found.add(one)
            pending += one.all_input_nodes
    return found


def _between(right: Node, leaves: set[Node]) -> set[Node]:
    found: set[Node] = set()
    pending = [right]
    while pending:
        node = pending.pop()
        if node not in leaves and node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found


def _in_order(result: Node, calls: set[Node]) -> tuple[Node, ...]:
    """Return calls so that operands come first, in the order of arguments: the same for all sites of one form."""
    found: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node in calls and node not in found:
            for one in node.all_input_nodes:
                visit(one)
            found[node] = None

    visit(result)
    return tuple(found)


def _skeleton(calls: Sequence[Node], names: dict[Node, str], result: Node) -> str:
    lines = []
    for index, node in enumerate(calls):
        operands = ",".join(names.get(one, "?") for one in node.all_input_nodes)
        names[node] = f"v{index}"
        index_of_result = f"[{node.args[1]}]" if not hasattr(underlying(node.target), "_schema") else ""
        lines.append(f"{underlying(node.target)}{index_of_result}({operands})")
    return f"{' '.join(lines)} = {names[result]}"


def _function(calls: Sequence[Node], inputs: Sequence[Node], result: Node) -> Callable[..., Any]:
    def run(*tensors: torch.Tensor) -> Any:
        values = dict(zip(inputs, tensors, strict=True))
        for node in calls:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = underlying(node.target)(*args, **kwargs)
        return values[result]

    return run
