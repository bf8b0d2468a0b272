"""Certificates of proofs: what is shown of each rule, stored beside its book, with the hash of the text it is shown of.

Nothing here needs the solver: statuses are read, and compared with the rules as they are now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from exirkit.ir import Diagnostic, ModelError
from exirkit.patterns.books.loading import LoadedBook
from exirkit.patterns.books.shipped import is_shipped, named_books
from exirkit.patterns.checking.witnesses import rule_text_hash

REVISION = 1
"""Of the semantics of operators and of the prover: older certificates are stale."""

Status = Literal["proved", "bounded", "open", "refuted"]

ARITHMETIC = {
    "free": "bit for bit, whatever arithmetic of floats computes",
    "bits": "bit for bit",
    "zeros": "bit for bit, but for the sign of zeros",
    "reals": "over real numbers, with trials of rounding, infinities and NaN",
}
"""How results agree, in words."""


class Certificate(BaseModel):
    """What is shown of one rule.

    Attributes:
        rule: Its id.
        hash: Of all that says what the rule means.
        status: What was shown.
        ranks: `all`, or which ones were enumerated.
        arithmetic: How results agree: a key of `ARITHMETIC`.
        axioms: Laws used beyond those of the solver's theories.
        paths: How many paths were compared.
        digest: Of everything that the solver was asked, and found to be so.
        most_dims: Most dims of sequences, if there were too many combinations for as many as usual.
        reason: Why it is open, or where it is wrong.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: Annotated[str, Field(max_length=300)]
    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{20}$")]
    status: Status
    ranks: Annotated[str, Field(max_length=2000)] = ""
    arithmetic: Literal["", "free", "bits", "zeros", "reals"] = ""
    axioms: tuple[Annotated[str, Field(max_length=300)], ...] = ()
    paths: Annotated[int, Field(ge=0)] = 0
    digest: Annotated[str, Field(max_length=64)] = ""
    most_dims: Annotated[int, Field(ge=1)] | None = None
    reason: Annotated[str, Field(max_length=2000)] | None = None

    @property
    def is_proved(self) -> bool:
        """Whether the rule is proved for all sizes."""
        return self.status == "proved"

    @property
    def is_of_all_ranks(self) -> bool:
        """Whether it is proved for all ranks that its types admit."""
        return self.status == "proved" and self.ranks == "all"

    @property
    def sentence(self) -> str:
        """What is shown, in words."""
        if self.status == "proved":
            scope = "all sizes and ranks" if self.ranks == "all" else f"all sizes; {self.ranks}"
            return f"proved for {scope}, {ARITHMETIC.get(self.arithmetic, '')}"
        if self.status == "bounded":
            return f"proved up to a bound: {self.ranks}, {ARITHMETIC.get(self.arithmetic, '')}"
        return f"{'wrong' if self.status == 'refuted' else 'not proved'}: {self.reason}"


class CertificateBook(BaseModel):
    """The file of one book."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    proofs: Literal[1] = 1
    revision: int = REVISION
    rules: tuple[Certificate, ...] = ()

    def by_rule(self) -> dict[str, Certificate]:
        """Return certificates by the id of the rule."""
        return {one.rule: one for one in self.rules}


def certificate_text(certificates: Iterable[Certificate]) -> str:
    """Return the file of a book: a line for each rule, so that changes are read easily."""
    lines = [json.dumps(one.model_dump(mode="json", exclude_defaults=True), sort_keys=True) for one in certificates]
    body = ",\n".join(f" {line}" for line in lines)
    return f'{{"proofs": 1, "revision": {REVISION}, "rules": [\n{body}\n]}}\n'


def read_certificates(data: bytes, file: str) -> CertificateBook:
    """Read the file of a book.

    Args:
        data: Its content.
        file: Its name, for errors.

    Raises:
        ModelError: EK281, it is no such file.
    """
    try:
        return CertificateBook.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        message = f"{file} is not a file of certificates: {where + ': ' if where else ''}{first['msg']}"
        hint = "make it again: exirkit rule prove BOOK --certificates FILE --update"
        raise ModelError([Diagnostic(code="EK281", message=message, hint=hint)]) from None


def shipped_certificates(name: str) -> CertificateBook:
    """Return the certificates of a book that comes with exirkit; none if there is no file."""
    folder, _, stem = name.rpartition("/")
    folder = "named" if name in named_books() else folder
    resource = files("exirkit.patterns") / "rules" / folder / "proofs" / f"{stem}.json"
    if not resource.is_file():
        return CertificateBook()
    return read_certificates(resource.read_bytes(), f"{name}.json")


def valid_certificates(book: LoadedBook, stored: CertificateBook) -> dict[str, Certificate]:
    """Return the certificates of rules whose texts have not changed since, by the id of the rule."""
    if stored.revision != REVISION:
        return {}
    known = stored.by_rule()
    return {
        rule.id: known[rule.id]
        for rule in book.rules
        if rule.id in known and known[rule.id].hash == rule_text_hash(rule, book)
    }


def proof_sentences(book: LoadedBook, name: str) -> Mapping[str, str]:
    """Return what is shown of the rules of a shipped book, in words, by id; nothing of another book."""
    if not is_shipped(name):
        return {}
    found = valid_certificates(book, shipped_certificates(name))
    return {rule: one.sentence for rule, one in found.items()}
