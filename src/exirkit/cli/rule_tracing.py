"""`exirkit rule from-trace`: a rule of two functions, with a decision for every literal."""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import typer
from torch.export import ExportedProgram

from exirkit.patterns import TracedRule, trace_rule
from exirkit.program import to_edge

from .console import Steps, output_to_stderr
from .failures import WRONG_USAGE, CommandError
from .model_source import ModelSource, call_factory, find_functions
from .output_files import check_writable, write_whole
from .rule_use_reports import RuleTraceReport, TracedLiteralReport

_TENSOR = re.compile(r"(?:(?P<kind>const|param|buffer) +)?(?P<dtype>[a-z]+\d*) *\[(?P<sizes>[\d, ]*)\]")
_DTYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "bool": torch.bool,
    "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
}  # fmt: skip
_LARGEST_EXAMPLE = 1 << 24


@dataclass(frozen=True)
class TraceOptions:
    """How to trace.

    Attributes:
        replace: Name of the function that computes the replacement.
        examples: `name=value`, in the order of the arguments.
        decide: `name=way`.
        rule: Id of the rule.
        is_edge: Trace the Edge program; what `torch.export` gives otherwise.
        output: Where to write the book.
    """

    replace: str | None
    examples: tuple[str, ...]
    decide: tuple[str, ...]
    rule: str | None
    is_edge: bool
    output: Path | None


def trace_source(source: ModelSource, options: TraceOptions, steps: Steps) -> RuleTraceReport:
    """Trace two functions and write the rule.

    Raises:
        CommandError: EK711 or EK713, the options do not fit; EK712, the file cannot be written; EK714 to EK716, the
            target gives no functions.
        UsageError: EK265 or EK266, no rule can be made like this.
        OSError: The file cannot be written.
    """
    if options.output is not None:
        check_writable(options.output, ".yaml")
    if source.factory is None:
        raise CommandError(code="EK713", message="a rule is made of functions", exit_code=WRONG_USAGE)
    decisions = _pairs(options.decide, "--decide")
    given = {name: _example(name, text) for name, text in _pairs(options.examples, "--example").items()}
    with output_to_stderr():
        steps(f"loading {source.text}")
        pattern, replacement, examples = _functions(source, options, {name: one[0] for name, one in given.items()})
        steps("tracing")
        traced = trace_rule(
            pattern,
            replacement,
            examples,
            rule_id=options.rule or f"traced.{source.factory.strip('_').replace('_', '-')}",
            doc=_first_sentence(pattern),
            decide=decisions,
            qualifiers={name: kind for name, (_, kind) in given.items() if kind is not None},
            lower=_lowered if options.is_edge else None,
        )
    if options.output is not None:
        text = traced.text
        write_whole(options.output, lambda file: file.write(text.encode()))
    return _report(traced, options, decisions)


def print_traced(report: RuleTraceReport) -> None:
    """Print the book, or where it is; and what is left to decide."""
    if report.file is None:
        typer.echo(report.book, nl=False)
    else:
        typer.echo(f"{report.file}: rule {report.rule}")
    if report.undecided:
        typer.echo(f"to be decided: {', '.join(report.undecided)}", err=report.file is None)


def _functions(
    source: ModelSource, options: TraceOptions, examples: dict[str, Any]
) -> tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]:
    assert source.factory is not None, "it was checked"
    (pattern,) = find_functions(source, source.factory)
    if not examples and options.replace is None and not inspect.signature(pattern).parameters:
        made = call_factory(source)
        is_right = isinstance(made, tuple) and len(made) == 3 and callable(made[0]) and callable(made[1])
        if not is_right or not isinstance(made[2], Mapping) or not made[2]:
            message = f"{source.factory}() returned something else than (pattern, replacement, examples)"
            raise CommandError(code="EK716", message=message, hint="examples are a dict of tensors and numbers")
        return made[0], made[1], dict(made[2])
    if options.replace is None or not examples:
        missing = "--replace FUNCTION" if options.replace is None else "--example NAME=VALUE"
        raise CommandError(code="EK711", message=f"{missing} is missing", exit_code=WRONG_USAGE)
    (replacement,) = find_functions(source, options.replace)
    for function in (pattern, replacement):
        _check_arguments(function, examples)
    return pattern, replacement, examples


def _check_arguments(function: Callable[..., Any], examples: Mapping[str, Any]) -> None:
    parameters = list(inspect.signature(function).parameters.values())
    names = [one.name for one in parameters]
    if any(one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters):
        message = f"{function.__name__} has arguments that are not given by place"
        raise CommandError(code="EK711", message=message, exit_code=WRONG_USAGE)
    if names != list(examples):
        message = f"{function.__name__} takes {', '.join(names)}; the examples are {', '.join(examples)}"
        raise CommandError(
            code="EK711", message=message, hint="one --example for each argument, in their order", exit_code=WRONG_USAGE
        )


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier() or not value.strip() or name in pairs:
            what = "is there twice" if name in pairs else "is not NAME=VALUE"
            raise CommandError(code="EK711", message=f"{option} {text!r} {what}", exit_code=WRONG_USAGE)
        pairs[name] = value.strip()
    return pairs


def _example(name: str, text: str) -> tuple[Any, str | None]:
    """Return the value of an example, and the qualifier of a tensor."""
    found = _TENSOR.fullmatch(text)
    if found is not None and found["dtype"] in _DTYPES:
        sizes = [int(one) for one in found["sizes"].split(",") if one.strip()]
        count = 1
        for size in sizes:
            count *= size
        if count <= _LARGEST_EXAMPLE:
            return torch.ones(sizes, dtype=_DTYPES[found["dtype"]]), found["kind"]
    elif found is None:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            value = None
        if isinstance(value, bool | int | float | str | list):
            return value, None
    hint = f"a tensor is dtype [sizes], as in {name}='f32 [2, 3]', of at most {_LARGEST_EXAMPLE:,} elements"
    raise CommandError(code="EK711", message=f"--example {name}={text!r} is no value", hint=hint, exit_code=WRONG_USAGE)


def _lowered(program: ExportedProgram) -> ExportedProgram:
    return to_edge(program).exported_program()


def _first_sentence(function: Callable[..., Any]) -> str | None:
    doc = inspect.getdoc(function)
    return " ".join(doc.partition("\n\n")[0].split()) or None if doc else None


def _report(traced: TracedRule, options: TraceOptions, decisions: Mapping[str, str]) -> RuleTraceReport:
    return RuleTraceReport(
        rule=traced.rule.id,
        file=os.fspath(options.output) if options.output is not None else None,
        book=traced.text,
        literals=[
            TracedLiteralReport(
                name=one.name,
                value=one.value,
                argument=one.argument,
                default=one.default,
                decision=None if one.name in traced.undecided else decisions.get(one.name, "default"),
            )
            for one in traced.literals
        ],
        undecided=list(traced.undecided),
    )
