"""Scripts that show a failure in a fresh process."""

from __future__ import annotations

from exirkit.fuzz.oracles import Compiler, ExirkitCompiler, Failure
from exirkit.fuzz.programs import Program, program_text

from .culprit import Guilt

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
verdict = check(parse_program(PROGRAM), compiler={compiler}, rungs={rungs}, seed={seed})
assert verdict.is_good, "\\n".join(f"{{one.rung}} {{one.symptom}}: {{one.message}}" for one in verdict.failures)
print("no failure any more", verdict.not_run or "")
'''

_WIDTH = 110


def repro_script(
    program: Program,
    failure: Failure,
    *,
    compiler: Compiler | None = None,
    seed: int = 0,
    guilt: Guilt | None = None,
) -> str:
    """Return a script that fails in a fresh process, as long as the failure is there.

    Args:
        program: A program that fails, reduced.
        failure: The failure.
        compiler: What lowered it; one that is made of objects of this process cannot be named in a script.
        seed: As for `check`.
        guilt: Who is guilty, for the head of the script.
    """
    compiler = compiler or ExirkitCompiler()
    expression = compiler.describe()
    lines = [_plain(f"{failure.rung}: {failure.symptom}"), *(_plain(one) for one in failure.message.splitlines()[:4])]
    if guilt is not None:
        lines.append(_plain(f"Guilty: {guilt}. {guilt.evidence}"))
    return _TEMPLATE.format(
        title=_plain(f"A failure of {failure.stage or 'the chain'}."),
        summary="\n".join(lines),
        imported=expression.partition("(")[0],
        program=program_text(program).replace("\\", "\\\\").replace('"""', '\\"""'),
        compiler=expression,
        rungs=repr(("O0", failure.rung)),
        seed=seed,
    )


def _plain(text: str) -> str:
    """Return a line that may stand in a docstring."""
    line = " ".join(text.replace("\\", "/").replace('"""', "'''").split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..."
