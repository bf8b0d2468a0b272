"""Calls of control flow, decomposed: which graphs they run, and what the inputs and results of these stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node

from exirkit.ir.analysis.interface import graph_argument

COND = "cond"
MAP = "map_impl"
SCAN = "scan"
WHILE = "while_loop"

# Options of the operators that say what the graphs say as well: which operands are written to.
IGNORED_OPTIONS = frozenset({"mutated_arg_indices"})


@dataclass(frozen=True, slots=True)
class ControlFlowCall:
    """One call of `cond`, `map`, `scan` or `while_loop`.

    The inputs of every graph are, in this order: what is carried, a row of each sliced tensor, and what is shared.

    Attributes:
        node: The call.
        kind: Name of the operator: `cond`, `map_impl`, `scan` or `while_loop`.
        bodies: Its graphs, in order of the arguments; for `while_loop` the first one computes the condition.
        predicate: What decides between the branches of `cond`; None for the others.
        carried: What the first round begins with; each further round begins with what the one before returned.
        sliced: Tensors of which each round gets one row.
        shared: What every graph gets as it is.
    """

    node: Node
    kind: str
    bodies: tuple[GraphModule, ...]
    predicate: Any = None
    carried: tuple[Any, ...] = ()
    sliced: tuple[Any, ...] = ()
    shared: tuple[Any, ...] = ()

    @property
    def is_loop(self) -> bool:
        """Whether a graph may run more than once."""
        return self.kind != COND

    @property
    def body(self) -> GraphModule:
        """The graph that a loop repeats; the first branch of `cond`."""
        return self.bodies[-1 if self.kind == WHILE else 0]


def control_flow_call(node: Node) -> ControlFlowCall | None:
    """Decompose a call of control flow; None for other nodes, and for calls of an unusual form."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, HigherOrderOperator) or set(node.kwargs) - IGNORED_OPTIONS:
        return None
    reader = _READERS.get(target.name())
    return None if reader is None else reader(node)


def body_calls(module: GraphModule) -> Iterator[ControlFlowCall]:
    """Yield the calls of control flow of one graph, in order; those inside of their graphs are theirs."""
    for node in module.graph.nodes:
        call = control_flow_call(node)
        if call is not None:
            yield call


def _bodies(arguments: Sequence[Any]) -> tuple[GraphModule, ...] | None:
    found = tuple(map(graph_argument, arguments))
    return None if None in found else found  # type: ignore[return-value]


def _listed(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def _read_cond(node: Node) -> ControlFlowCall | None:
    if len(node.args) not in (3, 4) or (bodies := _bodies(node.args[1:3])) is None:
        return None
    shared = _listed(node.args[3]) if len(node.args) == 4 else ()
    return ControlFlowCall(node, COND, bodies, predicate=node.args[0], shared=shared)


def _read_map(node: Node) -> ControlFlowCall | None:
    if len(node.args) != 3 or (bodies := _bodies(node.args[:1])) is None:
        return None
    return ControlFlowCall(node, MAP, bodies, sliced=_listed(node.args[1]), shared=_listed(node.args[2]))


def _read_scan(node: Node) -> ControlFlowCall | None:
    if len(node.args) != 4 or (bodies := _bodies(node.args[:1])) is None:
        return None
    carried, sliced, shared = map(_listed, node.args[1:])
    return ControlFlowCall(node, SCAN, bodies, carried=carried, sliced=sliced, shared=shared)


def _read_while(node: Node) -> ControlFlowCall | None:
    if len(node.args) not in (3, 4) or (bodies := _bodies(node.args[:2])) is None:
        return None
    shared = _listed(node.args[3]) if len(node.args) == 4 else ()
    return ControlFlowCall(node, WHILE, bodies, carried=_listed(node.args[2]), shared=shared)


_READERS: dict[str, Callable[[Node], ControlFlowCall | None]] = {
    COND: _read_cond,
    MAP: _read_map,
    SCAN: _read_scan,
    WHILE: _read_while,
}
