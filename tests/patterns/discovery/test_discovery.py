"""Rules from enumerated graphs: what is found, what is not taken for a rule, and what vocabularies cannot say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from exirkit.ir import UsageError
from exirkit.patterns import (
    Discovered,
    Discovery,
    KernelCost,
    Target,
    Vocabulary,
    check_book,
    discovered_book_text,
    parse_book,
    read_target,
    read_vocabulary,
    shipped_vocabularies,
)
from exirkit.patterns.discovery.enumeration import Enumeration
from exirkit.patterns.discovery.terms import Term, matches

SIZES = {"*S": ((5, 8), (7, 6), (64, 256))}
HOST = read_target("official_host")


def words(*operators: str, variables: dict[str, str] | None = None, sizes: object = None) -> Vocabulary:
    data = {
        "vocabulary": 1,
        "name": "words",
        "doc": "Of a test.",
        "sizes": sizes or SIZES,
        "variables": variables or {"x": "f32 [*S]", "y": "f32 [*S]"},
        "operators": operators,
    }
    return Vocabulary.model_validate(data)


def found(vocabulary: Vocabulary, calls: int = 2, **options: object) -> tuple[list[Discovered], Discovery]:
    discovery = Discovery(vocabulary, HOST, **options)  # type: ignore[arg-type]
    return list(discovery.run(calls)), discovery


def texts(rules: list[Discovered]) -> dict[str, str]:
    return {one.candidate.pattern.text: one.candidate.replacement.text for one in rules}


def test_the_cheaper_graph_takes_the_place() -> None:
    rules, discovery = found(words("aten.abs.default(_)", "aten.mul.Tensor(_, _)"))
    assert texts(rules)["aten.mul.Tensor(aten.abs.default(x), aten.abs.default(x))"] == "aten.mul.Tensor(x, x)"
    assert discovery.tally.known >= 1, "the absolute value of an absolute value is known"
    assert all(one.candidate.pattern_ns > one.candidate.replacement_ns for one in rules)


def test_graphs_of_three_calls_share_what_is_used_twice() -> None:
    rules, _ = found(words("aten.abs.default(_)", "aten.mul.Tensor(_, _)"), 3)
    given = texts(rules)
    assert (
        given["aten.mul.Tensor(aten.abs.default(x), aten.abs.default(y))"] == "aten.abs.default(aten.mul.Tensor(x, y))"
    )
    # No rule is an instance of one that was found before it.
    slow = [one.candidate.pattern for one in rules]
    assert not [(one, other) for place, other in enumerate(slow) for one in slow[:place] if matches(one, other)]


def test_what_several_calls_use_is_written_once() -> None:
    vocabulary = words("aten.exp.default(_)", "aten.mul.Tensor(_, _)")
    exp, mul = vocabulary.templates
    x = Term("x")
    inner = Term("", exp, (x,))
    squared = Term("", mul, (inner, inner))
    assert squared.size == 2
    assert squared.statements({}) == "t0 = aten.exp.default(x)\nreturn aten.mul.Tensor(t0, t0)"
    value = torch.tensor([0.5, -1.0])
    assert torch.equal(squared.compute({"x": value}), value.exp() * value.exp())


def test_instances_are_recognized_in_either_order() -> None:
    vocabulary = words("aten.maximum.default(_, _)", "aten.sub.Tensor(_, _)")
    largest, minus = vocabulary.templates
    x, y = Term("x"), Term("y")
    general = Term("", minus, (Term("", largest, (x, y)), x))
    assert matches(general, Term("", minus, (Term("", largest, (x, y)), y)))
    assert not matches(general, Term("", minus, (x, Term("", largest, (x, y)))))
    assert not matches(Term("", minus, (x, x)), Term("", minus, (x, y)))


def test_numbers_and_shapes_become_variables_where_trials_allow_it() -> None:
    sizes = {"B": (3, 5, 8), "M": (4, 6, 64), "N": (5, 7, 96)}
    operators = ("aten.select_copy.int(_, 1, 0)", "aten.mul.Scalar(_, 0.5)")
    rules, _ = found(words(*operators, variables={"x": "f32 [B, M, N]"}, sizes=sizes))
    rule = next(one.rule for one in rules if "select" in one.candidate.pattern.text)
    assert rule.vars == {"x": "f32 [*S]", "f0": "scalar", "i1": "int"}
    assert rule.match == "return aten.select_copy.int(aten.mul.Scalar(x, f0), 1, i1)"
    assert rule.replace == "return aten.mul.Scalar(aten.select_copy.int(x, 1, i1), f0)"


def test_what_agrees_on_samples_alone_is_rejected() -> None:
    # Halves of the few samples are all below one.
    sizes = {"*S": ((2, 2), (2, 3), (64, 256))}
    operators = ("aten.mul.Scalar(_, 0.5)", "aten.clamp.default(_, -9.0, 9.0)", "aten.relu.default(_)")
    rules, discovery = found(words(*operators, variables={"x": "f32 [*S]"}, sizes=sizes))
    assert discovery.tally.rejected > 0
    assert "aten.clamp.default(aten.mul.Scalar(x, 0.5), -9.0, 9.0)" not in texts(rules)


def test_a_tolerance_gives_up_no_infinities() -> None:
    sizes = {"M": (5, 7, 64), "N": (6, 4, 256)}
    operators = ("aten.amax.default(_, [0], True)", "aten.add.Tensor(_, _)", "aten.neg.default(_)")
    rules, discovery = found(words(*operators, variables={"r": "f32 [M, 1]", "c": "f32 [N]"}, sizes=sizes))
    # Of an infinity and one of the other sign among others the sum is NaN, and so is the greatest of the sums.
    assert "aten.amax.default(aten.add.Tensor(c, r), [0], True)" not in texts(rules)
    assert discovery.tally.rejected > 0
    assert rules


def test_a_book_of_what_was_found_passes_the_check_and_is_the_same_again() -> None:
    vocabulary = words("aten.neg.default(_)", "aten.exp.default(_)", "aten.maximum.default(_, _)")
    made = [discovered_book_text([vocabulary], found(vocabulary)[0]) for _ in range(2)]
    assert made[0] == made[1]
    book = parse_book(made[0], "found.yaml").require_valid()
    assert len(book.rules) >= 2
    verdict = check_book(book, seed=7)
    assert all(one.is_accepted for one in verdict.rules)
    # Of a smaller book that finds the same no rule is known.
    assert all(rule.rule.choose == "cost" for rule in book.rules)


def test_proofs_come_with_the_rules() -> None:
    rules, _ = found(words("aten.neg.default(_)", "aten.abs.default(_)", "aten.maximum.default(_, _)"), proves=True)
    known = {one.candidate.pattern.text: one.certificate for one in rules}
    certificate = known["aten.maximum.default(aten.neg.default(x), x)"]
    assert certificate is not None
    assert certificate.is_of_all_ranks


def test_costs_decide_the_direction() -> None:
    vocabulary = words("aten.neg.default(_)", "aten.abs.default(_)", "aten.maximum.default(_, _)")
    fast, slow = KernelCost(call_ns=1.0, element_ns=0.1), KernelCost(call_ns=1.0, element_ns=50.0)
    kernels = {"aten.neg.default": fast, "aten.abs.default": slow, "aten.maximum.default": fast}
    target = Target(target=1, name="odd", kernels=kernels)
    pairs = [
        (one.pattern.text, one.replacement.text)
        for enumeration in [Enumeration(vocabulary, target)]
        for size in (1, 2)
        for one in enumeration.of_size(size, lambda _: False)
    ]
    assert ("aten.abs.default(x)", "aten.maximum.default(aten.neg.default(x), x)") in pairs


def test_what_has_no_kernel_is_left_out() -> None:
    target = Target(target=1, name="poor", kernels={"aten.neg.default": KernelCost(call_ns=1.0, element_ns=1.0)})
    enumeration = Enumeration(words("aten.neg.default(_)", "aten.abs.default(_)"), target)
    for size in (1, 2):
        pairs = enumeration.of_size(size, lambda _: False)
    assert [(one.pattern.text, one.replacement.text) for one in pairs] == [
        ("aten.neg.default(aten.neg.default(x))", "x"),
        ("aten.neg.default(aten.neg.default(y))", "y"),
    ]


def pairs_of(vocabulary: Vocabulary, target: Target, calls: int = 2) -> list[tuple[str, str]]:
    enumeration = Enumeration(vocabulary, target)
    found = [one for size in range(1, calls + 1) for one in enumeration.of_size(size, lambda _: False)]
    return [(one.pattern.text, one.replacement.text) for one in found]


def test_graphs_of_equal_cost_make_no_pair() -> None:
    kernel = KernelCost(call_ns=1.0, element_ns=1.0)
    target = Target(target=1, name="flat", kernels={"aten.neg.default": kernel, "aten.mul.Tensor": kernel})
    pairs = pairs_of(words("aten.neg.default(_)", "aten.mul.Tensor(_, _)"), target, 3)
    assert ("aten.mul.Tensor(aten.neg.default(x), aten.neg.default(y))", "aten.mul.Tensor(x, y)") in pairs
    assert not [one for one in pairs if one[1] == "aten.neg.default(aten.mul.Tensor(x, y))"]


def test_differences_of_one_value_make_no_pair() -> None:
    pairs = pairs_of(words("aten.sub.Tensor(_, _)", "aten.relu.default(_)", variables={"x": "f32 [*S]"}), HOST)
    assert not [one for one in pairs if "sub.Tensor(x, x)" in one[1]]


def test_great_results_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pairs_of(words("aten.neg.default(_)"), HOST)
    monkeypatch.setattr("exirkit.patterns.discovery.enumeration._MOST_ELEMENTS", 1)
    assert not pairs_of(words("aten.neg.default(_)"), HOST)


UNDOING = """rulebook: 1
rules:
- id: local.absolute
  vars: {x: "f32 [*S]"}
  match: return aten.maximum.default(aten.neg.default(x), x)
  replace: return aten.abs.default(x)
"""


def test_what_a_known_rule_undoes_is_left_out(tmp_path: Path) -> None:
    vocabulary = words("aten.neg.default(_)", "aten.abs.default(_)", "aten.maximum.default(_, _)")
    fast, slow = KernelCost(call_ns=1.0, element_ns=0.1), KernelCost(call_ns=1.0, element_ns=50.0)
    kernels = {"aten.neg.default": fast, "aten.abs.default": slow, "aten.maximum.default": fast}
    target = Target(target=1, name="odd", kernels=kernels)
    (tmp_path / "undoing.yaml").write_text(UNDOING)
    for books, undone in (([], 0), ([str(tmp_path / "undoing.yaml")], 1)):
        discovery = Discovery(vocabulary, target, books=books)
        rules = texts(list(discovery.run(2)))
        assert ("aten.abs.default(x)" in rules) is not bool(undone)
        assert (discovery.tally.undone > 0) is bool(undone)


def test_what_the_solver_refutes_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = words("aten.neg.default(_)", "aten.abs.default(_)", "aten.maximum.default(_, _)")
    (proved, *_), _ = found(vocabulary, proves=True)
    assert proved.certificate is not None
    refuted = proved.certificate.model_copy(update={"status": "refuted"})
    monkeypatch.setattr("exirkit.patterns.discovery.rules.certificate_of", lambda *_: refuted)
    rules, discovery = found(vocabulary, proves=True)
    assert rules == []
    assert discovery.tally.rejected > 0


@pytest.mark.parametrize("name", shipped_vocabularies())
def test_shipped_vocabularies_make_graphs(name: str) -> None:
    enumeration = Enumeration(read_vocabulary(name), HOST)
    enumeration.of_size(1, lambda _: False)
    # Every operator takes at least one variable.
    made = {term.template.text for term in enumeration.terms(1) if term.template is not None}
    assert len(made) > len(enumeration.vocabulary.operators) // 2


WRONG = {
    "operators: ['aten.add_.Tensor(_, _)']": "6:14 writes",
    "operators: ['aten.bernoulli.default(_)']": "6:14 random",
    "operators: ['aten.max.dim(_, 0)']": "6:14 does not return one tensor",
    "operators: ['aten.neg.default(_, 1, 2)']": "6:14 more arguments",
    "operators: ['aten.neg.default(x)']": "6:14 neither `_` nor a literal",
    "operators: [\"aten.neg.default(__import__('os'))\"]": "6:14 neither `_` nor a literal",
    "operators: [aten.neg]": "6:13 is not a call",
    "operators: ['aten.full.default([2], 1.0)']": "6:14 leaves 0 tensors open",
    "operators: ['aten.nothing.default(_)']": "6:14 no operator",
    "operators: []": "6:12 is empty",
    "variables: {x: 'i64 [N]'}": "5:17 float32",
    "variables: {t0: 'f32 [N]'}": "5: cannot be the name",
    "variables: {x: 'f32 [M]'}": "1:1 says nothing of M",
    "variables: {x: 'f32 [*N]'}": "1:1 says nothing of",
    "sizes: {N: [2, 3, 1000000000]}": "1:1 more than 16,777,216 elements",
    "sizes: {N: [2, 3, -1]}": "4:19 greater than or equal to 1",
    "sizes: {N: [2, 3]}": "4:12 missing key '2'",
    "unknown: 1": "7:1 unknown",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_vocabularies(line: str, tmp_path: Path) -> None:
    lines = {
        "vocabulary": "vocabulary: 1",
        "name": "name: wrong",
        "doc": "doc: Wrong.",
        "sizes": "sizes: {N: [2, 3, 8]}",
        "variables": "variables: {x: 'f32 [N]'}",
        "operators": "operators: [aten.neg.default(_)]",
    }
    path = tmp_path / "words.yaml"
    path.write_text("\n".join(lines.values()))
    assert read_vocabulary(path).name == "wrong"
    path.write_text("\n".join((lines | {line.partition(":")[0]: line}).values()))
    with pytest.raises(UsageError, match="EK283") as caught:
        read_vocabulary(path)
    place, _, what = WRONG[line].partition(" ")
    assert f"words.yaml:{place}" in str(caught.value)
    assert what in str(caught.value)
