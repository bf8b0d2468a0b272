"""From the text of a policy file to its model, and the JSON Schema of such files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from exirkit.ir import (
    Diagnostic,
    DocumentCodes,
    ModelError,
    SourceText,
    YamlPath,
    did_you_mean,
    document_schema,
    in_file_order,
    read_document,
    read_text,
)
from exirkit.passes.config.policies import TextAt, condition_findings, dtype_findings, operator_findings, wrong

from .model import MemoryPolicy

CONDITION_NAMES = ("x", "nbytes", "traffic")
"""What a condition may name: the value, its bytes, and the bytes that are written to it and read."""
_CODES = DocumentCodes(syntax="EK480", form="EK481")


def load_memory_policy(path: str | Path) -> MemoryPolicy:
    """Read a memory policy from a YAML file.

    Raises:
        ModelError: EK480, it is no YAML that is read here; EK481, EK482, EK220, all that is wrong with it.
        OSError: The file cannot be read.
    """
    return parse_memory_policy(read_text(path, _CODES.syntax), str(path))


def parse_memory_policy(text: str, file: str = "<policy>") -> MemoryPolicy:
    """Read a memory policy from its text.

    Raises:
        ModelError: As `load_memory_policy`.
    """
    found = read_document(text, MemoryPolicy, _CODES, file=file, follows=_is_echo)
    check_policy(found.model, found.source.text)
    return found.model


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
        raise ModelError(in_file_order(findings, findings[0].location.file or "") if text_at else findings)


def _python_place(path: YamlPath) -> str:
    return f"<policy>.{'.'.join(map(str, path))}"


def _is_echo(error: Any, errors: Sequence[Any]) -> bool:
    """Whether an error about one form of a key follows from errors about another form."""
    path, kind = error["loc"], error["type"]
    # `inputs` is a word or a mapping, and pydantic complains about both.
    twins = [each for each in errors if each is not error and path and each["loc"][:1] == path[:1] and len(path) == 2]
    if kind == "dict_type":
        return any(each["type"] == "literal_error" for each in twins)
    return kind == "literal_error" and any(len(each["loc"]) > 2 for each in twins)


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
    for place, rule in enumerate(policy.rules):
        # Where one stands without a list around it, the text of the list is found.
        for key in ("op", "user"):
            names = [(("rules", place, key, number), name) for number, name in enumerate(getattr(rule, key))]
            yield from operator_findings(names, at, "EK482")
        dtypes = [(("rules", place, "dtype", number), name) for number, name in enumerate(rule.dtype)]
        yield from dtype_findings(dtypes, at, "EK482")
        conditions = [(("rules", place, "where", number), each) for number, each in enumerate(rule.where)]
        yield from condition_findings(conditions, at, CONDITION_NAMES)


def _wrong(text: SourceText, message: str, hint: str | None = None) -> Diagnostic:
    return wrong(text, "EK482", message, hint)


def memory_policy_schema() -> dict[str, Any]:
    """Return the JSON Schema of memory policies, made from the models, for editors."""
    return document_schema(MemoryPolicy, "A memory policy for exirkit")


def memory_policy_schema_text() -> str:
    """Return the JSON Schema of memory policies as the text of the file that comes with exirkit."""
    return files(__package__ or "").joinpath("policy.schema.json").read_text(encoding="utf-8")
