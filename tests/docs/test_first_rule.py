"""Every block of the guide to the first rule does what the guide says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.guide_blocks import steps_of
from tests.official.oracle import missing_reason

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "tutorial" / "first_rule.md").read_text()


def run(command: str, directory: Path) -> tuple[int, str]:
    """Run a command of the guide; return its exit code and what it printed."""
    words = shlex.split(command)
    programs = {"exirkit": [sys.executable, "-m", "exirkit"], "python": [sys.executable]}
    done = subprocess.run(
        [*programs[words[0]], *words[1:]],
        cwd=directory,
        env={**os.environ, "PYTHONWARNINGS": "ignore", "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout


def is_official(command: str) -> bool:
    return "official" in command


@pytest.mark.slow
def test_every_block_does_what_the_guide_says(tmp_path: Path) -> None:
    printed = ""
    for step in steps_of(GUIDE):
        if step.file:
            (tmp_path / step.file).write_text(step.text)
            continue
        if "pip install" in step.command or (is_official(step.command) and missing_reason()):
            continue
        code, output = run(step.command, tmp_path)
        is_refused = any("REJECTED" in line or line.startswith("error") for line in step.output)
        assert code == is_refused, f"{step.command}: exit code {code}\n{output}"
        printed += output
        if not step.is_last:
            continue
        position = 0
        for line in step.output:
            found = printed.find(line.rstrip(), position)
            assert found >= 0, f"{step.command} does not print {line!r} (there) but\n{printed}"
            position = found + len(line.rstrip())
        printed = ""
    assert (tmp_path / "meter.pte").is_file()


@pytest.mark.executorch
def test_the_official_block_is_run() -> None:
    """The block above is left out without the wheel only; here the skip is said aloud."""
    assert any(is_official(step.command) for step in steps_of(GUIDE))


def test_installing_is_what_the_readme_says() -> None:
    (command,) = [step.command for step in steps_of(GUIDE) if "pip install" in step.command]
    assert command in (ROOT / "README.md").read_text()


def test_a_block_must_say_what_it_is() -> None:
    with pytest.raises(ValueError, match="without the name of a file"):
        list(steps_of("```python\nprint(1)\n```\n"))
    with pytest.raises(ValueError, match="nothing prints"):
        list(steps_of("```text\n1\n```\n"))
