"""Every rule fires on a program made from itself, and the program computes the same afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from exirkit.patterns import load_book, shipped_books
from exirkit.patterns.checking.pattern_programs import fire
from exirkit.patterns.checking.trials import RuleTrials

BOOKS = [*shipped_books(), str(Path(__file__).parent / "example_rules.yaml")]
# torch.export takes these operators apart, and Edge puts them together again: tests of the chain let such rules fire.
ONLY_IN_EDGE = "dim_order_ops."
RULES = [
    (book, rule.id)
    for book in BOOKS
    for rule in load_book(book).rules
    if not any(name.startswith(ONLY_IN_EDGE) for name in rule.anchor_names)
]


@pytest.mark.slow
@pytest.mark.parametrize(("book", "rule"), RULES, ids=[rule for _, rule in RULES])
def test_rule_fires_on_a_program_made_from_itself(book: str, rule: str) -> None:
    trials = RuleTrials(load_book(book).rule(rule), seed=7)
    fired = seen = 0
    for number in range(1, 200):
        trial, _ = trials.trial(number, profile="normal")
        if trial is None:
            continue
        seen += 1
        report, problem = fire(trials, trial)
        assert problem is None, f"seed {trial.seed}: {problem}"
        assert not [one for one in report.refusals if one.is_fault], report.refusals
        fired += bool(report.journal)
        if seen >= 4 and (fired or seen == 30):
            break
    assert fired, "it never fired"
