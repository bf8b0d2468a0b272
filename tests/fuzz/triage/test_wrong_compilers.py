"""Every wrong compiler is found, at the right oracle, with the right culprit part, and becomes small."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fuzz.programs.program_texts import TEXTS
from tests.fuzz.triage import wrong_compilers

from exirkit.fuzz import mutants
from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.examination import Failure
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import Program, parse_program, program_text
from exirkit.fuzz.triage import Culprit, bucket, find_culprit, reduce, repro_script, same_failure

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = parse_program(wrong_compilers.EXAMPLE)


def found(compiler: ExirkitCompiler) -> tuple[Failure, Culprit, Program]:
    """Check, blame and reduce the example."""
    verdict = check(EXAMPLE, compiler=compiler)
    assert verdict.failures, verdict
    failure = verdict.failures[0]
    culprit = find_culprit(EXAMPLE, failure, compiler=compiler)
    small = reduce(EXAMPLE, same_failure(failure, compiler=compiler))
    assert find_culprit(small, failure, compiler=compiler).part == culprit.part, program_text(small)
    return failure, culprit, small


def steps_of(program: Program) -> list[str]:
    return [call.op for method in program.methods for call in method.steps]


def fails(script: str, folder: Path, broken: str | None = None) -> None:
    """Run a script in a fresh process, and find that it fails in the right way, and only with the bug."""
    assert script.count("\n") < 60, script
    path = folder / "repro.py"
    path.write_text(script)
    bug = f"from tests.fuzz.triage import wrong_compilers; wrong_compilers.install({broken!r}); " if broken else ""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", f"{bug}import runpy; runpy.run_path({str(path)!r})"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "AssertionError: " in done.stderr, done.stderr


def test_the_example_is_good() -> None:
    verdict = check(EXAMPLE)
    assert verdict.is_good, verdict.failures
    assert not verdict.not_run
    assert verdict.comparisons.bitwise > 20


def test_a_pass_of_the_chain_that_computes_something_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong_compilers.break_in_a_pass(monkeypatch)
    failure, culprit, small = found(ExirkitCompiler())
    assert (failure.oracle, failure.symptom, failure.stage) == ("dialect-agreement", "output value", "edge")
    assert culprit.part == "promote-types"
    assert steps_of(small) == ["aten.sub.Tensor"]
    assert len(small.runs) == 1
    assert bucket(failure, small, culprit) == "dialect-agreement | promote-types | - | output value | sub.Tensor"
    fails(repro_script(small, failure, culprit=culprit), tmp_path, "break_in_a_pass")


def test_an_exception_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_compilers.break_an_exception(monkeypatch)
    failure, culprit, small = found(ExirkitCompiler())
    assert failure.oracle == "lowering"
    assert "KeyError" in failure.symptom
    assert culprit.part == "promote-types"
    assert steps_of(small) == ["aten.sub.Tensor"]


def test_a_pass_that_records_a_wrong_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_compilers.break_wrong_metadata(monkeypatch)
    failure, culprit, small = found(ExirkitCompiler())
    assert failure.oracle in ("lowering", "metadata-agreement")
    assert culprit.part == "promote-types"
    assert steps_of(small) == ["aten.relu.default"]


def test_a_pass_of_a_user(tmp_path: Path) -> None:
    compiler = ExirkitCompiler(level=0, passes=("tests.fuzz.triage.wrong_compilers:DropsAlpha",))
    failure, culprit, small = found(compiler)
    assert failure.oracle == "dialect-agreement"
    assert culprit.part == "drops-alpha"
    assert steps_of(small) == ["aten.sub.Tensor"]
    fails(repro_script(small, failure, compiler=compiler, culprit=culprit), tmp_path)


def test_a_rule_that_is_wrong(tmp_path: Path) -> None:
    book = tmp_path / "wrong.yaml"
    book.write_text(wrong_compilers.WRONG_RULES)
    compiler = ExirkitCompiler(rules=("algebra", str(book)))
    failure, culprit, small = found(compiler)
    assert failure.oracle == "dialect-agreement"
    assert (culprit.rule, culprit.application) == ("wrong.relu-remove", 1)
    assert steps_of(small) == ["aten.relu.default"]
    fails(repro_script(small, failure, compiler=compiler, culprit=culprit), tmp_path)


def test_a_planner_that_lets_values_overlap(tmp_path: Path) -> None:
    compiler = ExirkitCompiler(planner="tests.fuzz.triage.wrong_compilers:overlapping")
    failure, culprit, small = found(compiler)
    assert failure.oracle in ("lowering", "memory-plan")
    assert culprit.part == "planner"
    assert len(steps_of(small)) <= 2
    fails(repro_script(small, failure, compiler=compiler, culprit=culprit), tmp_path)


def test_an_overlap_that_the_checker_of_plans_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_compilers.break_blindness(monkeypatch)
    failure, culprit, small = found(ExirkitCompiler(planner="tests.fuzz.triage.wrong_compilers:overlapping"))
    assert failure.oracle == "memory-sanitizer"
    assert failure.symptom.startswith("raised ModelError EK66")
    assert culprit.part == "planner"
    assert len(steps_of(small)) <= 2


@pytest.mark.parametrize(
    ("broken", "part"),
    [(wrong_compilers.break_in_the_emitter, "emitter"), (wrong_compilers.break_in_the_interpreter, "interpreter")],
)
def test_emitter_and_interpreter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: Callable[[wrong_compilers.Patch], None], part: str
) -> None:
    broken(monkeypatch)
    failure, culprit, small = found(ExirkitCompiler())
    assert failure.oracle == ("memory-plan" if part == "emitter" else "poisoned-run")
    assert culprit.part == part
    assert steps_of(small) == ["aten.sub.Tensor"]
    fails(repro_script(small, failure, culprit=culprit), tmp_path, broken.__name__)


STRIDES = parse_program(TEXTS["strides"])


def test_metadata_that_only_a_later_stage_trips_over() -> None:
    with mutants.applied(mutants.mutant("copied-value-keeps-strides")):
        failure = check(STRIDES).failures[0]
        culprit = find_culprit(STRIDES, failure)
    assert failure.oracle == "lowering"
    assert failure.stage != "replace-views-with-copies"
    assert culprit.part == "replace-views-with-copies"


POOLED = parse_program(TEXTS["pooled"])


def test_a_program_that_cannot_be_run_long_before_a_check_says_so() -> None:
    with mutants.applied(mutants.mutant("literal-types-not-told-apart")):
        failure = check(POOLED).failures[0]
        culprit = find_culprit(POOLED, failure)
    assert failure.oracle == "lowering"
    assert culprit.part == "decompose-to-core"
    assert check(POOLED).is_good


BESIDE_A_KERNEL = parse_program(TEXTS["beside_a_kernel"])


@pytest.mark.executorch
def test_a_kernel_of_the_official_runtime_that_is_wrong_about_another_result() -> None:
    assert not check(BESIDE_A_KERNEL, oracles=("official-runtime",)).is_good
    with mutants.applied(mutants.mutant("outputs-not-copied")):
        failure = check(BESIDE_A_KERNEL).failures[0]
        culprit = find_culprit(BESIDE_A_KERNEL, failure)
    assert (failure.oracle, failure.node) == ("poisoned-run", "output 0")
    assert culprit.part == "interpreter"
