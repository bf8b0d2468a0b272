"""From the text of a policy to plain data, and what is wrong with it to findings with line and column."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from exirkit.ir import Diagnostic, Location, ModelError
from exirkit.patterns import (
    DTYPES,
    OperatorTable,
    SourceText,
    UnknownNameError,
    YamlError,
    YamlPath,
    YamlSource,
    compile_condition,
    read_yaml,
)

from .node_names import has_wildcard

LARGEST_CHARACTERS = 1 << 20

_Model = TypeVar("_Model", bound=BaseModel)

TextAt = Callable[[YamlPath, str], SourceText]


def policy_text(path: str | Path, code: str) -> str:
    """Return the text of a policy file.

    Args:
        path: The file.
        code: That of the finding if it is no text.

    Raises:
        ModelError: It is no text in UTF-8.
        OSError: The file cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        message = f"this is no text in UTF-8: byte {error.start}"
        raise ModelError(SourceText("", str(path)).diagnostic(code, message)) from None


def read_policy(
    model: type[_Model],
    source: YamlSource,
    code: str,
    known: Sequence[str],
    is_echo: Callable[[Any, Sequence[Any]], bool] | None = None,
) -> _Model:
    """Return what a policy says as a model.

    Args:
        model: The model.
        source: The YAML.
        code: Code of findings.
        known: Keys that a wrong key may have meant.
        is_echo: Tells whether a complaint of pydantic follows from others, which are all given, too.

    Raises:
        ModelError: It is of another form; all findings, in order.
    """
    try:
        return model.model_validate(source.data)
    except ValidationError as error:
        errors = error.errors()
        told = [one for one in errors if not (is_echo or is_empty_for_others)(one, errors)]
        raise ModelError(in_order(form_finding(one, source, code, known) for one in told)) from None


def policy_source(text: str, file: str, code: str) -> YamlSource:
    """Return the YAML of a policy.

    Args:
        text: The text.
        file: Name of the file for findings.
        code: That of the finding if it is no YAML that is read here.

    Raises:
        ModelError: It is none.
    """
    if len(text) > LARGEST_CHARACTERS:
        place = Location(file=file)
        raise ModelError(Diagnostic(code=code, message="the file has more than 1 Mi characters", location=place))
    try:
        return read_yaml(text, file)
    except YamlError as error:
        lines = text.splitlines()
        line = lines[error.line - 1] if error.line <= len(lines) else None
        place = Location(file=file, line=error.line, column=error.column, text=line, span=1)
        raise ModelError(Diagnostic(code=code, message=error.message, location=place)) from None


def in_order(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return findings as they stand in the file."""
    return sorted(findings, key=lambda one: (one.location.line or 0, one.location.column or 0))


def keys_of(models: Iterable[type[BaseModel]]) -> list[str]:
    """Return all keys of some models, which a wrong key may have meant."""
    return sorted({name for model in models for name in model.model_fields})


def is_empty_for_others(error: Any, errors: Sequence[Any]) -> bool:
    """Tell whether pydantic takes a list for empty only since its items are wrong, which it says as well."""
    path = error["loc"]
    return error["type"] == "too_short" and any(
        len(each["loc"]) > len(path) and each["loc"][: len(path)] == path for each in errors
    )


def form_finding(error: Any, source: YamlSource, code: str, known: Sequence[str]) -> Diagnostic:
    """Return what pydantic complains of, with its place.

    Args:
        error: One of `ValidationError.errors()`.
        source: The YAML.
        code: Code of the finding.
        known: Keys that a wrong key may have meant.
    """
    path: YamlPath = ()
    for part in error["loc"]:
        if (*path, part) in source.places or (*path, part) in source.keys:
            path = (*path, part)
    name = str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        return source.key(path).diagnostic(
            code, f"there is no key {name!r} here", length=len(name), hint=did_you_mean(name, known)
        )
    message = error["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if error["type"] == "missing":
        message = f"the key {name!r} is missing"
    text = source.text(path)
    return text.diagnostic(code, message, length=max(1, len(text.value.split("\n")[0])))


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the nearest name, if one is near."""
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {close[0]}?" if close else None


def wrong(text: SourceText, code: str, message: str, hint: str | None = None) -> Diagnostic:
    """Return a finding about a whole text."""
    return text.diagnostic(code, message, length=max(1, len(text.value.split("\n")[0])), hint=hint)


def operator_findings(names: Iterable[tuple[YamlPath, str]], at: TextAt, code: str) -> Iterator[Diagnostic]:
    """Yield what is wrong with names of operators, in which `*` stands for any part."""
    table = OperatorTable()
    for path, name in names:
        if has_wildcard(name):
            continue
        try:
            table.find(name)
        except UnknownNameError as error:
            yield wrong(at(path, name), code, error.message, error.hint)


def dtype_findings(names: Iterable[tuple[YamlPath, str]], at: TextAt, code: str) -> Iterator[Diagnostic]:
    """Yield what is wrong with names of dtypes."""
    for path, name in names:
        if name not in DTYPES:
            yield wrong(at(path, name), code, f"there is no dtype {name!r}", did_you_mean(name, DTYPES))


def condition_findings(
    written: Iterable[tuple[YamlPath, str]], at: TextAt, names: Sequence[str]
) -> Iterator[Diagnostic]:
    """Yield what is wrong with conditions over some names."""
    for path, expression in written:
        try:
            compile_condition(at(path, expression), names)
        except ModelError as error:
            yield from error.diagnostics
