"""Stored witnesses: each shipped rule has them, they fit its text, and they still show what they are about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exirkit.ir import ModelError
from exirkit.patterns import (
    CheckRequest,
    CheckSettings,
    check_book,
    check_books,
    parse_book,
    read_witnesses,
    stored_rule,
    witness_text,
)

BOOK = """rulebook: 1
rules:
- id: relu-of-abs
  vars: {x: "f32 [*S]", n: "int in [0, 3]"}
  match: return aten.pow.Tensor_Scalar(aten.abs.default(x), n)
  where: {expr: "n == 2", why: other powers keep the sign away}
  replace: return aten.mul.Tensor(x, x)
"""


def written(text: str, file: Path) -> dict[str, object]:
    """Check a book, write its witnesses, and return them as JSON."""
    book = parse_book(text)
    (verdict,) = check_book(book, trials=20).rules
    assert verdict.is_accepted
    file.write_text(witness_text([stored_rule(book.rules[0], book, 0, 20, verdict.near_misses)]))
    found: dict[str, object] = json.loads(file.read_text())
    return found


def test_witnesses_go_round(tmp_path: Path) -> None:
    file = tmp_path / "book.json"
    data = written(BOOK, file)
    near_misses = data["rules"][0]["near_misses"]  # type: ignore[index]
    assert near_misses[0]["what"] == "guard"
    assert near_misses[0]["values"]["n"] in ("0", "1", "3")
    witnesses = read_witnesses(file)
    for is_fast in (False, True):
        (verdict,) = check_book(parse_book(BOOK), trials=20, witnesses=witnesses, is_fast=is_fast).rules
        assert verdict.is_accepted
        assert not verdict.found
        assert verdict.near_misses[0].outcome == "witness"


def test_another_text_needs_other_witnesses(tmp_path: Path) -> None:
    written(BOOK, tmp_path / "book.json")
    witnesses = read_witnesses(tmp_path / "book.json")
    documented = BOOK.replace("  vars:", "  doc: A square has no sign.\n  vars:")
    assert check_book(parse_book(documented), trials=5, witnesses=witnesses).is_accepted
    for text in (BOOK.replace("[0, 3]", "[0, 4]"), BOOK.replace("relu-of-abs", "square-of-abs")):
        verdict = check_book(parse_book(text), trials=5, witnesses=witnesses)
        assert [one.code for one in verdict.rules[0].found] == ["EK272"]
        assert check_book(parse_book(text), trials=5, witnesses=witnesses, is_complete=False).is_accepted


def test_a_witness_that_shows_nothing_is_found(tmp_path: Path) -> None:
    data = written(BOOK, tmp_path / "book.json")
    rule = data["rules"][0]  # type: ignore[index]
    right = rule["near_misses"][0]["seed"]
    book = parse_book(BOOK)
    codes = []
    for number in range(1, 8):
        rule["near_misses"][0]["seed"] = f"0:{number}"
        (tmp_path / "other.json").write_text(json.dumps(data))
        verdict = check_book(book, trials=5, witnesses=read_witnesses(tmp_path / "other.json"), is_fast=True)
        codes.append([one.code for one in verdict.rules[0].found])
        assert f"0:{number}" != right or not codes[-1]
        # What cannot be trusted is searched again.
        assert verdict.rules[0].near_misses[0].outcome == "witness"
    assert ["EK273"] in codes
    rule["near_misses"][0]["text"] = "n == 1"
    (tmp_path / "other.json").write_text(json.dumps(data))
    verdict = check_book(book, trials=5, witnesses=read_witnesses(tmp_path / "other.json"))
    assert "`n == 2`" in verdict.rules[0].found[0].message


@pytest.mark.parametrize("text", ["", "[", "{}", '{"witnesses": 2}', '{"witnesses": 1, "rules": [{"rule": 5}]}'])
def test_damaged_files(text: str, tmp_path: Path) -> None:
    (tmp_path / "book.json").write_text(text)
    with pytest.raises(ModelError) as caught:
        read_witnesses(tmp_path / "book.json")
    assert caught.value.diagnostics[0].code == "EK274"


@pytest.mark.parametrize("kind", ["profit", "target"])
def test_a_guard_that_is_needed_is_not_called_profit(kind: str) -> None:
    text = BOOK.replace('"n == 2", why', f'"n == 2", kind: {kind}, why')
    for is_strict, severity in ((False, "warning"), (True, "error")):
        verdict = check_book(parse_book(text), trials=20, is_strict=is_strict)
        (finding,) = verdict.rules[0].found
        assert (finding.code, finding.severity) == ("EK271", severity)
        assert any(note.startswith("n: ") for note in finding.notes)
        assert verdict.is_accepted == (not is_strict)


def test_questions_about_the_graph_are_not_labels() -> None:
    text = BOOK.replace('"n == 2", why', "\"n == 2 and not target.has('pow')\", kind: target, why")
    (verdict,) = check_book(parse_book(text), trials=5, is_strict=True).rules
    assert [one.outcome for one in verdict.near_misses if one.what == "guard"] in ([], ["structural"])


def test_processes_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(BOOK)
    (tmp_path / "two.yaml").write_text(BOOK.replace("n == 2", "n >= 0"))
    requests = [CheckRequest(str(tmp_path / name)) for name in ("one.yaml", "two.yaml")]
    told: list[tuple[str, int, int]] = []
    alone, together = (
        check_books(requests, CheckSettings(trials=20), jobs=jobs, progress=lambda *what: told.append(what))
        for jobs in (1, 2)
    )
    assert told == [("relu-of-abs", 1, 2), ("relu-of-abs", 2, 2)] * 2
    assert [one.is_accepted for one in alone] == [True, False]
    for one, other in zip(alone, together, strict=True):
        for verdict in (*one.rules, *other.rules):
            verdict.seconds = 0.0
        assert one == other
