"""What goes wrong on the bridge to the official package, provoked in a process of its own."""

from __future__ import annotations

import functools
from pathlib import Path

from tests.diagnostics.provocation import NEEDING_EXECUTORCH, ROOT, provokes

from exirkit import Diagnostic
from exirkit.fuzz.official.process import WorkerProcess

NEEDING_EXECUTORCH |= {"EK751", "EK752"}


@functools.cache
def found() -> dict[str, Diagnostic]:
    """Return the diagnostics by code; one process gives them all, as it takes seconds to start."""
    answers: dict[str, Diagnostic] = {}
    with WorkerProcess("tests.official.bridge_worker", ROOT) as worker:
        for code in sorted(NEEDING_EXECUTORCH):
            answer, _ = worker.request({"op": "provoke", "code": code}, timeout_s=180.0)
            assert "diagnostic" in answer, answer.get("failure")
            answers[code] = Diagnostic.model_validate_json(answer["diagnostic"])
    return answers


@provokes("EK751")
def backend_that_nobody_imported(_: Path) -> list[Diagnostic]:
    return [found()["EK751"]]


@provokes("EK752")
def data_outside_of_the_file(_: Path) -> list[Diagnostic]:
    return [found()["EK752"]]
