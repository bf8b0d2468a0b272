"""Books of rules: shipped ones, examples, those of strangers, and known-bad ones; each rule is judged as it should be.

What needs hundreds of trials per rule runs in `make test-all`. By default a shipped rule only has to be the one that
was accepted: its stored witnesses carry the hash of its text.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.patterns.rule_files import book, rule, rule_ids
from tests.thoroughness import TRIES_ALL

from exirkit.patterns import (
    backend_books,
    check_rule,
    read_witnesses,
    shipped_books,
    shipped_witnesses,
    stored_rule,
    witness_text,
)
from exirkit.patterns.checking.abstract_evaluation import abstract_findings
from exirkit.patterns.checking.near_misses import parts_of
from exirkit.patterns.checking.pattern_programs import fire
from exirkit.patterns.checking.trials.rule_trials import RuleTrials
from exirkit.patterns.checking.witnesses import replay, rule_text_hash
from exirkit.patterns.syntax.value_roots import INTERFACE

BOOKS = (*shipped_books(), *backend_books())
SHIPPED = rule_ids(*BOOKS)
SOUND = ("sound_rules", "sound_rules_2", "sound_rules_3")
UNSOUND = ("unsound_rules", "unsound_rules_2")
# Rules that did not change since they were accepted, as their witnesses say: fewer trials, and no search by default.
TRIALS = 200 if TRIES_ALL else 50


def of_rules(*names: str) -> pytest.MarkDecorator:
    """Return a test for every rule of some books."""
    rules = rule_ids(*names)
    return pytest.mark.parametrize(("name", "rule_id"), rules, ids=[rule_id for _, rule_id in rules])


# Quick


@pytest.mark.parametrize("name", BOOKS)
def test_shipped_book_is_the_one_that_was_accepted(name: str) -> None:
    loaded, witnesses = book(name), shipped_witnesses(name)
    assert not loaded.found
    assert loaded.book is not None
    assert witnesses is not None
    assert all(one.doc and one.doc.endswith(".") for one in loaded.book.rules)
    assert (
        [one.rule for one in witnesses.rules] == [one.id for one in loaded.rules] == [one for _, one in rule_ids(name)]
    )
    for one, stored in zip(loaded.rules, witnesses.rules, strict=True):
        assert stored.text == rule_text_hash(one, loaded), f"{one.id}: search again with --update"
        assert stored.samples >= 200
        assert [(miss.what, miss.text) for miss in stored.near_misses] == [
            (part.kind, part.text) for part in parts_of(one)
        ]
        skipped = {skip.what for skip in one.rule.verify.skip}
        kinds = {guard.text: guard.kind for guard in one.guards}
        for miss in stored.near_misses:
            if miss.what == "guard" and miss.outcome not in ("witness", "structural"):
                assert kinds[miss.text] != "sound" or miss.text in skipped, one.id


def test_ids_are_unique_across_books() -> None:
    ids = [rule_id for _, rule_id in SHIPPED]
    assert len(set(ids)) == len(ids)


def test_files_of_witnesses_are_as_they_are_written() -> None:
    folder = Path(__file__).parents[3] / "patterns" / "rules"
    assert {file.stem for file in folder.glob("witnesses/*.json")} == set(shipped_books())
    assert {f"backends/{file.stem}" for file in folder.glob("backends/witnesses/*.json")} == set(backend_books())
    for file in folder.glob("**/witnesses/*.json"):
        assert witness_text(read_witnesses(file).rules) == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["example_rules", *SOUND])
def test_books_of_others_load(name: str) -> None:
    assert not book(name).found
    assert len(book(name).rules) == len(rule_ids(name)) >= 17


# What is wrong with each, in words that its message must have.
REASONS = {
    "bad.et_scalar_to_tensor": "dtype int32 in place of float32",
    "bad.et_conv_bn": "differ",
    "bad.inductor_sdpa_permute": "differ",
    "bad.et_remove_dq_q": "-128 in place of -127",
    "bad.ignore_literals_alpha": "differ",
    "bad.upsample_size_only": "differ",
    "bad.addmm_beta0": "nan in place of",
}


@pytest.mark.parametrize("prefix", REASONS)
def test_known_bad_rule_is_rejected(prefix: str) -> None:
    (bad,) = [one for one in book("known_bad_rules").rules if one.id.startswith(prefix)]
    for seed in range(3):
        verdict = check_rule(bad, seed=seed)
        assert not verdict.is_accepted
        assert verdict.found[0].code in ("EK219", "EK240")
        if seed == 0:
            assert REASONS[prefix] in verdict.found[0].message


def test_rule_with_a_wrong_argument_does_not_load() -> None:
    (finding,) = book("known_bad_rules").errors
    assert finding.code in ("EK214", "EK221")
    assert "minimum" in finding.message
    assert finding.hint == "did you mean min?"
    assert (finding.location.line, finding.location.column) == (65, 34)


# Whole checks


@of_rules(*BOOKS)
def test_shipped_rule_is_accepted_with_its_witnesses(name: str, rule_id: str) -> None:
    witnesses = shipped_witnesses(name)
    stored = witnesses.of(rule_id) if witnesses else None
    assert stored is not None
    verdict = check_rule(rule(name, rule_id), trials=TRIALS, is_strict=True, stored=stored, is_fast=not TRIES_ALL)
    assert verdict.is_accepted, "\n".join(one.render() for one in verdict.found)
    assert verdict.positives is not None
    assert verdict.positives.passed >= TRIALS
    found, wrong = replay(rule(name, rule_id), stored)
    assert not wrong
    assert len(found) == len(stored.near_misses)


@of_rules("example_rules", *SOUND)
def test_sound_rule_is_accepted(name: str, rule_id: str) -> None:
    verdict = check_rule(rule(name, rule_id), trials=60 if name == "example_rules" else TRIALS)
    assert verdict.is_accepted, "\n".join(one.render() for one in verdict.found)


@of_rules(*UNSOUND)
def test_unsound_rule_is_rejected(name: str, rule_id: str) -> None:
    verdict = check_rule(rule(name, rule_id))
    (error,) = [one.code for one in verdict.found if one.severity == "error"]
    # EK241: no values are both what its types say and what its operators take.
    assert error in ("EK219", "EK240", "EK241")


@of_rules(*BOOKS, "example_rules", "sound_rules")
def test_sound_rule_is_accepted_without_values(name: str, rule_id: str) -> None:
    findings = abstract_findings(rule(name, rule_id))
    assert not [one for one in findings if one.severity == "error"], [one.render() for one in findings]


@of_rules(*BOOKS, "example_rules")
def test_rule_fires_on_a_program_made_from_itself(name: str, rule_id: str) -> None:
    compiled = rule(name, rule_id)
    if any(anchor.startswith("dim_order_ops.") for anchor in compiled.anchor_names):
        # torch.export decomposes these operators, and Edge restores them: tests of the whole pipeline let them fire.
        return
    if compiled.pattern.kind in INTERFACE or compiled.rule.graphs == "bodies":
        # Not applied to any program of this test: their trials run the engine on inputs, outputs and bodies.
        return
    trials = RuleTrials(compiled, seed=7)
    fired = seen = 0
    for number in range(1, 200):
        trial, _ = trials.trial(number, profile="normal")
        if trial is None:
            continue
        seen += 1
        report, problem = fire(trials, trial)
        assert problem is None, f"seed {trial.seed}: {problem}"
        assert not [one for one in report.rejections if one.is_fault], report.rejections
        fired += bool(report.journal)
        if seen >= (4 if TRIES_ALL else 1) and (fired or seen == 30):
            break
    assert fired, "it never fired"


@pytest.mark.parametrize("rule_id", ["canonicalize.permute-permute-merge", "fuse.add-relu", "simplify.mul-one-remove"])
def test_a_search_finds_the_same_witnesses_again(rule_id: str) -> None:
    (name,) = [name for name, one in SHIPPED if one == rule_id]
    verdict = check_rule(rule(name, rule_id))
    witnesses = shipped_witnesses(name)
    assert verdict.positives is not None
    assert witnesses is not None
    again = stored_rule(rule(name, rule_id), book(name), 0, verdict.positives.passed, verdict.near_misses)
    assert witness_text([again]) == witness_text(witnesses.only(rule_id).rules)


def test_guards_have_witnesses() -> None:
    found = {
        one.id: [each.text for each in check_rule(one, trials=20).near_misses if each.what == "guard" and each.witness]
        for one in book("example_rules").rules
        if one.guards
    }
    assert found["fold.conv_bn"] == ["users(c) == 1", "not tr"]
    assert found["fuse.sdpa"] == ["p == swap_last(rank(k))"]
    assert len(found["simplify.mul_one"]) == 3
    assert len(found["decompose.var"]) == 2
    assert found["dtype.collapse_to_copy"] == ["lossless(x.dtype, d1)"]
