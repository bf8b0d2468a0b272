"""Rules as strangers write them: the right ones are accepted, those that only look right are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from exirkit.patterns import check_rule, load_book

HERE = Path(__file__).parent
SOUND = {name: load_book(HERE / f"{name}.yaml") for name in ("sound_rules", "sound_rules_2", "sound_rules_3")}
UNSOUND = {name: load_book(HERE / f"{name}.yaml") for name in ("unsound_rules", "unsound_rules_2")}


@pytest.mark.parametrize("book", SOUND)
def test_the_books_load(book: str) -> None:
    assert not SOUND[book].found


@pytest.mark.slow
@pytest.mark.parametrize(("book", "name"), [(book, rule.id) for book in SOUND for rule in SOUND[book].rules])
def test_sound_rule_is_accepted(book: str, name: str) -> None:
    verdict = check_rule(SOUND[book].rule(name))
    assert verdict.is_accepted, "\n".join(one.render() for one in verdict.found)


@pytest.mark.slow
@pytest.mark.parametrize(("book", "name"), [(book, rule.id) for book in UNSOUND for rule in UNSOUND[book].rules])
def test_unsound_rule_is_rejected(book: str, name: str) -> None:
    verdict = check_rule(UNSOUND[book].rule(name))
    (error,) = [one.code for one in verdict.found if one.severity == "error"]
    # EK241: no values are both what its types say and what its operators take.
    assert error in ("EK219", "EK240", "EK241")
