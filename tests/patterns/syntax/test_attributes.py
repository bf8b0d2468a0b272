"""Attributes of calls: declared with a meaning, written, matched, read, carried over, and never lost in silence."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.patterns.engine_runs import Whole
from tests.patterns.syntax import python_rules

from exirkit import to_edge
from exirkit.ir import ATTRIBUTE_KEYS, GraphEditor, copy_program
from exirkit.passes import MergeEqualNodes
from exirkit.patterns import LoadedBook, RuleEngine, check_book, load_book, parse_book, with_meanings, write_book
from exirkit.patterns.checking.near_misses import NearMisses
from exirkit.patterns.checking.pattern_execution import shapes_of
from exirkit.patterns.checking.pattern_programs import fire
from exirkit.patterns.checking.trials.attributes import with_drawn_attributes
from exirkit.patterns.checking.trials.rule_trials import RuleTrials

HEAD = """rulebook: 1
attributes:
  act: {lo: float, hi: float, key: LIMITS, means: "aten.clamp.default(result, lo, hi)"}
  tag: {text: str, key: TAG}
rules:
"""
FUSE = """- id: fuse
  vars: {x: "f32 [~S]", y: "f32 [~S]", lo: float, hi: float}
  match: |
    s = aten.add.Tensor(x, y)
    return aten.hardtanh.default(s, lo, hi)
  where: [users(s) == 1, "no(s, act)"]
  replace: return aten.add.Tensor(x, y) @ act(lo, hi)
"""
UNFUSE = """- id: unfuse
  vars: {x: "f32 [~S]", y: "f32 [~S]", lo: float, hi: float}
  match: return aten.add.Tensor(x, y) @ act(lo, hi)
  replace: return aten.clamp.default(aten.add.Tensor(x, y), lo, hi)
  keep: {act: none}
"""
AGAIN = """- id: again
  vars: {x: "f32 [*S]", lo: float, hi: float}
  match: return aten.clamp.default(x @ act(lo, hi), lo, hi)
  replace: return x
"""
MAYBE = """- id: maybe
  vars: {x: "f32 [N, M]", y: "f32 [N, M]", lo: float, hi: float}
  match: return aten.permute_copy.default(aten.add.Tensor(x, y) @ opt(act(lo, hi)), [1, 0])
  replace: |
    u, v = aten.permute_copy.default(x, [1, 0]), aten.permute_copy.default(y, [1, 0])
    return aten.add.Tensor(u, v) @ opt(act(lo, hi))
"""
READ = """- id: read
  vars: {x: "f32 [*S]", lo: "float in [-2, 0]", hi: "float in [1, 3]"}
  match: return aten.relu.default(x @ act(lo, hi))
  where: attr(x, act).lo >= 0.0
  replace: return x
"""
X, Y = torch.randn(3, 4), torch.randn(3, 4)


def book_of(*rules: str) -> LoadedBook:
    return parse_book(HEAD + "".join(rules), "book.yaml")


def limited(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.hardtanh(x + y, -0.5, 0.25)


def run(
    book: LoadedBook, function: Callable[..., Any], *given: torch.Tensor
) -> tuple[int, torch.export.ExportedProgram]:
    """Apply a book in Edge; what the result means has to be what the function computes."""
    assert not book.found, [one.render() for one in book.found]
    program = to_edge(torch.export.export(Whole(function), given)).exported_program()
    editor = GraphEditor(copy_program(program))
    report = RuleEngine(book.rules).run(editor)
    meant = with_meanings(editor.program, book.attributes.values())
    torch.testing.assert_close(meant.module()(*given), function(*given))
    return len(report.journal), editor.program


def held(program: torch.export.ExportedProgram) -> list[tuple[str, dict[str, Any]]]:
    return [(node.name, node.meta["LIMITS"]) for node in program.graph.nodes if "LIMITS" in node.meta]


def test_an_attribute_takes_the_place_of_a_call() -> None:
    times, program = run(book_of(FUSE), limited, X, Y)
    (found,) = held(program)
    assert times == 1
    assert found[1] == {"lo": -0.5, "hi": 0.25}
    assert not [node for node in program.graph.nodes if "hardtanh" in str(node.target) or "clamp" in str(node.target)]
    # The graph alone computes something else: a runtime has to know the attribute.
    assert not torch.equal(program.module()(X, Y), limited(X, Y))


def test_a_condition_keeps_a_second_attribute_away() -> None:
    def twice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.hardtanh(limited(x, y), -0.1, 0.1)

    times, program = run(book_of(FUSE), twice, X, Y)
    assert (times, len(held(program))) == (1, 1)


def test_one_rule_reads_what_another_has_written() -> None:
    times, program = run(book_of(FUSE, UNFUSE.replace("vars", "priority: -1\n  measure: once\n  vars")), limited, X, Y)
    assert times >= 2
    del program


def test_a_limit_that_is_there_already_goes() -> None:
    def twice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return limited(x, y).clamp(-0.5, 0.25)

    times, program = run(book_of(FUSE, AGAIN), twice, X, Y)
    assert times == 2
    assert len([node for node in program.graph.nodes if node.op == "call_function"]) == 1


@pytest.mark.parametrize(("lo", "fires"), [(0.0, 2), (-0.5, 1)])
def test_fields_are_read_in_conditions(lo: float, fires: int) -> None:
    def positive(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.hardtanh(x + y, lo, 2.0).relu()

    assert run(book_of(FUSE, READ), positive, X, Y)[0] == fires


def test_what_may_be_missing_is_carried_over() -> None:
    assert run(book_of(MAYBE), lambda x, y: (x + y).t(), X, Y)[0] == 1
    times, program = run(book_of(FUSE, MAYBE), lambda x, y: limited(x, y).t(), X, Y)
    assert (times, len(held(program))) == (2, 1)


def test_a_rule_that_knows_nothing_of_an_attribute_does_not_lose_it() -> None:
    swap = """- id: swap
  vars: {x: "f32 [N, M]", y: "f32 [N, M]"}
  measure: once
  match: return aten.permute_copy.default(aten.add.Tensor(x, y), [1, 0])
  replace: return aten.add.Tensor(aten.permute_copy.default(x, [1, 0]), aten.permute_copy.default(y, [1, 0]))
"""
    other = parse_book("rulebook: 1\nrules:\n" + swap, "other.yaml")
    _, program = run(book_of(FUSE), lambda x, y: limited(x, y).t(), X, Y)
    report = RuleEngine(other.rules).run(GraphEditor(copy_program(program)))
    assert not report.journal
    assert run(other, lambda x, y: (x + y).t(), X, Y)[0] == 1


@pytest.mark.parametrize("rule", [FUSE, UNFUSE, AGAIN, MAYBE, READ])
def test_right_rules_are_accepted_and_fire_on_a_program_of_their_own(rule: str) -> None:
    book = book_of(rule)
    verdict = check_book(book, trials=60)
    assert verdict.is_accepted, [one.render() for each in verdict.rules for one in each.found]
    trials = RuleTrials(book.rules[0])
    trial = next(found for number in range(1, 50) if (found := trials.trial(number, profile="normal")[0]) is not None)
    report, problem = fire(trials, trial)
    assert (len(report.journal), problem) == (1, None)


@pytest.mark.parametrize("rule", [
    FUSE.replace("@ act(lo, hi)", "@ act(lo, lo)"),
    FUSE.replace(" @ act(lo, hi)", ""),
    FUSE.replace(', "no(s, act)"', "") + "  keep: {act: none}\n",
    UNFUSE.replace("default(aten.add.Tensor(x, y), lo, hi)", "default(aten.add.Tensor(x, y), lo, lo)"),
    UNFUSE.replace("aten.clamp.default(aten.add.Tensor(x, y), lo, hi)", "aten.add.Tensor(x, y)"),
    READ.replace("  where: attr(x, act).lo >= 0.0\n", ""),
    MAYBE.replace("[1, 0]) @ opt(act(lo, hi)), [1, 0])", "[1, 0]), [1, 0])").replace(" @ opt(act(lo, hi))\n", "\n", 1),
])  # fmt: skip
def test_wrong_rules_are_rejected(rule: str) -> None:
    book = book_of(rule)
    assert book.errors or not check_book(book, trials=60).is_accepted


def test_conditions_and_attributes_have_witnesses() -> None:
    found = {(one.what, one.text): one.outcome for one in NearMisses(RuleTrials(book_of(FUSE).rules[0])).all()}
    assert found["guard", "no(s, act)"] == "witness"
    found = {(one.what, one.text): one.outcome for one in NearMisses(RuleTrials(book_of(UNFUSE).rules[0])).all()}
    assert found["attribute", "aten.add.Tensor @ act"] == "witness"
    found = {(one.what, one.text): one.outcome for one in NearMisses(RuleTrials(book_of(AGAIN).rules[0])).all()}
    assert found["attribute", "x @ act"] == "witness"
    found = {(one.what, one.text): one.outcome for one in NearMisses(RuleTrials(book_of(READ).rules[0])).all()}
    assert found["guard", "attr(x, act).lo >= 0.0"] == "witness"
    assert found["attribute", "x @ act"] == "witness"


def test_what_is_kept_is_tried() -> None:
    neg = """- id: neg
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(aten.neg.default(x))
  replace: return aten.alias_copy.default(x)
  keep: {WHAT}
"""
    (verdict,) = check_book(book_of(neg.replace("WHAT", "act: last")), trials=60).rules
    assert not verdict.is_accepted
    assert any("act of aten.neg.default" in note for one in verdict.found for note in one.notes)
    # A mark that changes no value can be handed on; the rule is opaque in it.
    (verdict,) = check_book(book_of(neg.replace("WHAT", "tag: first")), trials=60).rules
    assert verdict.is_accepted
    assert any("@ tag" in one.message for one in verdict.found if one.code == "EK247")


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_calls_with_attributes_are_tried_about_as_often_as_calls_without(calls: int) -> None:
    match = "x"
    for _ in range(calls):
        match = f"aten.neg.default({match})"
    text = f"""- id: neg
  vars: {{x: "f32 [*S]"}}
  match: return {match}
  replace: return aten.alias_copy.default(x)
  keep: {{tag: first}}
"""
    (rule,) = book_of(text).rules
    (shape,) = shapes_of(rule.pattern)
    drawn = [with_drawn_attributes(rule, shape, random.Random(seed), None) for seed in range(400)]
    counts = Counter(len(one.carried) for one in drawn)
    # None, one, and two where there are two calls; each of them often enough.
    assert sorted(counts) == list(range(min(calls, 2) + 1))
    assert counts[0] / len(drawn) == pytest.approx(0.6, abs=0.15)
    assert min(counts.values()) / len(drawn) > 0.15
    assert {attribute.name for one in drawn for attribute, _ in one.carried.values()} == {"tag"}


@pytest.mark.parametrize(("which", "expected"), [("first", "a"), ("last", "b")])
def test_first_and_last(which: str, expected: str) -> None:
    rule = """- id: neg
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(aten.exp.default(x))
  replace: return aten.neg.default(aten.exp.default(aten.alias_copy.default(x)))
  measure: once
  keep: {tag: WHICH}
"""
    book = book_of(rule.replace("WHICH", which))
    program = torch.export.export(Whole(lambda x: x.exp().neg()), (X,))
    for node, text in zip((one for one in program.graph.nodes if one.op == "call_function"), "ab", strict=True):
        book.attributes["tag"].write(node, {"text": text}, lambda node, key, value: node.meta.update({key: value}))
    editor = GraphEditor(program)
    assert RuleEngine(book.rules).run(editor).journal
    (found,) = [node.meta["TAG"] for node in editor.graph.nodes if ATTRIBUTE_KEYS in node.meta]
    assert found == {"text": expected}


@pytest.mark.parametrize(("rule", "message"), [
    (UNFUSE.replace("act(lo, hi)", "limit(lo, hi)"), "attribute 'limit' is not declared"),
    (UNFUSE.replace("act(lo, hi)", "act(lo)"), "act has the fields lo, hi"),
    (UNFUSE.replace("act(lo, hi)", "act(lo, high=hi)"), "act has the fields lo, hi"),
    (UNFUSE.replace("act(lo, hi)", "act"), "behind `@` stands an attribute"),
    (UNFUSE.replace("  keep: {act: none}\n", ""), "attribute act of a matched call is lost"),
    (UNFUSE.replace("aten.add.Tensor(x, y) @ act", "x.dtype @ act"), "cannot be matched"),
    (MAYBE.replace("opt(act(lo, hi)), [1, 0])", "opt(act(0.0, hi)), [1, 0])"), "is a name"),
    (UNFUSE.replace("@ act(lo, hi)", "@ act(lo, hi) @ act(lo, hi)"), "a call has one attribute"),
    (FUSE.replace("aten.add.Tensor(x, y) @ act", "x @ act"), "given to a new call"),
    (FUSE.replace("no(s, act)", "no(s)"), "no(y, act)"),
    (FUSE.replace("no(s, act)", "no(s, limit)"), "is not declared"),
    (READ.replace(".lo", ".low"), "no field 'low'"),
    (FUSE.replace("users(s) == 1", "'x @ act(lo, hi)'"), "written in `replace`"),
    (UNFUSE.replace("act: none", "limit: none"), "which is not declared"),
])  # fmt: skip
def test_wrong_uses(rule: str, message: str) -> None:
    assert any(message in one.message for one in book_of(rule).found), [one.message for one in book_of(rule).found]


@pytest.mark.parametrize(("declaration", "code"), [
    ("{lo: float, key: K, means: 'aten.clamp.default(result, low, None)'}", "EK299"),
    ("{lo: float, key: K, means: 'aten.full.default([2], lo)'}", "EK299"),
    ("{lo: 'f32 [N]', key: K, means: result}", "EK299"),
    ("{lo: flaot, key: K, means: result}", "EK216"),
    ("{lo: float, means: result}", "EK202"),
    ("{lo: float, key: K, means: 'aten.clammp.default(result, lo)'}", "EK221"),
])  # fmt: skip
def test_wrong_declarations(declaration: str, code: str) -> None:
    book = parse_book(f"rulebook: 1\nattributes:\n  act: {declaration}\n", "book.yaml")
    assert [one.code for one in book.found] == [code], [one.render() for one in book.found]


def test_books_with_attributes_survive_writing() -> None:
    book = book_of(FUSE, UNFUSE)
    assert book.book is not None
    assert parse_book(write_book(book.book)).book == book.book


def test_equal_calls_with_other_attributes_are_not_merged() -> None:
    def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return limited(x, y), x + y

    book = book_of(FUSE)
    _, program = run(book, both, X, Y)
    merged = MergeEqualNodes()(program).exported_program
    meant = with_meanings(merged, book.attributes.values())
    torch.testing.assert_close(meant.module()(X, Y), both(X, Y))


def test_attributes_of_other_code_are_read() -> None:
    attribute = load_book("backends/xnnpack").attributes["act"]
    program = torch.export.export(Whole(torch.neg), (X,))
    node = next(one for one in program.graph.nodes if one.op == "call_function")
    node.meta["XNN_FUSED_ACTIVATION"] = SimpleNamespace(output_min=0, output_max="+inf")
    assert attribute.read(node) == {"lo": 0.0, "hi": float("inf")}


def test_python_form_is_the_same_rule() -> None:
    loaded = python_rules.LIMITS.load()
    assert not loaded.found
    assert run(loaded, limited, X, Y)[0] == 1
    assert loaded.rules[0].pattern == book_of(FUSE).rules[0].pattern
