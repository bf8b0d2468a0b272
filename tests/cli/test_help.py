from __future__ import annotations

import re
import subprocess
import sys

import pytest
from tests.cli.conftest import Invoke
from typer.core import TyperGroup, TyperOption
from typer.main import get_command

import exirkit
from exirkit.cli.app import app

COMMANDS = ["lower", "run", "inspect", "verify", "demo", "explain", "fuzz"]

# Raises as soon as anything asks for torch, and says who did.
WITHOUT_TORCH = """
import sys

class Reject:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numpy", "executorch"):
            raise RuntimeError(f"{name} was imported")
        return None

sys.meta_path.insert(0, Reject())
from exirkit.cli import main
sys.argv[1:] = sys.argv[1:]
main()
"""


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        [],
        ["--version"],
        ["explain", "EK101"],
        ["explain"],
        ["lower", "--help"],
        ["run", "--help"],
        ["fuzz", "--help"],
    ],
    ids=" ".join,
)
def test_torch_is_not_imported(args: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *args], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert result.stderr == ""


@pytest.mark.parametrize(
    "args", [["explain", "EK000"], ["bogus"], ["run", "--bogus"], ["lower", "no.py:f", "-o", "x.pte"]]
)
def test_torch_is_not_imported_for_wrong_usage(args: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *args], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode in (1, 2)
    assert result.stderr.startswith("error[EK7")
    assert result.stderr.count("\n") == 1


def test_help_documents_the_exit_codes(invoke: Invoke) -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for fact in ("1 the model or file cannot be handled", "2 wrong usage", "4 a bug of exirkit", "130 interrupted"):
        assert fact in text


def test_no_arguments_show_the_help(invoke: Invoke) -> None:
    assert invoke().stdout == invoke("--help").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(invoke: Invoke, command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").stdout == f"exirkit {exirkit.__version__}\n"


def test_names_of_options_are_whole_on_narrow_terminals(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option and command of every command, in 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def check(command: object, *path: str) -> None:
        text = invoke(*path, "--help").stdout
        assert max(map(len, text.splitlines())) <= 80
        for option in getattr(command, "params", ()):
            for spelt in option.opts if isinstance(option, TyperOption) and not option.hidden else ():
                assert re.search(rf"(?<![\w-]){re.escape(spelt)}(?![\w-])", text), (path, spelt)
        if isinstance(command, TyperGroup):
            for name, inner in command.commands.items():
                # A name that a command had before.
                assert inner.hidden or f"  {name} " in text
                check(inner, *path, name)

    check(get_command(app))
