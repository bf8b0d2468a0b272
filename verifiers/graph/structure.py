"""The graphs of a program: where findings are, the structure of each graph, and arguments of calls against schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from exirkit.ir import Diagnostic, attribute_at, graphs_by_path, locate, underlying, value_of


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
        """Return a finding about a node; one in a body says which body it is."""
        where = (f"in the graph {self.path}",) if self.path else ()
        return Diagnostic(
            code=code,
            message=message,
            location=locate(node),
            expected=expected,
            hint=hint,
            notes=(*notes, *where),
        )

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
            yield graph.finding(
                "EK307",
                node,
                f"two nodes are called %{node.name}",
                expected="a name of its own for every node of a graph",
                hint="make nodes through the graph editor, which gives unique names",
            )
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
        yield graph.finding(
            "EK309",
            node,
            f"the graph module has {what} under the name {node.target!r}",
            expected="a graph, a tensor or a lowered module",
            hint="register the attribute on the module of this graph, not on that of another",
        )


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
    return [
        finding
        for graph in graphs_of(program)
        for node in graph.calls()
        if not isinstance(node.target, HigherOrderOperator)
        for finding in _findings(graph, node)
    ]


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
        yield graph.finding(
            "EK310",
            node,
            message,
            expected=str(form.schema),
            hint="an operator that is exchanged for another takes other arguments",
        )
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
