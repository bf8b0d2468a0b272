"""The graphs of a program: their structure, arguments of calls against schemas, what calls of control flow exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import (
    Diagnostic,
    HigherOrderOperator,
    all_sizes,
    attribute_at,
    evaluated,
    graph_argument,
    graphs_by_path,
    locate,
    pytree,
    results_of_graph,
    sorted_symbols,
    underlying,
    value_of,
)

from .unchanged_calls import current_memory


@dataclass(frozen=True, slots=True)
class ProgramGraph:
    """One graph of a program: that of the method, or a body of control flow.

    Attributes:
        module: The graph.
        path: Attributes that lead to it from the method, `true_graph_0.body_graph_1`; empty for the method itself.
    """

    module: GraphModule
    path: str

    def finding(
        self,
        code: str,
        node: Node,
        message: str,
        *,
        expected: str | None = None,
        hint: str | None = None,
        notes: Sequence[str] = (),
    ) -> Diagnostic:
        """Return a finding about a node, with the advice of `codes.yaml`; one in a subgraph says which it is."""
        where = (f"in the graph {self.path}",) if self.path else ()
        notes = (*notes, *where)
        return Diagnostic.of(code, message, location=locate(node), expected=expected, notes=notes, hint=hint)

    def calls(self) -> Iterator[Node]:
        """Yield the nodes that call something, in graph order."""
        for node in self.module.graph.nodes:
            if node.op == "call_function":
                yield node


def graphs_of(program: ExportedProgram | GraphModule) -> list[ProgramGraph]:
    """Return the graph of a method and all that its nodes name, at any depth, each once, outer ones first."""
    module = program if isinstance(program, GraphModule) else program.graph_module
    return [ProgramGraph(one, path) for path, one in graphs_by_path(module)]


_ATTRIBUTES = (torch.nn.Module, torch.Tensor, torch.ScriptObject, pytree.TreeSpec)


def check_structure(program: ExportedProgram | GraphModule) -> list[Diagnostic]:
    """Check that every graph of a program can be executed from its first node to its last.

    Returns:
        All findings (EK306: use before definition, EK307: a name is not unique, EK308: a node stands where none of its
        kind may stand, EK309: an attribute is not there), in graph order.
    """
    return [finding for graph in graphs_of(program) for finding in _structure_findings(graph)]


def _structure_findings(graph: ProgramGraph) -> Iterator[Diagnostic]:
    defined: set[Node] = set()
    names: dict[str, Node] = {}
    has_calls, has_output = False, False
    for node in graph.module.graph.nodes:
        yield from _undefined(graph, node, defined)
        if node.name in names:
            yield graph.finding("EK307", node, f"two nodes are called %{node.name}")
        if has_output:
            yield _misplaced(graph, node, f"%{node.name} stands behind the output", "the output as the last node")
        elif node.op == "placeholder" and has_calls:
            yield _misplaced(graph, node, f"input %{node.name} stands behind calls", "all inputs before the first call")
        elif node.op in ("call_module", "call_method"):
            yield _misplaced(graph, node, f"%{node.name} is a {node.op}", "a call_function of an operator")
        elif node.op == "get_attr":
            yield from _missing_attribute(graph, node)
        has_calls = has_calls or node.op not in ("placeholder", "get_attr")
        has_output = has_output or node.op == "output"
        names[node.name] = node
        defined.add(node)
    if not has_output:
        last = next(iter(reversed(graph.module.graph.nodes)), None)
        if last is not None:
            yield _misplaced(graph, last, "the graph has no output", "one output node, the last of the graph")


def _undefined(graph: ProgramGraph, node: Node, defined: set[Node]) -> Iterator[Diagnostic]:
    for source in node.all_input_nodes:
        if source in defined:
            continue
        if source.graph is not graph.module.graph:
            message, expected = f"%{source.name} is a node of another graph", "an input that hands the value over"
        elif source._erased:
            message, expected = f"%{source.name} was erased", "a node of the graph"
        else:
            message, expected = f"%{source.name} is computed after %{node.name}", "definitions before uses"
        yield graph.finding(
            "EK306",
            node,
            f"%{node.name} uses a value that does not exist yet: {message}",
            expected=expected,
            hint=f"insert what computes %{source.name} before %{node.name}",
        )


def _misplaced(graph: ProgramGraph, node: Node, message: str, expected: str) -> Diagnostic:
    return graph.finding("EK308", node, message, expected=expected)


def _missing_attribute(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    found = attribute_at(graph.module, str(node.target))
    if not isinstance(found, _ATTRIBUTES):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        yield graph.finding("EK309", node, f"the graph module has {what} under the name {node.target!r}")


class _Unknown:
    """Stands for a node without recorded value, of which nothing is known."""


_UNKNOWN = _Unknown()
_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_TENSORS = (torch.Tensor, *_NUMBERS, _Unknown)
_PLAIN: dict[str, tuple[type, ...]] = {
    name: (*kinds, _Unknown)
    for name, kinds in {
        "int": (int, torch.SymInt),
        "SymInt": (int, torch.SymInt),
        "float": (float, int, torch.SymFloat, torch.SymInt),
        "bool": (bool, int, torch.SymBool, torch.SymInt),
        "str": (str,),
        "Device": (torch.device, str),
        "ScalarType": (torch.dtype, int),
        "MemoryFormat": (torch.memory_format, int),
        "Layout": (torch.layout, int),
        "Generator": (torch.Generator,),
        "number": _NUMBERS,
        "Scalar": _NUMBERS,
    }.items()
}


def check_calls(program: ExportedProgram | GraphModule) -> list[Diagnostic]:
    """Check that every call gives its operator the arguments that the schema asks for.

    Returns:
        All findings (EK310: too few, too many or unknown arguments, EK311: an argument of the wrong kind), in graph
        order. Whether a number may stand for a tensor is a matter of the dialect (EK304).
    """
    memory = current_memory()
    findings: list[Diagnostic] = []
    for graph in graphs_of(program):
        for node in graph.calls():
            if not isinstance(node.target, HigherOrderOperator) and not memory.is_unchanged("arguments", node):
                found = list(_findings(graph, node))
                findings += found
                if not found:
                    memory.note("arguments", node)
    return findings


_Fits = Callable[[Any], bool]
"""Whether an argument as it stands in a graph is of a kind."""


@dataclass(frozen=True)
class _Form:
    """A schema, in the form in which calls are compared with it.

    Attributes:
        positional: Names of arguments that may be given by position.
        required: Names of arguments without default.
        fits: Whether something may be given, by names of arguments.
        schema: The schema itself.
    """

    positional: tuple[str, ...]
    required: tuple[str, ...]
    fits: Mapping[str, _Fits]
    schema: Any


@cache
def _form(op: Any) -> _Form | None:
    schema = getattr(op, "_schema", None)
    if schema is None:
        return None
    return _Form(
        tuple(one.name for one in schema.arguments if not one.kwarg_only),
        tuple(one.name for one in schema.arguments if not one.has_default_value()),
        {one.name: _fits(one.real_type) for one in schema.arguments},
        schema,
    )


def _findings(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    form = _form(underlying(node.target))
    if form is None:
        return
    wrong = list(_wrong_number(node, form))
    for message in wrong:
        yield graph.finding("EK310", node, message, expected=str(form.schema))
    if wrong:
        return
    for name, given in (*zip(form.positional, node.args, strict=False), *node.kwargs.items()):
        if _holds_symbols(given):
            yield graph.finding(
                "EK311",
                node,
                f"argument {name} is {_shown(given)}, a number that varies and that no node computes",
                expected="a node, such as a call of aten.sym_size.int",
                hint="sizes in `meta` are facts about values; to use one in a call, add a node that computes it",
            )
        elif not form.fits[name](given):
            kind = next(one.real_type for one in form.schema.arguments if one.name == name)
            yield graph.finding(
                "EK311",
                node,
                f"argument {name} is {_shown(given)}",
                expected=f"{kind}",
                hint=f"see the schema: {form.schema}",
            )


def _holds_symbols(given: Any) -> bool:
    if isinstance(given, list | tuple | dict):
        return any(isinstance(one, _SYMBOLS) for one in pytree.tree_leaves(given))
    return isinstance(given, _SYMBOLS)


def _wrong_number(node: Node, form: _Form) -> Iterator[str]:
    if len(node.args) > len(form.positional):
        yield f"{len(node.args)} positional arguments are given, the operator takes {len(form.positional)}"
    placed = form.positional[: len(node.args)]
    for name in node.kwargs:
        if name not in form.fits:
            yield f"the operator has no argument {name}"
        elif name in placed:
            yield f"argument {name} is given twice"
    for name in form.required:
        if name not in placed and name not in node.kwargs:
            yield f"argument {name} is missing"


def _fits(kind: Any) -> _Fits:
    """Return a test whether an argument is of the kind of a schema; a node without a recorded value is."""
    if isinstance(kind, torch.OptionalType):
        inner = _fits(kind.getElementType())
        return lambda given: given is None or _recorded(given) is None or inner(given)
    if isinstance(kind, torch.ListType):
        element = kind.getElementType()
        inner = _fits(element)
        # One number stands for a list of equal ones.
        is_number = str(element) in ("int", "SymInt", "float", "bool", "number")
        return lambda given: _fits_list(inner, is_number, given)
    # Numbers for tensors are judged by the dialect; numbers that a tensor holds are read from it by eager operators.
    wanted = _TENSORS if isinstance(kind, torch.TensorType) else _PLAIN.get(str(kind))
    if wanted is None:
        return lambda given: True
    return lambda given: isinstance(_recorded(given), wanted)


def _recorded(given: Any) -> Any:
    return given.meta.get("val", _UNKNOWN) if isinstance(given, Node) else given


def _fits_list(fits: _Fits, is_number: bool, given: Any) -> bool:
    if isinstance(given, Node):
        return isinstance(_recorded(given), list | tuple | _Unknown)
    if isinstance(given, list | tuple):
        return all(map(fits, given))
    return is_number and fits(given)


def _shown(argument: Any) -> str:
    value = value_of(argument)
    if isinstance(argument, Node):
        return f"%{argument.name}, a {type(value).__name__ if not isinstance(value, torch.Tensor) else 'tensor'}"
    return f"{argument!r}"


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
        yield graph.finding("EK331", node, f"the branches return different things: {wrong}")
        return
    yield from _recorded_results(graph, node, left)


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
        yield from _recorded_results(graph, node, _values(body), first_row=0)


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
    yield from _recorded_results(graph, node, results, first_row=len(start))


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
        yield from _recorded_results(graph, node, _values(body))


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
            "EK330", node, f"{name} of %{node.name} is not a graph", expected="a get_attr of a graph module"
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
            "EK333", node, f"a round of %{node.name} does not end with what the next begins with: {wrong}"
        )


def _recorded_results(
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
    return graph.finding("EK332", node, f"{what} of %{node.name} is {found}")
