"""From the text of a partitioning file to its model, and the JSON Schema of such files."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch._ops import OpOverload

from exirkit.ir import (
    Diagnostic,
    DocumentCodes,
    ModelError,
    SourceText,
    YamlPath,
    document_schema,
    in_file_order,
    read_document,
    read_text,
)
from exirkit.passes.config.node_names import has_wildcard
from exirkit.passes.config.policies import TextAt, condition_findings, dtype_findings, operator_findings, wrong
from exirkit.patterns import OperatorTable, compile_pattern

from .model import Partitioning, TakingRule, WholeOperators

CONDITION_NAMES = ("x", "nbytes", "elements", "macs")
"""What a condition of a rule without a pattern may name."""
_CODES = DocumentCodes(syntax="EK494", form="EK495")


def load_partitioning(path: str | Path) -> Partitioning:
    """Read what a partitioner takes from a YAML file.

    Raises:
        ModelError: EK494, it is no YAML that is read here; EK495, EK496, EK210 and following, all that is wrong with
            it.
        OSError: The file cannot be read.
    """
    return parse_partitioning(read_text(path, _CODES.syntax), str(path))


def parse_partitioning(text: str, file: str = "<partitioning>") -> Partitioning:
    """Read what a partitioner takes from its text.

    Raises:
        ModelError: As `load_partitioning`.
    """
    found = read_document(text, Partitioning, _CODES, file=file)
    check_partitioning(found.model, found.source.text)
    return found.model


def check_partitioning(partitioning: Partitioning, text_at: TextAt | None = None) -> None:
    """Refuse what names an operator, dtype or word that does not exist.

    Args:
        partitioning: What was read.
        text_at: The text at a path of the file, with its place; without, it was made in Python.

    Raises:
        ModelError: EK496, EK210 and following, all that is wrong.
    """
    at = text_at or (lambda path, value: SourceText(value, f"<partitioning>.{'.'.join(map(str, path))}"))
    findings = [
        *(one for place, rule in enumerate(partitioning.rules) for one in _rule_findings(place, rule, at)),
        *(one for place, whole in enumerate(partitioning.keep_whole) for one in _whole_findings(place, whole, at)),
    ]
    if findings:
        raise ModelError(in_file_order(findings, findings[0].location.file or "") if text_at else findings)


def _rule_findings(place: int, rule: TakingRule, at: TextAt) -> Iterator[Diagnostic]:
    def paths(key: str) -> list[tuple[YamlPath, str]]:
        # Where one stands without a list around it, the text of the list is found.
        return [(("rules", place, key, number), name) for number, name in enumerate(getattr(rule, key))]

    yield from operator_findings(paths("op"), at, "EK496")
    yield from dtype_findings(paths("dtype"), at, "EK496")
    yield from dtype_findings(paths("argument_dtype"), at, "EK496")
    if rule.match is None:
        yield from condition_findings(paths("where"), at, CONDITION_NAMES)
        return
    try:
        compile_pattern(
            at(("rules", place, "match"), rule.match),
            {name: at(("rules", place, "vars", name), text) for name, text in rule.vars.items()},
            [at(path, text) for path, text in paths("where")],
        )
    except ModelError as error:
        yield from error.diagnostics


def _whole_findings(place: int, whole: WholeOperators, at: TextAt) -> Iterator[Diagnostic]:
    names: list[tuple[YamlPath, str]] = [
        (("keep_whole", place, "op", number), name) for number, name in enumerate(whole.op)
    ]
    for path, name in names:
        if has_wildcard(name):
            yield wrong(at(path, name), "EK496", "operators that stay whole are named one by one")
        elif not (found := list(operator_findings([(path, name)], at, "EK496"))):
            if not isinstance(OperatorTable().find(name), OpOverload):
                yield wrong(at(path, name), "EK496", f"{name} is no operator of torch, and is never decomposed")
        else:
            yield from found
    conditions: list[tuple[YamlPath, str]] = [
        (("keep_whole", place, "where", number), text) for number, text in enumerate(whole.where)
    ]
    yield from condition_findings(conditions, at, CONDITION_NAMES)


def partitioning_schema() -> dict[str, Any]:
    """Return the JSON Schema of partitioning files, made from the models, for editors."""
    return document_schema(Partitioning, "What a partitioner of exirkit takes, as data")


def partitioning_schema_text() -> str:
    """Return the JSON Schema of partitioning files as the text of the file that comes with exirkit."""
    return files(__package__ or "").joinpath("partitioning.schema.json").read_text(encoding="utf-8")
