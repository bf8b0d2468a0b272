"""From the text of a policy file to its model; what is wrong is said with line and column, all of it at once."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

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

from .model import MemoryPolicy, MemoryPool, NbytesRange, PlacementRule

_LARGEST_CHARACTERS = 1 << 20
CONDITION_NAMES = ("x", "nbytes", "traffic")
"""What a condition may name: the value, its bytes, and the bytes that are written to it and read."""
_MODELS = (MemoryPolicy, MemoryPool, PlacementRule, NbytesRange)
_KEYS = sorted({name for model in _MODELS for name in model.model_fields})

TextAt = Callable[[YamlPath, str], SourceText]


def load_memory_policy(path: str | Path) -> MemoryPolicy:
    """Read a memory policy from a YAML file.

    Raises:
        ModelError: EK480, it is no YAML that is read here; EK481, EK482, EK220, all that is wrong with it.
        OSError: The file cannot be read.
    """
    return parse_memory_policy(Path(path).read_text(encoding="utf-8"), str(path))


def parse_memory_policy(text: str, file: str = "<policy>") -> MemoryPolicy:
    """Read a memory policy from its text.

    Raises:
        ModelError: As `load_memory_policy`.
    """
    source = _yaml(text, file)
    try:
        policy = MemoryPolicy.model_validate(source.data)
    except ValidationError as error:
        findings = [_form_finding(each, source) for each in error.errors() if not _is_echo(each, error.errors())]
        raise ModelError(_in_order(findings)) from None
    check_policy(policy, lambda path, value: source.text(path, value))
    return policy


def check_policy(policy: MemoryPolicy, text_at: TextAt | None = None) -> None:
    """Refuse a policy that names what does not exist or says two things at once.

    Args:
        policy: The policy.
        text_at: The text at a path of the file, with its place; without, the policy was made in Python.

    Raises:
        ModelError: EK482, EK220, all that is wrong.
    """
    at = text_at or (lambda path, value: SourceText(value, _python_place(path)))
    findings = [*_pool_findings(policy, at), *_rule_findings(policy, at)]
    if findings:
        raise ModelError(_in_order(findings) if text_at else findings)


def _python_place(path: YamlPath) -> str:
    return f"<policy>.{'.'.join(map(str, path))}"


def _yaml(text: str, file: str) -> YamlSource:
    if len(text) > _LARGEST_CHARACTERS:
        place = Location(file=file)
        raise ModelError(Diagnostic(code="EK480", message="the file has more than 1 Mi characters", location=place))
    try:
        return read_yaml(text, file)
    except YamlError as error:
        lines = text.splitlines()
        line = lines[error.line - 1] if error.line <= len(lines) else None
        place = Location(file=file, line=error.line, column=error.column, text=line, span=1)
        raise ModelError(Diagnostic(code="EK480", message=error.message, location=place)) from None


def _in_order(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    return sorted(findings, key=lambda one: (one.location.line or 0, one.location.column or 0))


def _is_echo(error: Any, errors: Sequence[Any]) -> bool:
    """Tell whether a complaint follows from others: an empty list from wrong items, one form of a key from another."""
    path, kind = error["loc"], error["type"]
    if kind == "too_short":
        return any(len(each["loc"]) > len(path) and each["loc"][: len(path)] == path for each in errors)
    # `inputs` is a word or a mapping, and pydantic complains about both.
    twins = [each for each in errors if each is not error and path and each["loc"][:1] == path[:1] and len(path) == 2]
    if kind == "dict_type":
        return any(each["type"] == "literal_error" for each in twins)
    return kind == "literal_error" and any(len(each["loc"]) > 2 for each in twins)


def _form_finding(error: Any, source: YamlSource) -> Diagnostic:
    path: YamlPath = ()
    for part in error["loc"]:
        if (*path, part) in source.places or (*path, part) in source.keys:
            path = (*path, part)
    name = str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        return source.key(path).diagnostic(
            "EK481", f"there is no key {name!r} here", length=len(name), hint=did_you_mean(name, _KEYS)
        )
    message = error["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if error["type"] == "missing":
        message = f"the key {name!r} is missing"
    text = source.text(path)
    return text.diagnostic("EK481", message, length=max(1, len(text.value.split("\n")[0])))


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the nearest name, if one is near."""
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {close[0]}?" if close else None


def _pool_findings(policy: MemoryPolicy, at: TextAt) -> Iterator[Diagnostic]:
    names: set[str] = set()
    numbers: dict[int, str] = {}
    for place, pool in enumerate(policy.pools):
        number = place + 1 if pool.mem_id is None else pool.mem_id
        if pool.name in names:
            yield _wrong(at(("pools", place, "name"), pool.name), f"there are two pools {pool.name!r}")
        elif number in numbers:
            text = at(("pools", place, "name" if pool.mem_id is None else "mem_id"), pool.name)
            yield _wrong(text, f"the pools {numbers[number]!r} and {pool.name!r} both have arena {number}")
        names.add(pool.name)
        numbers.setdefault(number, pool.name)
    named: list[tuple[YamlPath, str]] = [(("rules", place, "pool"), rule.pool) for place, rule in
                                         enumerate(policy.rules)]  # fmt: skip
    named += [(("spill", place), name) for place, name in enumerate(policy.spill or ())]
    named += [(("default",), policy.default)] if policy.default else []
    for path, name in named:
        if name not in names:
            yield _wrong(at(path, name), f"there is no pool {name!r}", did_you_mean(name, names))
    for place, name in enumerate(policy.spill or ()):
        if name in (policy.spill or ())[:place]:
            yield _wrong(at(("spill", place), name), f"the pool {name!r} stands twice in the spill order")


def _rule_findings(policy: MemoryPolicy, at: TextAt) -> Iterator[Diagnostic]:
    table = OperatorTable()
    for place, rule in enumerate(policy.rules):
        for key in ("op", "user"):
            for number, name in enumerate(getattr(rule, key)):
                if not has_wildcard(name) and (found := _operator_finding(table, name, at(
                    _item(rule, key, place, number), name))):  # fmt: skip
                    yield found
        for number, name in enumerate(rule.dtype):
            if name not in DTYPES:
                text = at(_item(rule, "dtype", place, number), name)
                yield _wrong(text, f"there is no dtype {name!r}", did_you_mean(name, DTYPES))
        for number, expression in enumerate(rule.where):
            try:
                compile_condition(at(_item(rule, "where", place, number), expression), CONDITION_NAMES)
            except ModelError as error:
                yield from error.diagnostics


def _item(rule: PlacementRule, key: str, place: int, number: int) -> YamlPath:
    """Return the path of an element; where it stands without a list around it, the text of the list is found."""
    return ("rules", place, key, number)


def _operator_finding(table: OperatorTable, name: str, text: SourceText) -> Diagnostic | None:
    try:
        table.find(name)
    except UnknownNameError as error:
        return _wrong(text, error.message, error.hint)
    return None


def has_wildcard(name: str) -> bool:
    """Whether a name stands for many."""
    return any(each in name for each in "*?[")


def _wrong(text: SourceText, message: str, hint: str | None = None) -> Diagnostic:
    return text.diagnostic("EK482", message, length=max(1, len(text.value.split("\n")[0])), hint=hint)
