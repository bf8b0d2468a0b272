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


def test_lowering_loads_nothing_that_checks_rules_or_quantizes() -> None:
    export = """
import torch
program = torch.export.export(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()), (torch.ones(4, 3),))
"""
    modules = imported_by("import exirkit; exirkit.to_edge(program).to_executorch()", export)
    assert "exirkit.patterns.engine.rewriting" in modules
    unneeded = ("exirkit.patterns.checking.checks", "exirkit.patterns.proving", "exirkit.passes.quantizer.")
    assert not [one for one in modules if one.startswith(unneeded)]


@pytest.mark.parametrize("room", ["passes", "patterns"])
def test_names_that_are_fetched_on_first_use_are_there(room: str) -> None:
    script = f"""
import ast, importlib, pathlib
room = importlib.import_module("exirkit.{room}")
tree = ast.parse(pathlib.Path(room.__file__).read_text())
later = [one for part in tree.body if isinstance(part, ast.If) for one in part.body if isinstance(one, ast.ImportFrom)]
names = [name.name for one in later for name in one.names]
assert len(names) > 20
for name in names:
    getattr(room, name)
"""
    assert f"exirkit.{room}" in imported_by(script.strip())


def test_commands_seldom_look_for_garbage() -> None:
    script = """
import gc
from exirkit.cli import main
try:
    main()
except SystemExit:
    pass
print(sum(one["collections"] for one in gc.get_stats()))
"""
    command = [sys.executable, "-c", script, "rule", "check", "canonicalize", "--rule", "canonicalize.t-to-permute"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "accepted" in done.stdout
    assert int(done.stdout.split()[-1]) < 150
