"""Rules as strangers write them: the right ones are accepted, those that only look right are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from exirkit.patterns import check_rule, load_book

HERE = Path(__file__).parent
SOUND = load_book(HERE / "sound_rules.yaml")
UNSOUND = load_book(HERE / "unsound_rules.yaml")


def test_the_books_load() -> None:
    assert not SOUND.found
    assert not UNSOUND.found


@pytest.mark.slow
@pytest.mark.parametrize("name", [rule.id for rule in SOUND.rules])
def test_sound_rule_is_accepted(name: str) -> None:
    verdict = check_rule(SOUND.rule(name))
    assert verdict.is_accepted, "\n".join(one.render() for one in verdict.found)


@pytest.mark.slow
@pytest.mark.parametrize("name", [rule.id for rule in UNSOUND.rules])
def test_unsound_rule_is_rejected(name: str) -> None:
    verdict = check_rule(UNSOUND.rule(name))
    (error,) = [one.code for one in verdict.found if one.severity == "error"]
    assert error in ("EK219", "EK240")
