"""What is known of a rule as it is now: proved, proved up to a bound, tried on values, or none of these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from exirkit.patterns.books.loading import LoadedBook
from exirkit.patterns.books.shipped import is_shipped
from exirkit.patterns.checking.acceptance import unaccepted_rules
from exirkit.patterns.checking.checks import TRIALS
from exirkit.patterns.checking.witnesses import rule_text_hash, shipped_witnesses
from exirkit.patterns.proving.certificates import (
    Certificate,
    CertificateBook,
    read_certificates,
    shipped_certificates,
    valid_certificates,
)

RuleStatus = Literal["proved", "bounded", "tried", "untried", "refuted"]

RULE_STATUSES: tuple[RuleStatus, ...] = ("refuted", "untried", "tried", "bounded", "proved")
"""From nothing to everything."""


@dataclass(frozen=True)
class RuleStanding:
    """What is known of one rule.

    Attributes:
        rule: Its id.
        hash: Of all that says what it means.
        status: `proved`: for all sizes; `bounded`: up to a bound; `tried`: on values only; `untried`: not even that;
            `refuted`: it is wrong.
        certificate: Of the prover, if it has examined this text.
        samples: Trials in which pattern and replacement agreed.
        seed: Of these trials; None if it is not known.
    """

    rule: str
    hash: str
    status: RuleStatus
    certificate: Certificate | None = None
    samples: int = 0
    seed: int | None = None

    @property
    def sentence(self) -> str:
        """What is known, in words."""
        if self.certificate is not None and self.status in ("proved", "bounded", "refuted"):
            return self.certificate.sentence
        if self.status == "untried":
            return "neither proved nor tried"
        seed = "" if self.seed is None else f", seed {self.seed}"
        why = f"; {self.certificate.sentence}" if self.certificate is not None else ""
        return f"tried on {self.samples} sets of values{seed}{why}"


def standings(book: LoadedBook, name: str | Path | None = None) -> dict[str, RuleStanding]:
    """Return what is known of the rules of a book, by id.

    Of a shipped book, that is in its certificates and witnesses; of a file, in `BOOK.proofs.json` and in the list of
    accepted rules beside it. Only what was found for the texts that the rules have now counts.

    Args:
        book: The book.
        name: Its name if it is shipped, or its file; as it was loaded when absent.

    Raises:
        ModelError: EK281, the file of certificates is none.
        OSError: It cannot be read.
    """
    if name is None:
        bare = book.file.removesuffix(".yaml")
        name = bare if is_shipped(bare) else book.file
    shipped = is_shipped(str(name))
    proofs = shipped_certificates(str(name)) if shipped else _certificates_beside(Path(name))
    shown = valid_certificates(book, proofs)
    tried = _tried(book, str(name)) if shipped else _accepted(book, Path(name))
    return {rule.id: _standing(rule.id, rule_text_hash(rule, book), shown.get(rule.id), tried) for rule in book.rules}


def _standing(
    rule: str, text: str, shown: Certificate | None, tried: dict[str, tuple[str | None, int, int | None]]
) -> RuleStanding:
    known, samples, seed = tried.get(rule, (None, 0, None))
    if known != text:
        samples, seed = 0, None
    if shown is not None and shown.status != "open":
        return RuleStanding(rule, text, shown.status, shown, samples, seed)
    return RuleStanding(rule, text, "tried" if samples else "untried", shown, samples, seed)


def _tried(book: LoadedBook, name: str) -> dict[str, tuple[str | None, int, int | None]]:
    stored = shipped_witnesses(name)
    return {} if stored is None else {one.rule: (one.text, one.samples, one.seed) for one in stored.rules}


def _accepted(book: LoadedBook, file: Path) -> dict[str, tuple[str | None, int, int | None]]:
    missing = set(unaccepted_rules(book, file))
    return {rule.id: (rule_text_hash(rule, book), TRIALS, None) for rule in book.rules if rule.id not in missing}


def _certificates_beside(file: Path) -> CertificateBook:
    beside = file.with_suffix(".proofs.json")
    if not beside.is_file():
        return CertificateBook()
    return read_certificates(beside.read_bytes(), str(beside))


def weakest(found: Iterable[RuleStanding]) -> RuleStanding:
    """Return the one of which the least is known: a rule that stands for several is as good as that."""
    return min(found, key=lambda one: RULE_STATUSES.index(one.status))
