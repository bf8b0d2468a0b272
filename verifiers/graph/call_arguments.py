"""Arguments of calls against the schemas of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from exirkit.ir import Diagnostic, underlying, value_of

from .program_graphs import ProgramGraph, graphs_of


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
    """Return what tells whether an argument is of the kind of a schema; a node of which nothing is recorded is."""
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
