"""Loops in replacements: what they carry, what is rejected, and how they are tried."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from exirkit import to_edge
from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns import RuleEngine, check_book, parse_book
from exirkit.patterns.checking.witnesses import WitnessBook, stored_rule

HEAD = """rulebook: 1
rules:
- id: one
  vars: {x: 'f32 [*S]', dims: 'axes of x'}
  match: return aten.flip.default(x, dims)
  measure: once
  replace: |
"""
FLIP = HEAD + "    y = x\n    for d in dims: y = aten.flip.default(y, [d])\n    return y\n"


class Whole(torch.nn.Module):
    """A module around a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)


def messages(text: str) -> list[str]:
    return [one.message for one in parse_book(text, "book.yaml").found]


def rewritten(text: str, function: Callable[..., Any], *given: torch.Tensor, dynamic: Any = None) -> tuple[int, Any]:
    """Return how often the rules of a book fire on a function in Edge, and the report; its results must stay."""
    book = parse_book(text, "book.yaml")
    assert not book.found, [one.render() for one in book.found]
    exported = torch.export.export(Whole(function), given, dynamic_shapes=dynamic)
    program = to_edge(exported).exported_program()
    editor = GraphEditor(copy_program(program))
    report = RuleEngine(book.rules).run(editor)
    torch.testing.assert_close(editor.program.module()(*given), program.module()(*given), rtol=0, atol=0)
    return len(report.journal), (report, editor)


@pytest.mark.parametrize("dims", [(), (0,), (2, 0), (0, 1, 2)])
def test_lists_of_every_length(dims: tuple[int, ...]) -> None:
    fired, (_, editor) = rewritten(FLIP, lambda x: torch.flip(x, dims).exp(), torch.randn(2, 3, 5))
    # One turn gives the call that was there: nothing is rewritten then.
    assert fired == (len(dims) != 1)
    flips = [node for node in editor.graph.nodes if "flip" in str(node.target)]
    assert len(flips) == len(dims)


def test_sizes_may_vary_while_the_list_is_known() -> None:
    batch = torch.export.Dim("batch", min=2, max=9)
    fired, _ = rewritten(FLIP, lambda x: torch.flip(x, (0, 1)), torch.randn(3, 4), dynamic=(({0: batch},),))
    assert fired == 1


def test_a_list_that_a_varying_size_bounds_is_not_known() -> None:
    text = FLIP.replace("for d in dims", "for d in range(x.shape[0])").replace("aten.flip.default(y, [d])", "y")
    batch = torch.export.Dim("batch", min=2, max=9)
    fired, (report, editor) = rewritten(
        text, lambda x: torch.flip(x, (0, 1)), torch.randn(3, 4), dynamic=(({0: batch},),)
    )
    assert fired == 0
    assert "a range to a size that varies" in str([one.reason for one in report.rejections])
    assert isinstance(next(iter(editor.graph.nodes)).meta["val"].shape[0], torch.SymInt)


def test_nested_loops_several_names_and_names_of_a_turn() -> None:
    text = """rulebook: 1
rules:
- id: one
  vars: {xs: 'list of f32 [N]'}
  gen: len(xs) >= 1 and len(xs) <= 3
  match: return aten.cat.default(xs, 0)
  replace: |
    y = aten.mul.Tensor(xs[0], 0.0)
    for i, x in enumerate(xs):
      t = aten.add.Tensor(y, x)
      for k in range(i): t = aten.neg.default(t)
      y = t
    return y
"""
    book = parse_book(text, "book.yaml")
    assert not book.found, [one.render() for one in book.found]
    (result,) = book.rules[0].cases[0].replace.run({"xs": [torch.ones(2), torch.ones(2) * 2]}, _Run())
    assert result.tolist() == [-3.0, -3.0]


class _Run:
    def call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return op(*args, **kwargs)


WRONG = {
    "for d in dims: z = aten.flip.default(x, [d])\n    return x": "the loop changes nothing",
    "for d in dims: x = aten.flip.default(y, [d])\n    return x": "'y' is bound by nothing",
    "y = x\n    for d in dims:\n      t = y\n      y = t\n    return t": "'t' has no value if the list",
    "y = x\n    for d in dims: y = y\n    return aten.flip.default(y, [d])": "'d' has no value if the list",
    "y = x\n    for x in dims: y = aten.flip.default(y, [x])\n    return y": "'x' has a value before the loop",
    "y = x\n    for d.e in dims: y = y\n    return y": "the variable of a loop is a name, or several",
    "y = x\n    for d in dims:\n      if d: y = x\n    return y": "a loop has lines `name = ...` and loops",
    "y = x\n    for d in dims:\n      y = x\n      break\n    return y": "a loop has lines `name = ...` and loops",
    "y = x\n    for d in dims: y = x\n    else: y = x\n    return y": "`else` of a loop is not part of the language",
    "y = x\n    while dims: y = x\n    return y": "a program has lines `name = ...`",
    "y = x\n    for d in dims: y = nothing(y)\n    return y": "'nothing' is not an operator",
}


@pytest.mark.parametrize("lines", WRONG)
def test_what_is_not_in_the_language(lines: str) -> None:
    found = messages(f"{HEAD}    {lines}\n")
    assert found
    assert WRONG[lines] in found[0]


def test_loops_belong_into_replacements() -> None:
    loop = "|\n    for d in dims: x = aten.flip.default(x, [d])\n    return x"
    hints = [one.hint for one in parse_book(FLIP.replace("return aten.flip.default(x, dims)", loop), "b.yaml").found]
    assert "loops belong into `replace`" in hints
    in_let = FLIP.replace("  replace", "  let: |\n    n = 0\n    for d in dims: n = n + d\n  replace")
    assert "loops belong into `replace`" in messages(in_let)


FAILS = {
    "y = x\n    for d in x: y = aten.flip.default(y, [0])\n    return y": "a loop needs a list, not a tensor",
    "y = x\n    for d, e in dims: y = aten.flip.default(y, [d])\n    return y": "",
    "y = 0\n    for d in [1, 2]: y = y + 0.5\n    return aten.mul.Tensor(x, y)": "makes a float of 'y'",
    "y = x\n    for d in [1, 2]: y = aten.gt.Scalar(y, 0)\n    return y": "makes a tensor of bool of 'y'",
    "y = x\n    for d in range(2000): y = x\n    return y": "a loop of more than 1,000 turns",
    "y = x\n    for d in range(50):\n      for e in range(50): y = x\n    return y": "a loop of more than 1,000 turns",
}


@pytest.mark.parametrize("lines", FAILS)
def test_what_fails_in_a_match(lines: str) -> None:
    verdict = check_book(parse_book(f"{HEAD}    {lines}\n", "book.yaml"), trials=10)
    assert not verdict.is_accepted
    found = verdict.rules[0].found[0]
    assert found.code in ("EK219", "EK240")
    assert FAILS[lines] in found.message


UNSHOWN = {
    "y = x\n    for d in dims: y = aten.neg.default(aten.neg.default(y))\n    return aten.flip.default(y, dims)": (
        "gives the same results with one turn less"
    ),
    "y = aten.flip.default(x, dims)\n    for d in dims[:0]: y = x\n    return y": "is never tried with two turns",
}


@pytest.mark.parametrize("lines", UNSHOWN)
def test_a_loop_needs_a_witness(lines: str) -> None:
    verdict = check_book(parse_book(f"{HEAD}    {lines}\n", "book.yaml"), trials=20)
    assert [one.code for one in verdict.rules[0].found if one.severity == "error"] == ["EK226"]
    assert any(UNSHOWN[lines] in one.message for one in verdict.rules[0].found)


def test_wrong_loops_are_rejected() -> None:
    without_first = FLIP.replace("for d in dims:", "for d in dims[1:]:")
    always_the_first = FLIP.replace("[d]", "[dims[0]]")
    from_the_start = FLIP.replace("aten.flip.default(y, [d])", "aten.flip.default(x, [d])")
    for text in (without_first, always_the_first, from_the_start):
        verdict = check_book(parse_book(text, "book.yaml"), trials=40)
        assert not verdict.is_accepted


def test_witnesses_of_loops_are_stored_and_tried_again() -> None:
    book = parse_book(FLIP, "book.yaml")
    rule = book.rules[0]
    verdict = check_book(book, trials=20).rules[0]
    stored = stored_rule(rule, book, 0, 20, verdict.near_misses)
    witnesses = WitnessBook(witnesses=1, language=1, revision=1, rules=(stored,))
    again = check_book(book, trials=20, witnesses=witnesses, is_fast=True, is_strict=True)
    assert again.is_accepted
    (loop,) = [one for one in again.rules[0].near_misses if one.what == "loop"]
    assert (loop.text, loop.outcome, loop.instead) == ("for d in dims", "witness", "without the last turn")


IN_PYTHON = """
from exirkit.patterns import PythonBook
book = PythonBook("mine")
@book.rule("one")
class _:
    x: "f32 [*S]"
    dims: "axes of x"
    def match(x, dims): return aten.flip.default(x, dims)
    def replace(x, dims):
        y = x
        for d in dims:
            y = aten.flip.default(y, [d])
        return y
    measure = "once"
"""


def test_the_form_in_python(tmp_path: Path) -> None:
    file = tmp_path / "loops_in_python.py"
    file.write_text(IN_PYTHON)
    book = runpy.run_path(str(file))["book"].load()
    assert not book.found
    assert [loop.text for loop in book.rules[0].cases[0].replace.loops] == ["for d in dims"]
    x = torch.randn(2, 3)
    (result,) = book.rules[0].cases[0].replace.run({"x": x, "dims": [1, 0]}, _Run())
    assert torch.equal(result, x.flip(0, 1))


def test_definitions_of_operators_may_have_loops() -> None:
    text = """rulebook: 1
ops:
  mine.flips:
    schema: '(Tensor x, int[] dims) -> Tensor'
    define: |
      y = x
      for d in dims: y = aten.flip.default(y, [d])
      return y
rules:
- id: one
  vars: {x: 'f32 [*S]', dims: 'axes of x'}
  match: return aten.flip.default(x, dims)
  replace: return mine.flips.default(x, dims)
"""
    verdict = check_book(parse_book(text, "book.yaml"), trials=20)
    assert verdict.is_accepted, [one.render() for rule in verdict.rules for one in rule.found]
