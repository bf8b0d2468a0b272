"""One key for all failures that come from one bug, as far as can be told."""

from __future__ import annotations

import hashlib

from exirkit.fuzz.oracles import Failure
from exirkit.fuzz.programs import Call, Program

from .culprit import Guilt

_MOST_OPERATORS = 4


def bucket(failure: Failure, program: Program, guilt: Guilt | None = None) -> str:
    """Return the key of a failure: rung, guilty part, rule, symptom, and the operators of the program.

    Args:
        failure: The failure.
        program: A program that fails so; the smaller, the better: its operators are part of the key.
        guilt: Who is guilty, where that is known.
    """
    part = failure.stage or "?" if guilt is None else guilt.pass_name
    rule = (guilt.rule if guilt is not None else None) or "-"
    return " | ".join((failure.rung, part, rule, failure.symptom, skeleton(program)))


def skeleton(program: Program) -> str:
    """Return the operators of a program, in order; of many, their number and a hash."""
    operators = [name for method in program.methods for call in method.steps for name in _operators(call)]
    if len(operators) <= _MOST_OPERATORS:
        return " ".join(operators) or "no operator"
    digest = hashlib.blake2b(" ".join(operators).encode(), digest_size=4).hexdigest()
    return f"{len(operators)} operators {digest}"


def _operators(call: Call) -> list[str]:
    inner = [name for body in call.bodies for step in body.steps for name in _operators(step)]
    return [call.op.removeprefix("aten."), *inner]
