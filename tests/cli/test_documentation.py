"""The page about the command line agrees with the command line."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke
from typer.core import TyperGroup
from typer.main import get_command

from exirkit.cli.app import app
from exirkit.cli.commands import (
    bisect,
    compare,
    demo,
    explain,
    memory,
    migrate,
    new_backend,
    partition,
    print_program,
    run,
    verify,
)
from exirkit.cli.commands.devtools.gap import GapReport
from exirkit.cli.commands.devtools.profile import ProfileReport
from exirkit.cli.commands.fuzz.campaign import FuzzReport
from exirkit.cli.commands.rule.books import RuleListReport
from exirkit.cli.commands.rule.check import BookReport
from exirkit.cli.commands.rule.explain import RuleExplainReport
from exirkit.cli.commands.rule.from_trace import RuleTraceReport
from exirkit.cli.commands.rule.port import RulePortReport
from exirkit.cli.commands.rule.prove import ProofReport
from exirkit.cli.errors import FailureReport
from exirkit.cli.lowering import LowerReport
from exirkit.cli.program_file import InspectReport

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "command_line.md").read_text()
DOCUMENTS: dict[str, type | set[str]] = {
    "lower": LowerReport,
    "run": run.RunReport,
    "inspect": InspectReport,
    "verify": verify.VerifyReport,
    "memory": memory.MemoryReport,
    "partition": partition.PartitionReport,
    "migrate": migrate.MigrateReport,
    "new-backend": new_backend.NewBackendReport,
    "demo": demo.DemoReport,
    "explain": explain.ExplainReport,
    "fuzz": FuzzReport,
    "fuzz report": {"ok", "database", "html", "summary", "baseline", "idle_passes"},
    "fuzz show": {"ok", "database", "shown"},
    "fuzz merge": {"ok", "database", "shards", "added"},
    "fuzz mutants": {"ok", "killed", "blamed_right", "mutants"},
    "print": print_program.PrintReport,
    "compare": compare.CompareReport,
    "bisect": bisect.BisectReport,
    "gap": GapReport,
    "profile": ProfileReport,
    "rule check": BookReport,
    "rule explain": RuleExplainReport,
    "rule docs": {"ok", "output", "pages", "rules"},
    "rule from-trace": RuleTraceReport,
    "rule port": RulePortReport,
    "rule prove": ProofReport,
    "rule list": RuleListReport,
    "rule builtins": {"builtins"},
}


def names(document: type | set[str]) -> set[str]:
    return document if isinstance(document, set) else {each.name for each in fields(document)}


def row(start: str) -> str:
    """Return the last row of a table that starts like this."""
    return [line for line in PAGE.splitlines() if line.startswith(f"| {start}")][-1]


def test_the_commands_of_the_page_exist() -> None:
    """The page has how commands belong together; the page of all commands and options is generated."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    documented = {name.split()[0] for name in DOCUMENTS}
    assert documented <= set(group.commands)
    for name in documented:
        assert re.search(rf"^\| `exirkit {name}[ `]", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_field_is_on_the_page(name: str) -> None:
    inner = {name, "code", "title", "text", "builtin", "nodes", "taken", "not_taken"}
    named = set(re.findall(r"`(\w+)`", row(f"`{name}` |"))) - inner
    assert named == names(DOCUMENTS[name])


def test_the_fields_of_failures_are_on_the_page() -> None:
    assert set(re.findall(r"`(\w+)`", row("any command"))) == names(FailureReport)


def test_exit_codes_are_those_of_the_help(invoke: Invoke) -> None:
    told = " ".join(invoke("--help").stdout.split())
    for code in (0, 1, 2, 3, 4, 130):
        meaning = row(f"{code} |").split("|")[2].strip().partition(":")[0]
        assert f"{code} {meaning}" in told
