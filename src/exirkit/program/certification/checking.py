"""Checking a program file against its certificate, without lowering anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from exirkit.ir import Diagnostic, Location
from exirkit.patterns import RULE_STATUSES, RuleStanding, RuleStatus, is_shipped, load_book, standings

from .document import CertifiedCheck, CertifiedFile, CertifiedRule, FileCertificate


@dataclass(frozen=True)
class CertificateReport:
    """What a check of a certificate found.

    Attributes:
        findings: What is wrong.
        statuses: Rules by what is known of them, best first.
        changed: Rules that have another text in this installation, or are not in it: what the certificate says of them
            was not compared with anything.
    """

    findings: tuple[Diagnostic, ...]
    statuses: dict[str, tuple[str, ...]]
    changed: tuple[str, ...]


def check_certificate(
    path: Path,
    certificate: FileCertificate,
    *,
    books: Sequence[str | Path] = (),
    least: RuleStatus | None = None,
) -> CertificateReport:
    """Check a program file against its certificate.

    The digests of the file and of the data files beside it must be those of the certificate, every verifier must have
    passed, and what it says of rules must be what certificates and witnesses of the books here say of the same texts.

    Args:
        path: The program file.
        certificate: What `read_certificate` returned.
        books: Files of rule books that were used; shipped ones are found by their names.
        least: The least that has to be known of every rule that was applied.

    Raises:
        ModelError: A book has errors.
        OSError: A file cannot be read.
    """
    findings = [*_files(path, certificate), *_verifiers(path, certificate)]
    known = _Standings(books)
    changed: list[str] = []
    for rule in certificate.rules:
        here = known.of(rule)
        if here is None or here.hash != rule.hash:
            changed.append(rule.rule)
        else:
            findings += _claims(path, rule, here)
        if least is not None and RULE_STATUSES.index(rule.status) < RULE_STATUSES.index(least):
            message = f"rule {rule.rule} was applied, and is {rule.status}, not {least}"
            findings.append(Diagnostic.of("EK784", message, location=Location(file=str(path))))
    statuses = {
        status: tuple(rule.rule for rule in certificate.rules if rule.status == status)
        for status in reversed(RULE_STATUSES)
    }
    return CertificateReport(
        tuple(findings), {name: rules for name, rules in statuses.items() if rules}, tuple(changed)
    )


class _Standings:
    """What is known here of rules, by the book."""

    def __init__(self, books: Sequence[str | Path]) -> None:
        self._files = {Path(one).name: one for one in books if not is_shipped(str(one))}
        self._known: dict[str, dict[str, RuleStanding]] = {}

    def of(self, rule: CertifiedRule) -> RuleStanding | None:
        """Return what is known of a rule; None if there is no such rule here."""
        name = rule.book if is_shipped(rule.book) else self._files.get(Path(rule.book).name)
        if name is None:
            return None
        if str(name) not in self._known:
            self._known[str(name)] = standings(load_book(name).require_valid(), name)
        return self._known[str(name)].get(rule.rule)


def _files(path: Path, certificate: FileCertificate) -> Iterator[Diagnostic]:
    for stated, file in [(certificate.program, path), *((one, path.parent / one.name) for one in certificate.data)]:
        if not file.is_file():
            yield _another(file, "it is not there")
            continue
        found = CertifiedFile.of(file)
        if found.nbytes != stated.nbytes:
            yield _another(file, f"it has {found.nbytes} bytes, not {stated.nbytes}")
        elif found.sha256 != stated.sha256:
            yield _another(file, f"its SHA-256 is {found.sha256}, not {stated.sha256}")


def _another(file: Path, why: str) -> Diagnostic:
    return Diagnostic.of("EK782", f"the certificate is of another file: {why}", location=Location(file=str(file)))


def _verifiers(path: Path, certificate: FileCertificate) -> Iterator[Diagnostic]:
    if not certificate.verifiers:
        yield _unverified(path, "it names no verifier")
    for one in certificate.verifiers:
        if one.findings:
            yield _unverified(path, f"{_title(one)} found {', '.join(one.findings)}")


def _title(one: CertifiedCheck) -> str:
    return f"the verifier {one.name!r} of {one.of}"


def _unverified(path: Path, why: str) -> Diagnostic:
    return Diagnostic.of(
        "EK788", f"the file was not verified when it was made: {why}", location=Location(file=str(path))
    )


def _claims(path: Path, rule: CertifiedRule, here: RuleStanding) -> Iterator[Diagnostic]:
    """Compare what a certificate says of a rule with what is known of the same text here."""
    proof = here.certificate if here.status in ("proved", "bounded") else None
    pairs = {
        "status": (rule.status, here.status),
        "samples": (rule.samples, here.samples),
        "seed": (rule.seed, here.seed),
        "digest": (rule.digest, "" if proof is None else proof.digest),
        "ranks": (rule.ranks, "" if proof is None else proof.ranks),
        "arithmetic": (rule.arithmetic, "" if proof is None else proof.arithmetic),
    }
    if RULE_STATUSES.index(here.status) > RULE_STATUSES.index(rule.status):
        # More has become known of the same text since.
        return
    for what, (stated, found) in pairs.items():
        if stated != found:
            message = f"{what} of rule {rule.rule} is {found!r} here, not {stated!r} as the certificate says"
            yield Diagnostic.of("EK783", message, location=Location(file=str(path)))
            return
