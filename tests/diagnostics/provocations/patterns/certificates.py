"""Certificates of program files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.diagnostics.provocation import provokes

from exirkit.ir import ModelError
from exirkit.patterns import load_book, standings
from exirkit.program import FileCertificate, check_certificate, read_certificate

BOOK = "canonicalize"
RULE = "canonicalize.t-to-permute"


def stated(**changes: Any) -> FileCertificate:
    """Return a certificate of the empty file `model.pte`, with other entries in place of some."""
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    entries = {
        "exirkit": "0.1.0",
        "torch": "2.13.0",
        "program": {"name": "model.pte", "nbytes": 0, "sha256": empty},
        "verifiers": [{"name": "format and semantics", "of": "file"}],
    }
    return FileCertificate.model_validate_json(json.dumps(entries | changes))


def rule_entry(**changes: Any) -> dict[str, Any]:
    """Return what a certificate says of a rule, with other fields in place of some."""
    one = standings(load_book(BOOK), BOOK)[RULE]
    assert one.certificate is not None
    entry = {"rule": RULE, "book": BOOK, "hash": one.hash, "status": one.status, "applied": 1, "samples": one.samples}
    proof = {key: getattr(one.certificate, key) for key in ("ranks", "arithmetic", "digest")}
    return entry | {"seed": one.seed} | proof | changes


def found(folder: Path, certificate: FileCertificate, **options: Any) -> object:
    """Raise what is wrong with a certificate of an empty file."""
    path = folder / "model.pte"
    path.write_bytes(b"")
    report = check_certificate(path, certificate, **options)
    if report.findings:
        raise ModelError(report.findings)
    return report


@provokes("EK781")
def certificate_that_is_none(folder: Path) -> object:
    (folder / "model.pte.cert").write_text('{"certificate": 2}')
    return read_certificate(folder / "model.pte.cert")


@provokes("EK782")
def certificate_of_other_bytes(folder: Path) -> object:
    return found(folder, stated(program={"name": "model.pte", "nbytes": 1, "sha256": "0" * 64}))


@provokes("EK783")
def certificate_with_another_digest(folder: Path) -> object:
    return found(folder, stated(rules=[rule_entry(digest="0" * 20)]))


@provokes("EK784")
def rule_that_was_only_tried(folder: Path) -> object:
    entry = rule_entry(status="tried", digest="", ranks="", arithmetic="")
    return found(folder, stated(rules=[entry]), least="proved")


@provokes("EK788")
def certificate_with_a_finding(folder: Path) -> object:
    return found(folder, stated(verifiers=[{"name": "kernels of any", "of": "forward", "findings": ["EK359"]}]))
