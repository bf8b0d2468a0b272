"""Trials of an analysis before any graph is seen: the verdict on all of its rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from exirkit.ir import Diagnostic, without_machine_libraries
from exirkit.patterns.books.loading import compile_book
from exirkit.patterns.books.model import RuleBook
from exirkit.patterns.checking.adopted_operators import adopted_findings
from exirkit.patterns.matching.compiled_rule import texts_of

from .claims import check_claims
from .demands import Demands
from .inference import Inference
from .loading import Analysis
from .noting import Notes, check_notes
from .projections import check_demands
from .squares import RowVerdict, check_squares

TRIALS = 24
"""Calls of one operator, at one value, that are tried."""


@dataclass
class PropagationVerdict:
    """What is known of a propagation before any graph is seen.

    Attributes:
        id: Its name.
        file: Its file.
        rows: Its rows, in order.
        found: What is wrong.
    """

    id: str
    file: str
    rows: list[RowVerdict] = field(default_factory=list)
    found: list[Diagnostic] = field(default_factory=list)

    @property
    def is_accepted(self) -> bool:
        """Whether no error was found."""
        return not any(one.severity == "error" for one in self.found)


def check_propagation(made: Analysis, *, seed: int = 0, trials: int = TRIALS) -> PropagationVerdict:
    """Try an analysis.

    Args:
        made: The analysis.
        seed: Source of the values.
        trials: Calls of one operator, at one value.

    Returns:
        What is wrong with its form (then nothing is tried) or was found by trials: EK292 to EK295 for one that chooses
        values; EK255, a claim is not true, and EK293, it cannot be tried, for one that infers. EK236, an operator that
        another library has registered computes something else than `define` says. EK257 and EK258, a call needs more
        than a row says, or is replaced by something else, for one that demands; EK259, a field is not plain data, for
        one that notes what is known.
    """
    verdict = PropagationVerdict(made.model.id, made.source.file, found=list(made.found))
    if verdict.found:
        return verdict
    # Kernels of the machine's libraries round by memory order, more than the comparison allows.
    with torch.no_grad(), without_machine_libraries():
        verdict.rows, verdict.found = _tried(made, seed, trials)
    verdict.found += _adopted(made, seed)
    return verdict


def _tried(made: Analysis, seed: int, trials: int) -> tuple[list[RowVerdict], list[Diagnostic]]:
    if isinstance(made, Inference):
        return check_claims(made, seed, trials)
    if isinstance(made, Demands):
        return check_demands(made, seed, trials)
    if isinstance(made, Notes):
        return [], check_notes(made, seed)
    return check_squares(made, seed, trials)


def _adopted(made: Analysis, seed: int) -> list[Diagnostic]:
    if isinstance(made, Notes) or not made.model.ops:
        return []
    book = compile_book(RuleBook(rulebook=1, namespace="propagation", ops=made.model.ops), made.source.file, texts_of)
    return list(adopted_findings(book, lambda name: made.source.text(("ops", name, "define")), seed=seed))
