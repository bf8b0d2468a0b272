"""Rules about stored tensors: what is replaced, what its uses get, and what is rejected."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from exirkit import ApplyRules, to_edge
from exirkit.ir import ContractError, GraphEditor, copy_program
from exirkit.patterns import RewriteOptions, RuleEngine, check_book, parse_book
from exirkit.patterns.explain.explanation import explain_rule

HEAD = "rulebook: 1\nrules:\n- id: one\n"
NARROW = (
    HEAD
    + """  vars: {c: "i64 [*S]"}
  match: return stored(c)
  where: in_range(c, -2147483648, 2147483647)
  replace: return stored(cast(c, i32))
  uses: return aten._to_copy.default(new, dtype=i64)
  shared: all
"""
)


class Places(torch.nn.Module):
    """Stored integers: used once, twice, written to, too large, under two names, and a parameter."""

    alone: torch.Tensor
    once: torch.Tensor
    twice: torch.Tensor
    large: torch.Tensor
    count: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("alone", torch.tensor([[0, 2]]))
        self.register_buffer("once", torch.tensor([2, 0, 1]))
        self.register_buffer("twice", torch.tensor([1, 1, 0]), persistent=False)
        self.register_buffer("large", torch.tensor([1 << 40, 1, -1]))
        self.register_buffer("count", torch.tensor(0))
        whole = torch.arange(6)
        self.register_buffer("low", whole[:3])
        self.register_buffer("high", whole[3:])
        self.weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.count.add_(1)
        y = x[self.once] + x[self.alone].sum() + x[self.twice] * self.twice
        shared = torch.cat([self.low, self.high])
        return y, self.large + 1, self.count * 1, shared, self.weight * x, self.once


def exported() -> ExportedProgram:
    return to_edge(torch.export.export(Places(), (torch.randn(3),))).exported_program()


def rewritten(text: str, program: ExportedProgram) -> tuple[ExportedProgram, list[str]]:
    """Return a program after the rules of a book, and the names of the tensors they replaced; results must stay."""
    book = parse_book(text, "book.yaml")
    assert not book.found, [one.render() for one in book.found]
    editor = GraphEditor(copy_program(program))
    report = RuleEngine(book.rules).run(editor)
    editor.agree()
    x = torch.randn(3)
    # Running a program changes the buffers that it writes to.
    runs = []
    for one in (program, editor.program):
        one.state_dict["count"].zero_()
        runs.append(one.module()(x))
    for before, after in zip(*runs, strict=True):
        assert before.dtype == after.dtype
        torch.testing.assert_close(after, before, rtol=0, atol=0)
    return editor.program, [one.root for one in report.journal]


def stored_dtypes(program: ExportedProgram) -> dict[str, torch.dtype]:
    return {str(name): tensor.dtype for name, tensor in {**program.state_dict, **program.constants}.items()}


def test_all_that_fit_and_are_not_written_to() -> None:
    program, replaced = rewritten(NARROW, exported())
    assert {"b_once", "b_twice", "b_low", "b_high"} <= set(replaced)
    assert not {"b_large", "b_count"} & set(replaced)
    left = [name for name, dtype in stored_dtypes(program).items() if dtype == torch.int64]
    assert sorted(left) == ["count", "large"]
    kinds = {str(spec.target): (spec.kind, spec.persistent) for spec in program.graph_signature.input_specs}
    assert kinds["b_twice_1"] == (InputKind.BUFFER, False)
    assert kinds["b_once_1"] == (InputKind.BUFFER, True)


def test_shared_ones_stay_unless_the_rule_is_for_them() -> None:
    _, replaced = rewritten(NARROW.replace("  shared: all\n", ""), exported())
    assert not {"b_once", "b_twice", "b_low", "b_high"} & set(replaced)
    assert "b_alone" in replaced


def test_a_parameter_stays_one() -> None:
    text = (
        HEAD
        + """  vars: {c: "param f32 [*S]"}
  match: return stored(c)
  replace: return stored(cast(c, f64))
  uses: return aten._to_copy.default(new, dtype=f32)
"""
    )
    assert check_book(parse_book(text), trials=20).is_accepted
    program, replaced = rewritten(text, exported())
    assert replaced == ["p_weight"]
    (name,) = program.graph_signature.parameters
    assert isinstance(program.state_dict[name], torch.nn.Parameter)


def test_what_is_there_already_is_not_stored_again() -> None:
    text = (
        HEAD
        + """  vars: {c: "f32 [*S]"}
  match: return stored(c)
  replace: return stored(c + 0.0)
  equiv: {rtol: 0.0}
"""
    )
    _, replaced = rewritten(text, exported())
    # What is stored is what was there.
    assert not replaced


def test_replacements_that_do_not_end() -> None:
    text = (
        HEAD
        + """  vars: {c: "f32 [N]"}
  match: return stored(c)
  replace: return stored(flip(c, [0]))
  uses: return aten.flip.default(new, [0])
"""
    )
    (found,) = [one for one in check_book(parse_book(text), trials=20).rules[0].found if one.severity == "error"]
    assert found.code == "EK235"
    with pytest.raises(ContractError) as error:
        RuleEngine(parse_book(text).rules).run(GraphEditor(copy_program(exported())), RewriteOptions(bound=2))
    assert error.value.diagnostics[0].code == "EK250"


def test_once_is_once() -> None:
    text = (
        HEAD
        + """  vars: {c: "num [*S]"}
  match: return stored(c)
  replace: return stored(reshape(c, [1, *S]))
  uses: return aten.squeeze_copy.dims(new, [0])
  shared: all
  measure: once
"""
    )
    assert check_book(parse_book(text), trials=20).is_accepted
    _, replaced = rewritten(text, exported())
    assert len(replaced) == len(set(replaced))


def test_stored_in_the_replacement_of_a_call() -> None:
    text = (
        HEAD
        + """  vars: {x: "f32 [N]", w: "const f32 [N]"}
  match: return aten.mul.Tensor(w, x)
  replace: return aten.mul.Tensor(x, stored(w * 1.0))
"""
    )
    assert check_book(parse_book(text), trials=20).is_accepted
    _, fired = rewritten(text, exported())
    assert fired


def test_what_is_stored_must_be_known() -> None:
    text = (
        HEAD
        + """  vars: {x: "f32 [N]"}
  match: return aten.exp.default(x)
  replace: return aten.exp.default(stored(x * 1.0))
"""
    )
    (found,) = parse_book(text).found
    assert (found.code, found.message) == ("EK234", "'x' is not known while the program is lowered")


def test_explain_says_why_not() -> None:
    (rule,) = parse_book(NARROW.replace("  shared: all\n", ""), "book.yaml").rules
    editor = GraphEditor(exported())
    reasons = {node: explain_rule(rule, editor, node).nodes[0].mismatch for node in ("b_once", "b_large", "b_count")}
    for node, expected in (("b_once", "shared: all"), ("b_count", "writes to it"), ("b_large", "does not hold")):
        mismatch = reasons[node]
        assert mismatch is not None
        assert expected in f"{mismatch.message} {mismatch.expected} {mismatch.found}"


def test_bodies_use_what_the_program_stores() -> None:
    class Branches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("places", torch.tensor([2, 0, 1]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            picked: torch.Tensor = torch.cond(x.sum() > 0, lambda y: y[self.places], lambda y: y + 1, (x,))
            return picked

    edge = to_edge(torch.export.export(Branches(), (torch.randn(3),)))
    program = edge.transform([ApplyRules(parse_book(NARROW))]).exported_program()
    assert set(stored_dtypes(program).values()) <= {torch.int32, torch.float32}
    for x in (torch.ones(3), -torch.ones(3), torch.tensor([1.0, 2.0, 3.0])):
        torch.testing.assert_close(program.module()(x), Branches()(x), rtol=0, atol=0)


def edited(*pairs: tuple[str, str]) -> str:
    text = NARROW
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (edited(("stored(c)", "stored(c, c)")), "stored has one variable that is a tensor"),
        (edited(("return stored(c)", "return stored(aten.neg.default(c))")), "stored has one variable"),
        (edited(("return stored(c)", "return stored(c), stored(c)")), "stored is a root only"),
        (edited(("return stored(c)", "return aten.neg.default(stored(c))")), "stored is a root only"),
        (edited(('"i64 [*S]"', '"mutable i64 [*S]"')), "c is mutable"),
        (edited(("return stored(cast(c, i32))", "return cast(c, i32)")), "what replaces stored(...) is stored(...)"),
        (edited(("stored(cast(c, i32))", "stored(aten.neg.default(c))")), "by words and not by operators"),
        (edited(("default(new", "default(c")), "`uses` does not use the new value"),
        (edited(("default(new, dtype=i64)", "default(aten.add.Tensor(new, c), dtype=i64)")), "'c' is gone"),
        (edited(("dtype=i64)\n", "dtype=i64), new\n")), "`uses` has one result"),
        (edited(("return stored(c)", "return aten.neg.default(c)")), "`uses` is for rules about values of the program"),
        (edited(("shared: all", "choose: cost")), "neither `choose: cost` nor `unless`"),
    ],
)
def test_patterns_that_rules_cannot_have(text: str, message: str) -> None:
    found = parse_book(text, "book.yaml").found
    assert any(message in one.message for one in found), [one.message for one in found]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("  where: in_range(c, -2147483648, 2147483647)\n", ""), "values differ"),
        (("-2147483648, 2147483647", "-2147483649, 4294967296"), "values differ"),
        (("  uses: return aten._to_copy.default(new, dtype=i64)\n", ""), "int32 in place of int64"),
        (("dtype=i64)", "dtype=i16)"), "int16 in place of int64"),
        (("cast(c, i32)", "cast(c, i32) + 1"), "values differ"),
        (("cast(c, i32)", "reshape(cast(c, i32), [numel(c)])"), "sizes"),
    ],
)
def test_wrong_rules_are_rejected(change: tuple[str, str], problem: str) -> None:
    verdict = check_book(parse_book(edited(change), "book.yaml"), trials=100)
    messages = [one.message for one in verdict.rules[0].found if one.severity == "error"]
    assert messages
    assert any(problem in one for one in messages), messages


def witnesses(text: str) -> Sequence[tuple[str, bool]]:
    verdict = check_book(parse_book(text), trials=40)
    assert verdict.is_accepted, [one.render() for one in verdict.rules[0].found]
    return [(one.what, one.witness is not None) for one in verdict.rules[0].near_misses]


def test_every_part_has_a_witness() -> None:
    assert witnesses(NARROW) == [("guard", True), ("uses", True)]


IN_BODIES = (
    HEAD
    + """  vars: {c: "num []"}
  graphs: bodies
  match: return stored(c)
  replace: return aten.full.default([], item(c), dtype=c.dtype)
"""
)


class Bodies(torch.nn.Module):
    """A branch inside a branch, a loop, and a number that the program itself uses as well."""

    limit: torch.Tensor
    step: torch.Tensor
    wide: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("limit", torch.tensor(0.5))
        self.register_buffer("step", torch.tensor(2))
        self.register_buffer("wide", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def inner(y: torch.Tensor) -> torch.Tensor:
            return y * self.limit + self.wide

        def outer(y: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = torch.cond(y.sum() > 3, inner, lambda z: z - self.limit, (y,))
            return found

        y: torch.Tensor = torch.cond(x.sum() > 0, outer, lambda y: y + 1, (x,))
        return y, x * self.step


def test_numbers_of_bodies_are_made_there() -> None:
    program = to_edge(torch.export.export(Bodies(), (torch.randn(3),))).exported_program()
    book = parse_book(IN_BODIES, "book.yaml")
    assert not book.found, [one.render() for one in book.found]
    assert check_book(book, trials=40).is_accepted
    editor = GraphEditor(copy_program(program))
    report = RuleEngine(book.rules).run(editor)
    assert report.journal
    assert all(one.graph for one in report.journal)
    assert "limit" not in editor.program.state_dict
    assert {"step", "wide"} <= editor.program.state_dict.keys()
    for x in (torch.ones(3), 2 * torch.ones(3), -torch.ones(3)):
        for before, after in zip(Bodies()(x), editor.program.module()(x), strict=True):
            torch.testing.assert_close(after, before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("aten.full.default([], item(c), dtype=c.dtype)", "aten.neg.default(c)", "'c' is gone"),
        ("  graphs: bodies\n", "", "what replaces stored(...) is stored(...)"),
        ("  graphs: bodies\n", "  graphs: bodies\n  shared: all\n", "in bodies calls replace"),
        ("return stored(c)", "return aten.neg.default(c)", "`graphs` is for rules about values of the program"),
        ("return stored(c)", "return input(c)", "`graphs` is for rules about stored tensors"),
    ],
)
def test_rules_about_bodies_that_cannot_be(old: str, new: str, message: str) -> None:
    assert old in IN_BODIES
    found = parse_book(IN_BODIES.replace(old, new), "book.yaml").found
    assert any(message in one.message for one in found), [one.message for one in found]


@pytest.mark.parametrize(
    ("old", "new"),
    [("item(c)", "1"), ("dtype=c.dtype", "dtype=f32"), ("default([]", "default([1]"), ('"num []"', '"num [*S]"')],
)
def test_wrong_rules_about_bodies_are_rejected(old: str, new: str) -> None:
    verdict = check_book(parse_book(IN_BODIES.replace(old, new)), trials=40)
    assert not verdict.is_accepted
