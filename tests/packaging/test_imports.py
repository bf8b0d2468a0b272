"""What is imported when: starting up costs what the work needs, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest


def imported_by(statement: str, before: str = "pass") -> set[str]:
    """Return the modules that a statement imports in a fresh process."""
    report = "print(*sorted(set(sys.modules) - known), file=sys.stderr)"
    script = "\n".join((before, "import sys", "known = set(sys.modules)", statement, report))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_importing_to_edge_loads_no_pass_and_no_rule() -> None:
    modules = imported_by("from exirkit import to_edge", "import torch")
    assert modules <= {"exirkit", "exirkit.program", "exirkit.program.entry"}


@pytest.mark.parametrize("words", ["--help", "explain EK101", "lower --help", "rule --help"])
def test_help_and_explain_do_not_load_torch(words: str) -> None:
    call = f"sys.argv[1:] = {words.split()}\ntry: main()\nexcept SystemExit: pass"
    modules = imported_by(f"from exirkit.cli import main\n{call}")
    assert "torch" not in modules
    assert "exirkit.cli" in modules
