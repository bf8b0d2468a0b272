"""Proofs of rules and their certificates."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from tests.diagnostics.provocation import provokes

from exirkit.patterns import load_book, prove_rules, read_certificates, shipped_certificates, unconfirmed_certificate


@provokes("EK280")
def proof_without_the_solver(_: Path) -> object:
    with patch("exirkit.patterns.proving.campaign.find_spec", lambda name: None):
        return list(prove_rules(load_book("canonicalize")))


@provokes("EK281")
def certificates_that_are_none(_: Path) -> object:
    return read_certificates(b'{"proofs": 2}', "book.proofs.json")


@provokes("EK282")
def certificate_of_another_text(_: Path) -> object:
    book = load_book("canonicalize")
    one = shipped_certificates("canonicalize").by_rule()["canonicalize.t-to-permute"]
    return unconfirmed_certificate(one.model_copy(update={"hash": "0" * 20}), book.rule(one.rule), book)
