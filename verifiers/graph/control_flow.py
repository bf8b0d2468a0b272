"""Graphs that calls of control flow run take and return what the calls give and return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import Diagnostic, all_sizes, evaluated, graph_argument, results_of_graph, sorted_symbols, value_of
from exirkit.verifiers.graph.structure import ProgramGraph, graphs_of

# So many combinations of sizes are examined, and ends and some in between where there are more.
_MOST_TRIALS = 512

# What torch says of a size that only data decide, where it does not say that there is no greatest one.
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class TensorType:
    """Dtype and sizes of a tensor."""

    dtype: torch.dtype
    sizes: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}[{', '.join(map(str, self.sizes))}]"


def type_of(value: Any) -> Any:
    """Return the type of a tensor; a number, None or symbolic number is returned as it is."""
    return TensorType(value.dtype, tuple(value.shape)) if isinstance(value, torch.Tensor) else value


def row_of(kind: Any) -> Any:
    """Return the type of one row of a tensor; what is not a tensor with rows is returned as it is."""
    return TensorType(kind.dtype, kind.sizes[1:]) if isinstance(kind, TensorType) and kind.sizes else kind


def difference(left: Any, right: Any) -> str | None:
    """Return how two types differ for certain, or None; a symbolic size may be equal to any other."""
    if not isinstance(left, TensorType) or not isinstance(right, TensorType):
        is_wrong = isinstance(left, TensorType) != isinstance(right, TensorType)
        is_known = left is not None and right is not None
        return f"{left} and {right}" if is_wrong and is_known else None
    same_sizes = len(left.sizes) == len(right.sizes) and all(
        type(one) is not int or type(other) is not int or one == other
        for one, other in zip(left.sizes, right.sizes, strict=True)
    )
    return None if left.dtype == right.dtype and same_sizes else f"{left} and {right}"


def disagreement(left: Sequence[Any], right: Sequence[Any]) -> str | None:
    """Return how two lists of types differ for certain, or None."""
    if len(left) != len(right):
        return f"{len(left)} values and {len(right)} values"
    pairs = enumerate(zip(left, right, strict=True))
    wrong = [f"value {place}: {text}" for place, pair in pairs if (text := difference(*pair))]
    return "; ".join(wrong) or None


def is_bound(bound: Any, size: Any) -> bool:
    """Return whether a size never exceeds a bound, as far as that is known; a fixed size is its own bound."""
    if type(bound) is not int:
        return True
    if isinstance(size, torch.SymInt):
        known = size.node.maybe_as_int()
        if known is None:
            expression, env = size.node.expr, size.node.shape_env
            # Most sizes are symbols, of which torch knows the range without any computing.
            known_range = env.var_to_range.get(expression) or env.bound_sympy(expression)
            upper = known_range.upper
            return not upper.is_Integer or int(upper) >= _NO_LIMIT or bound >= int(upper) or _never_exceeds(size, bound)
        size = known
    return bool(bound == size)


def _never_exceeds(size: torch.SymInt, bound: int) -> bool:
    """Return whether numbers say what intervals cannot: `s * s // s` is no larger than `s`."""
    symbols = sorted_symbols(size.node.expr)
    ranges = {one: size.node.shape_env.var_to_range[one] for one in symbols}
    if not all(isinstance(end, sympy.Integer) for known in ranges.values() for end in (known.lower, known.upper)):
        return False
    limits = {one: (int(known.lower), int(known.upper)) for one, known in ranges.items()}
    try:
        return all(evaluated(size.node.expr, point) <= bound for point in all_sizes(limits, most=_MOST_TRIALS))
    except ZeroDivisionError:
        return False


def check_control_flow(program: ExportedProgram | GraphModule) -> list[Diagnostic]:
    """Check calls of `cond`, `map_impl`, `scan` and `while_loop`, at any depth.

    Returns:
        All findings (EK330: operands against inputs of a body, EK331: results of bodies against each other, EK332: a
        condition, EK333: what is carried from one round to the next, EK334: the recorded value), in graph order.
    """
    return [
        finding
        for graph in graphs_of(program)
        for node in graph.calls()
        if isinstance(node.target, HigherOrderOperator) and node.target.name() in _CHECKS
        for finding in _CHECKS[node.target.name()](graph, node)
    ]


def _cond(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    given = _named(node, ("pred", "true_fn", "false_fn", "operands"))
    yield from _truth(graph, node, given["pred"], "the condition")
    bodies = {name: graph_argument(given[name]) for name in ("true_fn", "false_fn")}
    for name, body in bodies.items():
        yield from _operands(graph, node, name, body, _types(given["operands"]))
    first, second = bodies.values()
    if first is None or second is None:
        return
    left, right = _widened(_values(first), node), _values(second)
    wrong = disagreement(left, right)
    if wrong:
        yield graph.finding(
            "EK331",
            node,
            f"the branches return different things: {wrong}",
            expected="as many results of the same dtypes and sizes from both",
            hint="change the branch that a pass has edited last, or edit both alike",
        )
        return
    yield from _recorded(graph, node, left)


def _widened(results: Sequence[Any], node: Node) -> list[Any]:
    """Return the types of results with sizes that differ from branch to branch as the call has them: as symbols."""
    recorded = _types(node.meta.get("val"))
    if len(recorded) != len(results):
        return list(results)
    return [_with_symbols(one, said) for one, said in zip(results, recorded, strict=True)]


def _with_symbols(found: Any, said: Any) -> Any:
    both = isinstance(found, TensorType) and isinstance(said, TensorType)
    if not both or len(found.sizes) != len(said.sizes):
        return found
    pairs = zip(found.sizes, said.sizes, strict=True)
    return TensorType(found.dtype, tuple(wide if isinstance(wide, torch.SymInt) else size for size, wide in pairs))


def _map(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    given = _named(node, ("f", "xs", "pos_args"))
    body = graph_argument(given["f"])
    operands = [*map(row_of, _types(given["xs"])), *_types(given["pos_args"])]
    yield from _operands(graph, node, "f", body, operands)
    if body is not None:
        yield from _recorded(graph, node, _values(body), first_row=0)


def _scan(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    given = _named(node, ("combine_fn", "init", "xs", "additional_inputs"))
    body = graph_argument(given["combine_fn"])
    start = _types(given["init"])
    operands = [*start, *map(row_of, _types(given["xs"])), *_types(given["additional_inputs"])]
    yield from _operands(graph, node, "combine_fn", body, operands)
    if body is None:
        return
    results = _values(body)
    yield from _carry(graph, node, start, results[: len(start)])
    yield from _recorded(graph, node, results, first_row=len(start))


def _while(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    given = _named(node, ("cond_fn", "body_fn", "carried_inputs", "additional_inputs"))
    start = _types(given["carried_inputs"])
    operands = [*start, *_types(given["additional_inputs"])]
    condition, body = graph_argument(given["cond_fn"]), graph_argument(given["body_fn"])
    yield from _operands(graph, node, "cond_fn", condition, operands)
    yield from _operands(graph, node, "body_fn", body, operands)
    if condition is not None:
        results = results_of_graph(condition)
        if len(results) != 1:
            yield _no_truth(graph, node, "what cond_fn returns", f"{len(results)} values")
        else:
            yield from _truth(graph, node, results[0], "what cond_fn returns")
    if body is not None:
        yield from _carry(graph, node, start, _values(body))
        yield from _recorded(graph, node, _values(body))


_CHECKS: dict[str, Callable[[ProgramGraph, Node], Iterator[Diagnostic]]] = {
    "cond": _cond,
    "map_impl": _map,
    "scan": _scan,
    "while_loop": _while,
}


def _named(node: Node, names: Sequence[str]) -> dict[str, Any]:
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return {name: given.get(name) for name in names}


def _list(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _type(argument: Any) -> Any:
    return type_of(value_of(argument))


def _types(given: Any) -> list[Any]:
    return list(map(_type, _list(given)))


def _values(body: GraphModule) -> list[Any]:
    return list(map(_type, results_of_graph(body)))


def _operands(
    graph: ProgramGraph, node: Node, name: str, body: GraphModule | None, operands: Sequence[Any]
) -> Iterator[Diagnostic]:
    if body is None:
        yield graph.finding(
            "EK330", node, f"{name} of %{node.name} is no graph", expected="a get_attr of a graph module"
        )
        return
    inputs = body.graph.find_nodes(op="placeholder")
    if len(inputs) != len(operands):
        yield graph.finding(
            "EK330",
            node,
            f"%{node.name} hands {len(operands)} values to {name}, which takes {len(inputs)}",
            expected="an operand for each input of the body",
            hint="a weight that one of the bodies uses is an operand of all of them",
        )
        return
    for wanted, operand in zip(inputs, operands, strict=True):
        wrong = difference(operand, _type(wanted))
        if wrong:
            yield graph.finding(
                "EK330",
                node,
                f"what %{node.name} hands to input %{wanted.name} of {name} is not what that takes: {wrong}",
                expected="the same dtype and sizes",
                hint="infer the subgraph again with the operands that it is given",
            )


def _carry(graph: ProgramGraph, node: Node, start: Sequence[Any], end: Sequence[Any]) -> Iterator[Diagnostic]:
    wrong = disagreement(start, end)
    if wrong:
        yield graph.finding(
            "EK333",
            node,
            f"a round of %{node.name} does not end with what the next begins with: {wrong}",
            expected="the body returns the carried values in the order, dtypes and sizes in which it takes them",
        )


def _recorded(
    graph: ProgramGraph, node: Node, results: Sequence[Any], *, first_row: int | None = None
) -> Iterator[Diagnostic]:
    """Compare the recorded value with what the body returns; from `first_row` on, the call returns rows of that."""
    if "val" not in node.meta:
        return
    recorded = _types(node.meta["val"])
    if len(recorded) != len(results):
        message = f"%{node.name} is recorded to give {len(recorded)} values, its body returns {len(results)}"
        yield graph.finding("EK334", node, message, expected="a recorded value for each result")
        return
    for place, (said, found) in enumerate(zip(recorded, results, strict=True)):
        is_row = first_row is not None and place >= first_row
        wrong = difference(row_of(said) if is_row else said, found)
        if wrong:
            yield graph.finding(
                "EK334",
                node,
                f"result {place} of %{node.name} is not recorded as its body returns it: {wrong}",
                expected="the same dtype and sizes",
                hint="an edit of the body changed a result: record what the call gives now",
            )


def _truth(graph: ProgramGraph, node: Node, given: Any, what: str) -> Iterator[Diagnostic]:
    kind = _type(given)
    if isinstance(kind, TensorType):
        is_truth = kind.dtype is torch.bool and all(type(size) is not int or size == 1 for size in kind.sizes)
    else:
        is_truth = kind is None or isinstance(kind, bool | torch.SymBool)
    if not is_truth:
        yield _no_truth(graph, node, what, str(kind))


def _no_truth(graph: ProgramGraph, node: Node, what: str, found: str) -> Diagnostic:
    return graph.finding("EK332", node, f"{what} of %{node.name} is {found}", expected="one bool")
