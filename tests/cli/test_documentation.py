"""The page about the command line agrees with the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke
from typer.core import TyperGroup
from typer.main import get_command

from exirkit.cli import (
    compare_reports,
    fuzz_reports,
    memory_reports,
    new_backend,
    partition_reports,
    print_reports,
    reports,
    rule_reports,
    rule_use_reports,
)
from exirkit.cli.app import app

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "command_line.md").read_text()
DOCUMENTS: dict[str, type[reports.Report]] = {
    "lower": reports.LowerReport,
    "run": reports.RunReport,
    "inspect": reports.InspectReport,
    "verify": reports.VerifyReport,
    "memory": memory_reports.MemoryReport,
    "partition": partition_reports.PartitionReport,
    "new-backend": new_backend.NewBackendReport,
    "demo": reports.DemoReport,
    "explain": reports.ExplainReport,
    "fuzz": fuzz_reports.FuzzReport,
    "fuzz report": fuzz_reports.FuzzSummaryReport,
    "fuzz show": fuzz_reports.FuzzShowReport,
    "fuzz merge": fuzz_reports.FuzzMergeReport,
    "fuzz mutants": fuzz_reports.FuzzMutantsReport,
    "print": print_reports.PrintReport,
    "compare": compare_reports.CompareReport,
    "bisect": compare_reports.BisectReport,
    "rule check": rule_reports.RuleCheckReport,
    "rule explain": rule_use_reports.RuleExplainReport,
    "rule docs": rule_use_reports.RuleDocsReport,
    "rule from-trace": rule_use_reports.RuleTraceReport,
    "rule list": rule_reports.RuleListReport,
    "rule words": rule_reports.WordsReport,
}


def row(start: str) -> str:
    """Return the last row of a table that starts like this."""
    return [line for line in PAGE.splitlines() if line.startswith(f"| {start}")][-1]


def test_every_command_is_on_the_page() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    assert set(group.commands) == {name.split()[0] for name in DOCUMENTS}
    for name in group.commands:
        assert re.search(rf"^\| `exirkit {name}[ `]", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_field_is_on_the_page(name: str) -> None:
    inner = {name, "code", "title", "text", "word", "nodes", "taken", "not_taken"}
    named = set(re.findall(r"`(\w+)`", row(f"`{name}` |"))) - inner
    assert named == set(DOCUMENTS[name].model_fields)


def test_the_fields_of_failures_are_on_the_page() -> None:
    assert set(re.findall(r"`(\w+)`", row("any command"))) == set(reports.FailureReport.model_fields)


def test_exit_codes_are_those_of_the_help(invoke: Invoke) -> None:
    told = " ".join(invoke("--help").stdout.split())
    for code in (0, 1, 2, 3, 4, 130):
        meaning = row(f"{code} |").split("|")[2].strip().partition(":")[0]
        assert f"{code} {meaning}" in told
