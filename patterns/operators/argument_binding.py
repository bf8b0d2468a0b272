"""A call as written against the schema of its operator: every argument by name, or a diagnostic that helps."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from exirkit.patterns.syntax.terms import Operator


@dataclass
class WrittenCall:
    """Arguments of a call, bound to names.

    Attributes:
        given: Expressions by the names of the schema.
        is_open: The call ends in `...`.
        wrong: Diagnostics: message, place, hint.
    """

    given: dict[str, ast.expr] = field(default_factory=dict)
    is_open: bool = False
    wrong: list[tuple[str, ast.AST, str | None]] = field(default_factory=list)


def bind_written(op: Operator, name: str, node: ast.Call, arguments: Sequence[ast.expr]) -> WrittenCall:
    """Bind what stands in the brackets of a call.

    Args:
        op: Operator with a schema.
        name: As it is written.
        node: The call.
        arguments: Its positional arguments.
    """
    bound = WrittenCall()
    schema = list(op._schema.arguments)
    written = list(arguments)
    if written and isinstance(written[-1], ast.Constant) and written[-1].value is Ellipsis:
        bound.is_open = True
        written.pop()
    _bind_positional(bound, name, op, written)
    for keyword in node.keywords:
        _bind_keyword(bound, name, schema, keyword)
    if not bound.is_open:
        for argument in schema:
            if argument.name not in bound.given and not argument.has_default_value() and not argument.is_out:
                bound.wrong.append((f"{name} misses its argument {argument.name!r}", node, _signature(name, op)))
    for key, expression in bound.given.items():
        kind = next(argument.type for argument in schema if argument.name == key)
        problem = misfit(kind, expression)
        if problem:
            bound.wrong.append((f"argument {key!r} of {name} {problem}", expression, None))
    return bound


def _bind_positional(bound: WrittenCall, name: str, op: Operator, written: Sequence[ast.expr]) -> None:
    schema = list(op._schema.arguments)
    positional = [argument for argument in schema if not argument.kwarg_only]
    for index, expression in enumerate(written):
        if isinstance(expression, ast.Starred):
            bound.wrong.append(("`*` among the arguments of an operator", expression, "name the arguments"))
        elif index >= len(positional):
            bound.wrong.append(_too_many(name, schema, positional, expression))
            break
        else:
            bound.given[positional[index].name] = expression


def _bind_keyword(bound: WrittenCall, name: str, schema: Sequence[Any], keyword: ast.keyword) -> None:
    known = [argument.name for argument in schema]
    if keyword.arg is None:
        bound.wrong.append(("`**` is not part of the language", keyword.value, None))
    elif keyword.arg not in known:
        close = difflib.get_close_matches(keyword.arg, known, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
        bound.wrong.append((f"{name} has no argument {keyword.arg!r}", keyword, hint))
    elif keyword.arg in bound.given:
        bound.wrong.append((f"argument {keyword.arg!r} of {name} is given twice", keyword, None))
    else:
        bound.given[keyword.arg] = keyword.value


def _too_many(name: str, schema: Sequence[Any], positional: Sequence[Any], at: ast.expr) -> tuple[str, ast.AST, str]:
    by_name = [argument.name for argument in schema if argument.kwarg_only]
    hint = f"it takes {', '.join(argument.name for argument in positional)}"
    if by_name:
        hint += f"; by name only: {', '.join(by_name)}"
    return f"{name} takes {len(positional)} positional arguments", at, hint


def _signature(name: str, op: Operator) -> str:
    return f"its schema is {name}{str(op._schema).partition('(')[1]}{str(op._schema).partition('(')[2]}"


def misfit(kind: Any, expression: ast.expr) -> str | None:
    """Return why a written argument cannot be what the schema asks for, or None; names may be anything."""
    text = str(kind)
    if isinstance(expression, ast.List | ast.Tuple) and not text.startswith(("List[", "Optional[List[")):
        return f"is a list, and the schema says {text}"
    if not isinstance(expression, ast.Constant) or expression.value is Ellipsis:
        return None
    value = expression.value
    if value is None:
        return None if text.startswith("Optional[") else f"cannot be None: the schema says {text}"
    plain = text.removeprefix("Optional[").removesuffix("]") if text.startswith("Optional[") else text
    if isinstance(value, str):
        return None if plain in ("str", "Device") else f"is a text, and the schema says {text}"
    if plain == "str":
        return "must be a text"
    if plain.startswith("List["):
        return None if plain.startswith(("List[int", "List[float", "List[SymInt")) else f"is a number, not {text}"
    if plain in ("int", "SymInt") and isinstance(value, float):
        return f"is {value!r}, and the schema says {text}"
    return None


def default_of(argument: Any) -> Any:
    """Return the default of a schema argument as a plain value."""
    value = argument.default_value
    if isinstance(value, int) and str(argument.type) in ("float", "Optional[float]") and not isinstance(value, bool):
        return float(value)
    return list(value) if isinstance(value, list | tuple) else value


def normalised_literal(kind: Any, value: Any) -> Any:
    """Return a literal as the schema takes it: an integer given for a float is a float."""
    text = str(kind)
    if type(value) is int and text in ("float", "Optional[float]"):
        return float(value)
    if isinstance(value, list) and "List[float]" in text:
        return [float(one) if type(one) is int else one for one in value]
    if isinstance(value, bool) and text in ("int", "Optional[int]", "SymInt"):
        return int(value)
    return value


def normaliser(kind: Any) -> Callable[[Any], Any] | None:
    """Return `normalised_literal` for one type, or None where it changes nothing."""
    text = str(kind)
    if not any(part in text for part in ("float", "int", "Int")):
        return None
    return lambda value: normalised_literal(text, value)


def is_tensor_argument(kind: Any) -> bool:
    """Whether the schema asks for a tensor, or for none or a tensor."""
    return isinstance(kind, torch._C.TensorType) or str(kind) in ("Tensor", "Optional[Tensor]")


def result_count(op: Any) -> int | None:
    """Return how many results an operator has, or None when that depends on its arguments."""
    returns = op._schema.returns
    if len(returns) == 1 and str(returns[0].type).startswith("List["):
        return None
    return len(returns)
