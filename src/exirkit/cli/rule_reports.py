"""The documents that `exirkit rule ... --json` prints."""

from __future__ import annotations

from pydantic import Field

from .reports import Finding, Report


class WitnessReport(Report):
    """What a part of a rule is for: values for which the rule would be wrong without it."""

    part: str
    text: str
    outcome: str
    witness: dict[str, str] | None = None
    instead: str | None = None
    seed: str | None = None
    difference: str | None = None
    tried: int = 0


class RuleReport(Report):
    """What is known of one rule."""

    rule: str
    ok: bool
    trials: int = 0
    rejected: int = 0
    witnesses: list[WitnessReport] = Field(default_factory=list)
    diagnostics: list[Finding] = Field(default_factory=list)
    seconds: float = 0.0


class RuleCheckReport(Report):
    """The verdict on a book.

    `notes` are no faults: rules whose order decides, and circles without a count that is known to decrease.
    """

    ok: bool
    file: str
    seed: int
    rules: list[RuleReport]
    diagnostics: list[Finding]
    notes: list[Finding] = Field(default_factory=list)


class CatalogueReport(Report):
    """The verdict on several books, and what the rules of one do to those of another if that was asked for."""

    ok: bool
    seed: int
    books: list[RuleCheckReport]
    diagnostics: list[Finding] = Field(default_factory=list)
    notes: list[Finding] = Field(default_factory=list)


class ListedRule(Report):
    """One rule of a book."""

    book: str
    id: str
    kind: str
    doc: str | None = None
    operators: list[str] = Field(default_factory=list)


class RuleListReport(Report):
    """Rules of a book or of the books in a directory, or names of books."""

    book: str | None
    rules: list[ListedRule] = Field(default_factory=list)
    books: list[str] = Field(default_factory=list)


class WordReport(Report):
    """One word of the language."""

    word: str
    text: str


class WordsReport(Report):
    """The words of conditions and `let`."""

    words: list[WordReport]
