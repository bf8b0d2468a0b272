"""From the text of a policy file to its model; what is wrong is said with line and column, all of it at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from exirkit.ir import Diagnostic, ModelError
from exirkit.passes.config.policy_files import (
    TextAt,
    condition_findings,
    did_you_mean,
    dtype_findings,
    in_order,
    is_empty_for_others,
    keys_of,
    operator_findings,
    policy_source,
    policy_text,
    read_policy,
    wrong,
)
from exirkit.passes.config.policy_words import NbytesRange
from exirkit.patterns import SourceText, YamlPath

from .model import MemoryPolicy, MemoryPool, PlacementRule

CONDITION_NAMES = ("x", "nbytes", "traffic")
"""What a condition may name: the value, its bytes, and the bytes that are written to it and read."""
_KEYS = keys_of((MemoryPolicy, MemoryPool, PlacementRule, NbytesRange))


def load_memory_policy(path: str | Path) -> MemoryPolicy:
    """Read a memory policy from a YAML file.

    Raises:
        ModelError: EK480, it is no YAML that is read here; EK481, EK482, EK220, all that is wrong with it.
        OSError: The file cannot be read.
    """
    return parse_memory_policy(policy_text(path, "EK480"), str(path))


def parse_memory_policy(text: str, file: str = "<policy>") -> MemoryPolicy:
    """Read a memory policy from its text.

    Raises:
        ModelError: As `load_memory_policy`.
    """
    source = policy_source(text, file, "EK480")
    policy = read_policy(MemoryPolicy, source, "EK481", _KEYS, _is_echo)
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
        raise ModelError(in_order(findings) if text_at else findings)


def _python_place(path: YamlPath) -> str:
    return f"<policy>.{'.'.join(map(str, path))}"


def _is_echo(error: Any, errors: Sequence[Any]) -> bool:
    """Tell whether a complaint follows from others: an empty list from wrong items, one form of a key from another."""
    path, kind = error["loc"], error["type"]
    if is_empty_for_others(error, errors):
        return True
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
