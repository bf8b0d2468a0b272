"""What goes wrong on the bridge to the official package, provoked in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.diagnostics.provocation import NEEDING_EXECUTORCH, ROOT, provokes
from tests.official.backends.process import ask_bridge

from exirkit import Diagnostic

NEEDING_EXECUTORCH |= {"EK447", "EK751", "EK753", "EK754", "EK755", "EK756", "EK766", "EK767", "EK768", "EK780"}


def found(code: str) -> list[Diagnostic]:
    """Return the diagnostic."""
    answer, _ = ask_bridge({"op": "provoke", "code": code})
    return [Diagnostic.model_validate_json(answer["diagnostic"])]


@provokes("EK447")
def official_pass_that_raises(_: Path) -> list[Diagnostic]:
    command = [sys.executable, "-m", "tests.official.passes.official_passes_worker", "failing"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    return [Diagnostic.model_validate_json(made.stdout.splitlines()[-1])]


@provokes("EK751")
def backend_that_was_not_imported(_: Path) -> list[Diagnostic]:
    return found("EK751")


@provokes("EK753")
def pools_on_devices(_: Path) -> list[Diagnostic]:
    return found("EK753")


@provokes("EK754")
def planner_for_control_flow(_: Path) -> list[Diagnostic]:
    return found("EK754")


@provokes("EK755")
def int4_weights_of_an_odd_width(_: Path) -> list[Diagnostic]:
    return found("EK755")


@provokes("EK756")
def delegate_that_the_runtime_does_not_accept(_: Path) -> list[Diagnostic]:
    return found("EK756")


@provokes("EK766")
def class_that_is_not_a_pass(_: Path) -> list[Diagnostic]:
    return found("EK766")


@provokes("EK767")
def function_without_a_model(_: Path) -> list[Diagnostic]:
    return found("EK767")


@provokes("EK768")
def oracle_of_another_campaign(_: Path) -> list[Diagnostic]:
    return found("EK768")


@provokes("EK780")
def chain_for_another_backend(_: Path) -> list[Diagnostic]:
    return found("EK780")
