"""What is kept of a failure: the key of its cause, and a script that shows it in a fresh process."""

from __future__ import annotations

import hashlib

from exirkit.fuzz.compilers import Compiler, ExirkitCompiler
from exirkit.fuzz.examination import Failure
from exirkit.fuzz.programs import Call, Program, program_text

from .localization import Culprit

_MOST_OPERATORS = 4
_WIDTH = 110
_TEMPLATE = '''"""{title}

{summary}
Run it: it ends with an AssertionError as long as the failure is there.
"""

import torch

from exirkit.fuzz.oracles import {imported}, check
from exirkit.fuzz.programs import parse_program

PROGRAM = """\\
{program}"""

torch.set_num_threads(1)
verdict = check(parse_program(PROGRAM), compiler={compiler}, oracles={oracles}, seed={seed})
assert verdict.is_good, "\\n".join(f"{{one.oracle}} {{one.symptom}}: {{one.message}}" for one in verdict.failures)
print("no failure any more", verdict.not_run or "")
'''


def bucket(failure: Failure, program: Program, culprit: Culprit | None = None) -> str:
    """Return the key of a failure: oracle, culprit, rule, symptom, and the operators of the program.

    Args:
        failure: The failure.
        program: A program that fails so; the smaller, the better: its operators are part of the key.
        culprit: What the failure comes from, where that is known.
    """
    part = failure.stage or "?" if culprit is None else culprit.part
    rule = (culprit.rule if culprit is not None else None) or "-"
    return " | ".join((failure.oracle, part, rule, failure.symptom, skeleton(program)))


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


def repro_script(
    program: Program,
    failure: Failure,
    *,
    compiler: Compiler | None = None,
    seed: int = 0,
    culprit: Culprit | None = None,
) -> str:
    """Return a script that fails in a fresh process, as long as the failure is there.

    Args:
        program: A program that fails, reduced.
        failure: The failure.
        compiler: What lowered it; one that is made of objects of this process cannot be named in a script.
        seed: As for `check`.
        culprit: What the failure comes from, for the head of the script.
    """
    compiler = compiler or ExirkitCompiler()
    expression = compiler.describe()
    lines = [f"{failure.oracle}: {failure.symptom}", *failure.message.splitlines()[:4]]
    if culprit is not None:
        lines.append(f"Culprit: {culprit}. {culprit.evidence}")
    return _TEMPLATE.format(
        title=plain_line(f"A failure of {failure.stage or 'the chain'}."),
        summary="\n".join(map(plain_line, lines)),
        imported=expression.partition("(")[0],
        program=program_text(program).replace("\\", "\\\\").replace('"""', '\\"""'),
        compiler=expression,
        oracles=repr(("eager-run", failure.oracle)),
        seed=seed,
    )


def plain_line(text: str) -> str:
    """Return a line that may stand in a docstring."""
    line = " ".join(text.replace("\\", "/").replace('"""', "'''").split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..."
