"""Proving the rules of books, and re-checking what is stored about them; the solver is imported only here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec

from exirkit.ir import Diagnostic, UsageError
from exirkit.patterns.books.loading import LoadedBook
from exirkit.patterns.checking.witnesses import rule_text_hash
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.proving.certificates import Certificate

TRIALS = 200
"""Trials of a rule that is right over real numbers: of rounding, infinities and NaN."""

SECONDS = 20.0
"""CPU seconds after which the prover gives up on a rule."""


def require_solver() -> None:
    """Raise an error if the solver is not installed.

    Raises:
        UsageError: EK280, it is not.
    """
    if find_spec("z3") is None:
        message = "proofs need the SMT solver z3, which is not installed"
        raise UsageError(Diagnostic(code="EK280", message=message, hint="pip install 'exirkit[proofs]'"))


def prove_rules(
    book: LoadedBook,
    only: Sequence[str] = (),
    *,
    bound: int | None = None,
    seconds: float = SECONDS,
    progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[Certificate]:
    """Try to prove the rules of a book, and yield what is shown of each.

    Args:
        book: A book without errors.
        only: Ids of rules; all when empty.
        bound: Sizes that have to be enumerated go up to it; None: rules that need that stay open.
        seconds: CPU seconds for a rule.
        progress: Is told of every rule: its id, its number, and how many there are.

    Raises:
        UsageError: EK280, the solver is not installed.
    """
    require_solver()
    rules = [rule for rule in book.rules if not only or rule.is_named_in(only)]
    for number, rule in enumerate(rules, 1):
        if progress is not None:
            progress(rule.id, number, len(rules))
        yield certificate_of(rule, book, bound=bound, seconds=seconds)


def certificate_of(
    rule: CompiledRule,
    book: LoadedBook,
    *,
    bound: int | None = None,
    seconds: float = SECONDS,
    most_dims: int | None = None,
) -> Certificate:
    """Return what is shown of a rule: a proof, values for which torch finds it wrong, or why there is neither."""
    from exirkit.patterns.proving.prover import prove
    from exirkit.patterns.proving.refutation import refuted, tried

    proof = prove(rule, bound=bound, seconds=seconds, most_dims=most_dims)
    wrong = refuted(rule, proof.model) if proof.status == "open" else None
    if proof.arithmetic == "reals":
        # Real numbers know nothing of rounding, infinities and NaN: what trials find there refutes the rule.
        wrong = tried(rule, TRIALS)
        if wrong is not None:
            proof = replace(proof, status="open", reason="it is right over real numbers only")
    return Certificate(
        rule=rule.id,
        hash=rule_text_hash(rule, book),
        status="refuted" if wrong is not None else proof.status,
        ranks=proof.ranks if wrong is None else "",
        arithmetic=proof.arithmetic if wrong is None else "",
        axioms=proof.axioms if wrong is None else (),
        paths=proof.paths if wrong is None else 0,
        digest=proof.digest if wrong is None else "",
        most_dims=proof.most_dims if wrong is None else None,
        reason=(proof.reason if wrong is None else wrong.text or "")[:2000] or None if proof.reason else None,
    )


def unconfirmed_certificate(
    certificate: Certificate, rule: CompiledRule, book: LoadedBook, *, seconds: float = 3 * SECONDS
) -> Diagnostic | None:
    """Prove a rule again, and return why its certificate does not hold, EK282; None if it does.

    Args:
        certificate: As it is stored.
        rule: The rule.
        book: Its book.
        seconds: CPU seconds; more than for the proof, so that a slower machine confirms it too.

    Raises:
        UsageError: EK280, the solver is not installed.
    """
    require_solver()
    why = _difference(certificate, rule, book, seconds)
    if why is None:
        return None
    message = f"the certificate of rule {rule.id} does not hold: {why}"
    hint = "make it again: exirkit rule prove BOOK --certificates FILE --update"
    return Diagnostic(code="EK282", message=message, hint=hint)


def _difference(certificate: Certificate, rule: CompiledRule, book: LoadedBook, seconds: float) -> str | None:
    if certificate.hash != rule_text_hash(rule, book):
        return "the text of the rule has changed since"
    if certificate.status not in ("proved", "bounded"):
        return None
    again = certificate_of(rule, book, seconds=seconds, most_dims=certificate.most_dims)
    for what in ("status", "ranks", "arithmetic", "paths", "digest"):
        stored, found = getattr(certificate, what), getattr(again, what)
        if stored != found:
            return f"{what} is {found!r}, not {stored!r}" + (f": {again.reason}" if again.reason else "")
    return None
