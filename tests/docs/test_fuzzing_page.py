"""The blocks of the page about fuzzing do what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.guide_blocks import steps_of

ROOT = Path(__file__).resolve().parents[2]
# Blocks of `py` are not run: they are for more processors than a test should take.
PAGE = re.sub(
    r"^```py$.*?^```$", "", (ROOT / "docs" / "how_to" / "fuzzing.md").read_text(), flags=re.MULTILINE | re.DOTALL
)


def run(command: str, directory: Path) -> tuple[int, str]:
    words = shlex.split(command)
    programs = {
        "exirkit": [sys.executable, "-m", "exirkit"],
        # As if the package were installed: the plug-in is there without being asked for.
        "pytest": [sys.executable, "-m", "pytest", "-p", "exirkit.fuzz.pytest_plugin"],
    }
    done = subprocess.run(
        [*programs[words[0]], *words[1:]],
        cwd=directory,
        env={**os.environ, "PYTHONWARNINGS": "ignore", "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    return done.returncode, done.stdout


def without_numbers(text: str) -> str:
    """Leave out what another generator would choose differently: numbers, and names made of them."""
    return re.sub(r"(?<![\w.])-?[a-z]?\d+(\.\d+)?\b", "N", text)


@pytest.mark.slow
def test_every_block_does_what_the_page_says(tmp_path: Path) -> None:
    files = 0
    for step in steps_of(PAGE):
        if step.file:
            (tmp_path / step.file).write_text(step.text)
            files += 1
            continue
        code, output = run(step.command, tmp_path)
        assert "Traceback" not in output, output
        assert code in (0, 1), output
        position, output = 0, without_numbers(output)
        for line in step.output if step.is_last else ():
            found = output.find(without_numbers(line.rstrip()), position)
            assert found >= 0, f"{step.command} does not print {line!r} (there) but\n{output}"
            position = found
    assert files == 5
    script = tmp_path / ".exirkit-fuzz" / "test_subtraction_as_addition.py"
    failed = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=300)
    assert failed.returncode == 1
    assert "AssertionError: O3 output value" in failed.stderr
    # And the pass that the page calls right is right.
    test = tmp_path / "test_my_pass.py"
    test.write_text(test.read_text().replace('{"alpha": -1}', '{"alpha": -kwargs.get("alpha", 1)}'))
    code, output = run("pytest -q test_my_pass.py", tmp_path)
    assert (code, "1 passed" in output) == (0, True), output
