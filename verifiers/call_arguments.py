"""Arguments of calls against the schemas of operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import Diagnostic, underlying

from .program_graphs import ProgramGraph, graphs_of, value_of

_UNKNOWN = object()
"""Stands for a node without recorded value, of which nothing is known."""

_PLAIN: dict[str, tuple[type, ...]] = {
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
    "number": (int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool),
    "Scalar": (int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool),
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


def arguments_by_name(node: Node) -> dict[str, Any]:
    """Return the arguments that a call gives, by the names that its schema has for them; empty without a schema."""
    schema = getattr(underlying(node.target), "_schema", None)
    if schema is None:
        return {}
    positional = [argument.name for argument in schema.arguments if not argument.kwarg_only]
    return {**dict(zip(positional, node.args, strict=False)), **node.kwargs}


def _findings(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    schema = getattr(underlying(node.target), "_schema", None)
    if schema is None:
        return
    wrong = list(_wrong_number(node, schema))
    for message in wrong:
        yield graph.finding(
            "EK310",
            node,
            message,
            expected=str(schema),
            hint="an operator that is exchanged for another takes other arguments",
        )
    if wrong:
        return
    given = arguments_by_name(node)
    for argument in schema.arguments:
        if argument.name in given and not _fits(argument.real_type, given[argument.name]):
            yield graph.finding(
                "EK311",
                node,
                f"argument {argument.name} is {_shown(given[argument.name])}",
                expected=f"{argument.real_type}",
                hint=f"see the schema: {schema}",
            )


def _wrong_number(node: Node, schema: Any) -> Iterator[str]:
    positional = [argument.name for argument in schema.arguments if not argument.kwarg_only]
    known = {argument.name for argument in schema.arguments}
    if len(node.args) > len(positional):
        yield f"{len(node.args)} positional arguments are given, the operator takes {len(positional)}"
    for name in node.kwargs:
        if name not in known:
            yield f"the operator has no argument {name}"
        elif name in positional[: len(node.args)]:
            yield f"argument {name} is given twice"
    given = {*positional[: len(node.args)], *node.kwargs}
    for argument in schema.arguments:
        if argument.name not in given and not argument.has_default_value():
            yield f"argument {argument.name} is missing"


def _fits(kind: Any, argument: Any) -> bool:
    value = _UNKNOWN if isinstance(argument, Node) and "val" not in argument.meta else value_of(argument)
    if value is _UNKNOWN:
        return True
    if isinstance(kind, torch.OptionalType):
        return value is None or _fits(kind.getElementType(), argument)
    if isinstance(kind, torch.ListType):
        return _fits_list(kind.getElementType(), argument, value)
    if isinstance(kind, torch.TensorType):
        # Numbers for tensors are judged by the dialect.
        return isinstance(value, torch.Tensor | bool | int | float | complex | torch.SymInt | torch.SymFloat)
    wanted = _PLAIN.get(str(kind))
    if wanted is None:
        return True
    # Numbers that a one-element tensor holds are read from it by eager operators only.
    return isinstance(value, wanted)


def _fits_list(element: Any, argument: Any, value: Any) -> bool:
    if isinstance(argument, Node):
        return isinstance(value, list | tuple)
    if not isinstance(argument, list | tuple):
        # One number stands for a list of equal ones.
        return str(element) in ("int", "SymInt", "float", "bool", "number") and _fits(element, argument)
    return all(_fits(element, one) for one in argument)


def _shown(argument: Any) -> str:
    value = value_of(argument)
    if isinstance(argument, Node):
        return f"%{argument.name}, a {type(value).__name__ if not isinstance(value, torch.Tensor) else 'tensor'}"
    return f"{argument!r}"
