"""The printed form of programs; `reading.py` reads it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

import torch

from .language import HIGHER_ORDER
from .model import Argument, Body, Call, Contents, Method, Program, Ref, Run, Size
from .sizes import size_text
from .tensor_types import type_text

_DEFAULTS = {one.name: one.default for one in fields(Contents)}


def program_text(program: Program) -> str:
    """Return the printed form of a program; reading and printing it again gives the same text."""
    lines = ["program(1)"]
    lines += [f"{one.name} = symbol({one.low}, {one.high})" for one in program.symbols]
    lines += [
        f'{one.name} = {one.kind}("{type_text(one.type)}", {contents_text(one.contents)})' for one in program.stored
    ]
    for method in program.methods:
        lines += ["", *_method(method)]
    lines += ["", *map(_run, program.runs)]
    for word, names in (("inexact", program.inexact), ("undecided", program.undecided)):
        if names:
            lines.append(f"{word}({', '.join(sorted(names))})")
    return "\n".join(lines).rstrip("\n") + "\n"


def contents_text(contents: Contents) -> str:
    """Return the printed form of a description of contents: what differs from the defaults."""
    parts = []
    if contents.kind == "numbers":
        parts.append(argument_text(contents.numbers))
    elif contents.seed:
        parts.append(str(contents.seed))
    for name in ("seed", "numbers", "low", "high", "bits", "layout"):
        value: Any = getattr(contents, name)
        # What is written first has no name; a float is not the same text as the whole number that it equals.
        if name == ("numbers" if contents.kind == "numbers" else "seed") or _same(value, _DEFAULTS[name]):
            continue
        parts.append(f"{name}={argument_text(value)}")
    return f"{contents.kind}({', '.join(parts)})"


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def argument_text(argument: Argument) -> str:
    """Return the printed form of an argument."""
    if isinstance(argument, Ref):
        return argument.name
    if isinstance(argument, Size):
        return size_text(argument.text)
    if isinstance(argument, tuple):
        return f"[{', '.join(map(argument_text, argument))}]"
    if isinstance(argument, torch.dtype | torch.memory_format | torch.layout):
        return str(argument)
    return _string(argument) if isinstance(argument, str) else repr(argument)


def _string(value: str) -> str:
    text = repr(value)
    if text[0] == '"':
        return text
    body = text[1:-1].replace("\\'", "'").replace('"', '\\"')
    return f'"{body}"'


def call_text(call: Call) -> str:
    """Return the printed form of a call, without the definitions of its bodies."""
    args = [argument_text(one) for one in call.args]
    if call.op in HIGHER_ORDER:
        leading = HIGHER_ORDER[call.op].leading
        args[leading:leading] = [one.name for one in call.bodies]
    args += [f"{name}={argument_text(value)}" for name, value in call.kwargs]
    results = ", ".join(one or "_" for one in call.results)
    return f"{results} = {call.op}({', '.join(args)})" if results else f"{call.op}({', '.join(args)})"


def _method(method: Method) -> Iterator[str]:
    inputs = ", ".join(f'{one.name}: "{type_text(one.type)}"' for one in method.inputs)
    yield f"def {method.name}({inputs}):"
    yield from _indented(_steps(method.steps))
    yield from _indented(f"update({target}, {source.name})" for target, source in method.updates)
    yield f"    {_returned(method.outputs)}"


def _steps(steps: Iterable[Call]) -> Iterator[str]:
    for step in steps:
        for body in step.bodies:
            yield from _body(body)
        yield call_text(step)


def _body(body: Body) -> Iterator[str]:
    yield f"def {body.name}({', '.join(body.inputs)}):"
    yield from _indented(_steps(body.steps))
    yield f"    {_returned(body.outputs)}"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def _returned(outputs: tuple[Argument, ...]) -> str:
    return f"return {', '.join(map(argument_text, outputs))}".rstrip()


def _run(run: Run) -> str:
    parts = [f'"{run.method}"']
    parts += [f"{name}={size}" for name, size in run.sizes.items()]
    parts += [f"{name}={contents_text(contents)}" for name, contents in run.inputs.items()]
    return f"run({', '.join(parts)})"
