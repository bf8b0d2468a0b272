"""The defects of the official exporter that we tell of are there, and our bench finds them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from tests.fuzz.official.table import KINDS, PAGE, PROGRAMS, REPROS, Finding, findings, page

from exirkit.fuzz.compilers import compiler_of
from exirkit.fuzz.official import VARIANTS, missing_reason
from exirkit.fuzz.oracles import ORACLES, check
from exirkit.fuzz.programs import parse_program, program_text

FOUND = findings()
BY_BENCH = [one for one in FOUND if one.oracle]
ASKED = [
    "eager-run",
    "lowering",
    "memory-plan",
    "poisoned-run",
    "memory-sanitizer",
    "repeated-runs",
    "changing-shapes",
    "official-runtime",
]

needs_official = [
    pytest.mark.executorch,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(FOUND), "python -m tests.fuzz.official.table"


def test_every_script_and_program_is_listed() -> None:
    assert [one.script for one in FOUND] == sorted(REPROS.glob("[0-9]*.py"))
    assert [one.program for one in BY_BENCH] == sorted(PROGRAMS.glob("*.txt"))


@pytest.mark.parametrize("finding", FOUND, ids=lambda one: one.name)
def test_finding_is_well_formed(finding: Finding) -> None:
    assert len(finding.script.read_text(encoding="utf-8").splitlines()) <= 20
    assert finding.kind in KINDS
    assert bool(finding.oracle) != bool(finding.why_not)
    assert not finding.oracle or finding.oracle in ORACLES
    assert finding.target.partition(":")[2] in VARIANTS


@pytest.mark.parametrize("finding", BY_BENCH, ids=lambda one: one.name)
def test_program_is_in_printed_form(finding: Finding) -> None:
    text = finding.program.read_text(encoding="utf-8")
    assert program_text(parse_program(text, file=finding.program.name)) == text


Ask = Callable[[Path], dict[str, Any]]


@contextmanager
def running(*arguments: str) -> Iterator[Ask]:
    """Start the process that runs scripts, and give a function that asks it to."""
    command = [sys.executable, str(Path(__file__).with_name("run_repros.py")), *arguments]
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **streams) as process:
        stdin: IO[str] = process.stdin  # type: ignore[assignment]
        stdout: IO[str] = process.stdout  # type: ignore[assignment]

        def ask(script: Path) -> dict[str, Any]:
            print(script, file=stdin, flush=True)
            answer: dict[str, Any] = json.loads(stdout.readline())
            return answer

        yield ask
        stdin.close()


@pytest.fixture(scope="module")
def official_script() -> Iterator[Ask]:
    with running() as ask:
        yield ask


@pytest.fixture(scope="module")
def our_script() -> Iterator[Ask]:
    with running("ours") as ask:
        yield ask


class TestOfficial:
    pytestmark = needs_official

    @pytest.mark.parametrize("finding", FOUND, ids=lambda one: one.name)
    def test_defect_is_still_there(self, finding: Finding, official_script: Ask) -> None:
        answer = official_script(finding.script)
        assert answer["code"] != 0, "it was fixed; take it out of the list"
        assert re.search(finding.shows, answer["output"]), answer["output"][-2000:]
        assert (answer["code"] < 0) == (finding.kind == "crash")

    @pytest.mark.slow
    @pytest.mark.parametrize("finding", FOUND, ids=lambda one: one.name)
    def test_what_our_chain_makes_of_the_script(self, finding: Finding, our_script: Ask) -> None:
        answer = our_script(finding.script)
        assert (answer["code"] == 0) == (finding.ours == "right"), answer["output"][-2000:]
        assert not finding.ours.startswith("EK") or f"error[{finding.ours[:5]}]" in answer["output"]

    @pytest.mark.parametrize("finding", BY_BENCH, ids=lambda one: one.name)
    def test_the_bench_finds_it(self, finding: Finding) -> None:
        program = parse_program(finding.program.read_text(encoding="utf-8"), file=finding.program.name)
        verdict = check(program, compiler=compiler_of(finding.target), oracles=ASKED)
        assert [one.oracle for one in verdict.failures[:1]] == [finding.oracle], verdict
