"""What is imported when: starting up costs what the work needs, and nothing else."""

from __future__ import annotations

import subprocess
import sys


def imported_by(statement: str, before: str = "pass") -> set[str]:
    """Return the modules that a statement imports in a fresh process."""
    script = f"{before}\nimport sys\nknown = set(sys.modules)\n{statement}\nprint(*sorted(set(sys.modules) - known), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_importing_to_edge_loads_no_pass_and_no_rule() -> None:
    modules = imported_by("from exirkit import to_edge", "import torch")
    assert {name.split(".")[0] for name in modules} == {"exirkit"}
    assert modules <= {"exirkit", "exirkit.program", "exirkit.program.entry"}


def test_help_and_explain_do_not_load_torch() -> None:
    for words in ("--help", "explain EK101", "lower --help", "rule --help"):
        modules = imported_by(
            f"from exirkit.cli import main\nsys.argv[1:] = {words.split()}\ntry: main()\nexcept SystemExit: pass"
        )
        assert "torch" not in modules, words
        assert "exirkit.cli" in modules
