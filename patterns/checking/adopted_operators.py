"""Operators of a book that another library has registered: what they compute is what the book says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from exirkit.ir import Diagnostic, SourceText
from exirkit.patterns.books.loading import LoadedBook
from exirkit.patterns.books.unfusing import unfuse
from exirkit.patterns.checking.trials.rule_trials import RuleTrials
from exirkit.patterns.operators.defined import is_adopted

_TRIALS = 24


def adopted_findings(book: LoadedBook, place: Callable[[str], SourceText], *, seed: int = 0) -> Iterator[Diagnostic]:
    """Yield what is wrong with operators whose kernels are another library's.

    The definition is tried as a rule: the call, with the kernel of the library, and the program of the book.

    Args:
        book: The book, without errors.
        place: Place of the definition of an operator, by its name in the book.
        seed: Of the values.

    Yields:
        EK236, an operator computes something else than its definition; EK237, a warning, it cannot be tried.
    """
    adopted = {name for name, op in book.operators.items() if is_adopted(op) and name in _own(book)}
    if not adopted:
        return
    rules = {rule.id.removeprefix("unfuse."): rule for rule in unfuse(book).rules}
    for name in sorted(adopted):
        rule = rules.get(name)
        report = None if rule is None else RuleTrials(rule, seed=seed).positives(_TRIALS)
        if report is None or (report.passed == 0 and not report.counterexamples):
            reason = "rules cannot name its arguments" if report is None else report.main_reason()
            message = f"nothing shows whether {name}, which another library has registered, means what the book says"
            found = place(name).diagnostic("EK237", f"{message}: {reason}")
            yield found.model_copy(update={"severity": "warning"})
        elif report.counterexamples:
            example = report.counterexamples[0]
            yield place(name).diagnostic(
                "EK236",
                f"{name} computes something else than its definition: {example.problem}",
                notes=("another library has registered it", *(f"{key}: {one}" for key, one in example.values.items())),
                hint="write what it computes, or choose another namespace",
            )


def _own(book: LoadedBook) -> set[str]:
    return set() if book.book is None else set(book.book.ops)
