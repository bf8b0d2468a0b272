"""`exirkit rule from-trace`: a rule of two functions, with a decision for every literal."""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exirkit.cli.console import Steps, output_to_stderr, print_json
from exirkit.cli.errors import WRONG_USAGE, CommandError, usage_error
from exirkit.cli.files import check_writable, write_text
from exirkit.cli.model import ModelSource, call_factory, find_functions, parse_source
from exirkit.cli.options import Json, Libraries

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

_TENSOR = re.compile(r"(?:(?P<kind>const|param|buffer|list of) +)?(?P<dtype>[a-z]+\d*) *\[(?P<sizes>[\d, ]*)\]")
_BODY = re.compile(r"body( like [A-Za-z_]\w*)?|condition|operands")
_DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "bool": "bool", "u8": "uint8",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
}  # fmt: skip
_LARGEST_EXAMPLE = 1 << 24
# Fewer elements of a list could not show that all are treated alike.
_ELEMENTS = 3


class TraceDialect(StrEnum):
    """Dialects that functions can be traced in."""

    ATEN = "aten"
    EDGE = "edge"


ValueRoot = StrEnum("ValueRoot", {"STORED": "stored", "INPUT": "input", "OUTPUT": "output"})
"""Values of a program that a rule can be about."""


@dataclass(frozen=True)
class TracedLiteral:
    """One literal of a trace.

    Attributes:
        name: Name under which it is decided on.
        value: Its value in the trace.
        argument: The argument that it is.
        default: Default of that argument.
        decision: What was decided; absent if nothing was.
    """

    name: str
    value: str
    argument: str
    default: str | None
    decision: str | None


@dataclass(frozen=True)
class RuleTraceReport:
    """The document of `exirkit rule from-trace`.

    Attributes:
        rule: Id of the rule.
        file: Where it was written, if it was.
        book: The text of the book with the rule.
        literals: All literals of the trace.
        undecided: Names of those without a decision.
    """

    rule: str
    file: str | None
    book: str
    literals: list[TracedLiteral]
    undecided: list[str]
    ok: bool = True


def from_trace(
    target: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", show_default=False)],
    replace: Annotated[
        str | None, typer.Option("--replace", metavar="FUNCTION", help="The replacement, in the same module.")
    ] = None,
    examples: Annotated[
        list[str] | None,
        typer.Option(
            "--example",
            metavar="NAME=VALUE",
            help="x='f32 [2, 3]', w='const f32 [3]', xs='list of f32 [2, 3]', alpha=0.25, f=body, xs=operands",
        ),
    ] = None,
    decide: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=WAY", help="exact, any, default, sizes, a type, or the name of a literal."),
    ] = None,
    rule: Annotated[
        str | None, typer.Option("--id", help="Id of the rule; default: from the name of the function.")
    ] = None,
    dialect: Annotated[TraceDialect, typer.Option(help="Dialect that the rule is applied to.")] = TraceDialect.EDGE,
    root: Annotated[
        ValueRoot | None, typer.Option(help="The rule is about such a value, which FUNCTION returns as it is.")
    ] = None,
    uses: Annotated[
        str | None,
        typer.Option("--uses", metavar="FUNCTION", help="With --root: the old value from what replaces it."),
    ] = None,
    varying: Annotated[
        list[str] | None,
        typer.Option(metavar="SIZE", help="Size that varies at run time, named as in the rule's types; repeatable."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="BOOK.yaml")] = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Make a rule from two functions by tracing them on examples.

    Each literal of the trace needs a decision: what is not decided by `--decide` is marked in the book, which cannot be
    loaded until no mark is left. FUNCTION takes the examples, in their order; or it takes nothing and returns
    (pattern, replacement, examples), examples a dict of tensors and numbers.
    """
    source = parse_source(target)
    if uses is not None and root is None:
        raise usage_error("--uses is for rules about values of the program: --root stored, input or output")
    check_writable(output, ".yaml")
    if source.factory is None:
        raise CommandError(code="EK713", message="a rule is made of functions", exit_code=WRONG_USAGE)
    with Steps() as steps:
        steps("loading torch")
        from exirkit.patterns import trace_rule

        name = source.factory
        decisions = _pairs(decide or (), "--decide")
        given = {key: _example(key, text) for key, text in _pairs(examples or (), "--example").items()}
        with output_to_stderr():
            steps(f"loading {source.text}")
            pattern, replacement, inputs = _functions(source, replace, {key: one[0] for key, one in given.items()})
            steps("tracing")
            traced = trace_rule(
                pattern,
                replacement,
                inputs,
                rule_id=rule or f"traced.{name.strip('_').replace('_', '-')}",
                doc=_first_sentence(pattern),
                decide=decisions,
                qualifiers={key: kind for key, (_, kind) in given.items() if kind is not None},
                lower=_lowered if dialect is TraceDialect.EDGE else None,
                root=None if root is None else root.value,
                uses=None if uses is None else find_functions(source, uses)[0],
                varying=varying or (),
            )
        if output is not None:
            write_text(output, traced.text)
    literals = [
        TracedLiteral(
            name=one.name,
            value=one.value,
            argument=one.argument,
            default=one.default,
            decision=None if one.name in traced.undecided else decisions.get(one.name, "default"),
        )
        for one in traced.literals
    ]
    file = os.fspath(output) if output is not None else None
    report = RuleTraceReport(traced.rule.id, file, traced.text, literals, list(traced.undecided))
    if json:
        print_json(report)
        return
    if file is None:
        typer.echo(report.book, nl=False)
    else:
        typer.echo(f"{file}: rule {report.rule}")
    if report.undecided:
        typer.echo(f"to be decided: {', '.join(report.undecided)}", err=file is None)


def _functions(
    source: ModelSource, replace: str | None, examples: dict[str, Any]
) -> tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]:
    assert source.factory is not None, "it was checked"
    (pattern,) = find_functions(source, source.factory)
    if not examples and replace is None and not inspect.signature(pattern).parameters:
        made = call_factory(source)
        is_right = isinstance(made, tuple) and len(made) == 3 and callable(made[0]) and callable(made[1])
        if not is_right or not isinstance(made[2], Mapping) or not made[2]:
            message = f"{source.factory}() returned something else than (pattern, replacement, examples)"
            raise CommandError(code="EK716", message=message, hint="examples are a dict of tensors and numbers")
        return made[0], made[1], dict(made[2])
    if replace is None or not examples:
        missing = "--replace FUNCTION" if replace is None else "--example NAME=VALUE"
        raise usage_error(f"{missing} is missing")
    (replacement,) = find_functions(source, replace)
    for function in (pattern, replacement):
        _check_arguments(function, examples)
    return pattern, replacement, examples


def _check_arguments(function: Callable[..., Any], examples: Mapping[str, Any]) -> None:
    parameters = list(inspect.signature(function).parameters.values())
    names = [one.name for one in parameters]
    if any(one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters):
        raise usage_error(f"{function.__name__} has arguments that are not positional")
    if names != list(examples):
        message = f"{function.__name__} takes {', '.join(names)}; the examples are {', '.join(examples)}"
        raise usage_error(message, hint="one --example for each argument, in their order")


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier() or not value.strip() or name in pairs:
            what = "is given twice" if name in pairs else "is not NAME=VALUE"
            raise usage_error(f"{option} {text!r} {what}")
        pairs[name] = value.strip()
    return pairs


def _example(name: str, text: str) -> tuple[Any, str | None]:
    """Return the value of an example, and the qualifier of a tensor."""
    import torch

    from exirkit.patterns import BodyExample

    found = _TENSOR.fullmatch(text)
    if _BODY.fullmatch(text):
        return BodyExample(text), None
    if found is not None and found["dtype"] in _DTYPES:
        sizes = [int(one) for one in found["sizes"].split(",") if one.strip()]
        if prod(sizes) <= _LARGEST_EXAMPLE:
            dtype: torch.dtype = getattr(torch, _DTYPES[found["dtype"]])
            if found["kind"] == "list of":
                return [torch.ones(sizes, dtype=dtype) for _ in range(_ELEMENTS)], None
            return torch.ones(sizes, dtype=dtype), found["kind"]
    elif found is None:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            value = None
        if isinstance(value, bool | int | float | str | list):
            return value, None
    hint = f"a tensor is dtype [sizes], as in {name}='f32 [2, 3]', of at most {_LARGEST_EXAMPLE:,} elements"
    raise usage_error(f"--example {name}={text!r} is not a value", hint=hint)


def _lowered(program: ExportedProgram) -> ExportedProgram:
    from exirkit.program import to_edge

    return to_edge(program).exported_program()


def _first_sentence(function: Callable[..., Any]) -> str | None:
    doc = inspect.getdoc(function)
    return " ".join(doc.partition("\n\n")[0].split()) or None if doc else None
