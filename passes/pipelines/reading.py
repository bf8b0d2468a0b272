"""From the text of a pipeline file to its model; what is wrong with its form is said with line and column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from exirkit.ir import Diagnostic, Location, ModelError
from exirkit.passes.registry import did_you_mean
from exirkit.patterns import YamlError, YamlPath, YamlSource, read_yaml

from .model import Dialects, PipelineModel, Stage

_LARGEST_CHARACTERS = 1 << 20
_KEYS = tuple(
    field.alias or name for model in (PipelineModel, Stage, Dialects) for name, field in model.model_fields.items()
)


def read_pipeline(text: str, file: str) -> tuple[PipelineModel, YamlSource]:
    """Read a pipeline file; names in it are not looked up yet.

    Args:
        text: Its text.
        file: Its path, for messages.

    Raises:
        ModelError: EK470, it is no YAML that is read here; EK471, all that is wrong with its form.
    """
    if len(text) > _LARGEST_CHARACTERS:
        place = Location(file=file)
        raise ModelError(Diagnostic(code="EK470", message="the file has more than 1 Mi characters", location=place))
    try:
        source = read_yaml(text, file)
    except YamlError as error:
        lines = text.splitlines()
        line = lines[error.line - 1] if error.line <= len(lines) else None
        place = Location(file=file, line=error.line, column=error.column, text=line, span=1)
        raise ModelError(Diagnostic(code="EK470", message=error.message, location=place)) from None
    try:
        return PipelineModel.model_validate(source.data), source
    except ValidationError as error:
        errors = error.errors()
        findings = [
            form_finding(each, source, (), "EK471", _KEYS) for each in errors if not _follows_from_others(each, errors)
        ]
        raise ModelError(in_order(findings, file)) from None


def in_order(findings: Iterable[Diagnostic], file: str) -> list[Diagnostic]:
    """Return complaints in the order of the file; those about other files come last."""

    def key(one: Diagnostic) -> tuple[bool, int, int]:
        place = one.location
        return (True, 0, 0) if place.file != file else (False, place.line or 0, place.column or 0)

    return sorted(findings, key=key)


def _follows_from_others(error: Any, errors: Sequence[Any]) -> bool:
    """Tell whether a list is called empty because its items are wrong."""
    path = error["loc"]
    return error["type"] == "too_short" and any(
        len(each["loc"]) > len(path) and each["loc"][: len(path)] == path for each in errors
    )


def form_finding(error: Any, source: YamlSource, base: YamlPath, code: str, known: Sequence[str]) -> Diagnostic:
    """Turn one complaint of pydantic into one with a place.

    Args:
        error: An entry of `ValidationError.errors()`.
        source: The file.
        base: Path of what was validated.
        code: Code of the complaint.
        known: Keys that could have been meant.
    """
    path = _existing(source, (*base, *error["loc"]), len(base))
    name = str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        message = f"there is no key {name!r} here"
        return source.key(path).diagnostic(code, message, length=len(name), hint=did_you_mean(name, known))
    message = _lower(error["msg"])
    if error["type"] == "missing":
        message = f"the key {name!r} is missing"
    elif error["type"] == "too_short":
        message = f"the list {name!r} is empty"
    text = source.text(path)
    return text.diagnostic(code, message, length=max(1, len(text.value.split("\n")[0])))


def _lower(message: str) -> str:
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _existing(source: YamlSource, location: YamlPath, start: int) -> YamlPath:
    """Return the parts of a location that are keys of the file; pydantic mixes names of models in."""
    path = location[:start]
    for part in location[start:]:
        if (*path, part) in source.places or (*path, part) in source.keys:
            path = (*path, part)
    return path
