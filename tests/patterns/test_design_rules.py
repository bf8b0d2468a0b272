"""The rules that the language was designed with: good ones are accepted, bad ones rejected for their reasons."""

from __future__ import annotations

from pathlib import Path

import pytest

from exirkit.patterns import LoadedBook, check_rule, load_book

HERE = Path(__file__).parent
GOOD = load_book(HERE / "example_rules.yaml")
BAD = load_book(HERE / "known_bad_rules.yaml")

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


def test_all_good_rules_load() -> None:
    assert not GOOD.found
    assert len(GOOD.rules) == 29


@pytest.mark.slow
@pytest.mark.parametrize("name", [rule.id for rule in GOOD.rules])
def test_good_rule_is_accepted(name: str) -> None:
    verdict = check_rule(GOOD.rule(name), trials=60)
    assert verdict.is_accepted, "\n".join(one.render() for one in verdict.found)
    assert verdict.positives is not None
    assert verdict.positives.passed == 60


@pytest.mark.parametrize("prefix", REASONS)
def test_bad_rule_is_rejected(prefix: str) -> None:
    (rule,) = [one for one in BAD.rules if one.id.startswith(prefix)]
    for seed in range(3):
        verdict = check_rule(rule, seed=seed)
        assert not verdict.is_accepted
        assert verdict.found[0].code in ("EK219", "EK240")
        if seed == 0:
            assert REASONS[prefix] in verdict.found[0].message


def test_rule_with_a_wrong_argument_does_not_load() -> None:
    (finding,) = BAD.errors
    assert finding.code == "EK214" or finding.code == "EK221"
    assert "minimum" in finding.message
    assert finding.hint == "did you mean min?"
    assert (finding.location.line, finding.location.column) == (65, 34)


def guards_with_witness(book: LoadedBook) -> dict[str, list[str]]:
    """Return the guards of every rule whose violation was shown to matter."""
    return {
        rule.id: [one.text for one in check_rule(rule, trials=20).near_misses if one.what == "guard" and one.witness]
        for rule in book.rules
        if rule.guards
    }


@pytest.mark.slow
def test_guards_have_witnesses() -> None:
    found = guards_with_witness(GOOD)
    assert found["fold.conv_bn"] == ["users(c) == 1", "not tr"]
    assert found["fuse.sdpa"] == ["p == swap_last(rank(k))"]
    assert len(found["simplify.mul_one"]) == 3
    assert len(found["decompose.var"]) == 2
    assert found["dtype.collapse_to_copy"] == ["lossless(x.dtype, d1)"]
