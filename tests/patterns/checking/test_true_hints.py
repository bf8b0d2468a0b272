"""Diagnostics of a wrong rule point at what is wrong, and give the true reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from exirkit.ir import Diagnostic, UsageError
from exirkit.patterns import LoadedBook, check_book, load_book
from exirkit.patterns.checking.trials.rule_trials import PositiveReport

HEAD = "rulebook: 1\nrules:\n"


def loaded(rule: str, path: Path) -> LoadedBook:
    file = path / "book.yaml"
    file.write_text(HEAD + rule)
    return load_book(file)


def found(rule: str, path: Path) -> Diagnostic:
    (one,) = loaded(rule, path).errors
    return one


def test_none_in_a_pattern_is_none(tmp_path: Path) -> None:
    book = loaded(
        "- id: my.rule\n  vars: {x: 'f32 [*S]'}\n  match: return aten.clamp.default(x, none, 3.0)\n"
        "  replace: return aten.clamp.default(x, None, 3.0)\n",
        tmp_path,
    )
    assert not book.errors
    assert [one.id for one in book.rules] == ["my.rule"]


def test_a_wrong_reference_in_a_type_is_shown_where_it_stands(tmp_path: Path) -> None:
    wrong = found(
        "- id: my.rule\n  vars:\n    x: f32 [*S]\n    p: perm of z\n"
        "  match: return aten.permute.default(x, p)\n  replace: return x\n",
        tmp_path,
    )
    assert wrong.code == "EK216"
    assert (wrong.location.line, wrong.location.text) == (6, "    p: perm of z")
    assert wrong.location.column == len("    p: perm of z")


@pytest.mark.parametrize(
    ("rule", "message", "line", "hint"),
    [
        (
            "- id: my.rule\n  vars: {x: 'f32 [N]'}\n  match: return aten.relu.default(x)\n  where: [N == 77777]\n"
            "  replace: return x\n",
            "201 times `N == 77777` is False",
            6,
            "say in `vars` what `N == 77777` demands",
        ),
        (
            "- id: my.rule\n  vars: {x: 'f32 [*S]', d: 'int in [5, 9]'}\n  match: return aten.softmax.int(x, d)\n"
            "  replace: return x\n",
            "201 times the pattern raises IndexError: Dimension out of range",
            3,
            "narrow `vars` to what the operators take",
        ),
    ],
)
def test_a_rule_that_cannot_be_tried(rule: str, message: str, line: int, hint: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    file = tmp_path / "book.yaml"
    file.write_text(HEAD + rule)
    (verdict,) = check_book(load_book(file)).rules
    one = next(each for each in verdict.found if each.code == "EK241")
    assert message in one.message
    assert one.location.line == line
    assert str(one.hint).startswith(hint)


def test_reasons_that_differ_in_numbers_are_one() -> None:
    counts = {f"sizes {number} and {number + 1} differ": 1 for number in range(50)}
    report = PositiveReport(rejected=Counter({"a reduction over nothing": 20, **counts}))
    assert report.reasons() == "50 times sizes 0 and 1 differ; 20 times a reduction over nothing"
    assert report.main_reason() == "sizes 0 and 1 differ"


def test_a_book_says_which_rules_it_has(tmp_path: Path) -> None:
    rules = "".join(
        f"- id: {name}\n  vars: {{x: 'f32 [*S]'}}\n  match: return aten.{name}.default(x)\n  replace: return x\n"
        for name in ("relu", "neg")
    )
    with pytest.raises(UsageError) as error:
        loaded(rules, tmp_path).rule("something")
    assert error.value.diagnostics[0].hint == "it has relu, neg"


def test_a_key_in_the_wrong_place_is_not_suggested_again(tmp_path: Path) -> None:
    wrong = found(
        "- id: my.rule\n  vars: {x: 'f32 [*S]'}\n  match: return aten.relu.default(x)\n  when: [S == 3]\n"
        "  replace: return x\n",
        tmp_path,
    )
    assert (wrong.code, wrong.message, wrong.hint) == ("EK202", "unknown key 'when'", "did you mean where?")


def test_a_name_like_that_of_a_shipped_book_lists_them() -> None:
    with pytest.raises(FileNotFoundError, match=r"no shipped book .did you mean algebra. there is algebra, attention"):
        load_book("algebr")
    with pytest.raises(FileNotFoundError, match="No such file"):
        load_book("algebr.yaml")
