"""Mutants that are not there, or do not fit."""

from __future__ import annotations

from pathlib import Path

from tests.diagnostics.provocation import provokes
from tests.fuzz.mutants.stand_in import SQUARE

from exirkit.fuzz.mutants import applied
from exirkit.fuzz.mutants.model import named


@provokes("EK880")
def unknown_mutant(scratch: Path) -> object:
    return named("scalar-in-the-dark", (SQUARE,))


@provokes("EK881")
def misfit(scratch: Path) -> object:
    with applied(SQUARE.model_copy(update={"old": "list(range(rank))"})):
        return None
