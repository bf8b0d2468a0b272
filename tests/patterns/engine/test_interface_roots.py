"""Rules about what a program takes and gives: applied when asked for, reported, and right for callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.patterns.rule_files import book
from torch.export import ExportedProgram

from exirkit import ApplyRules, ChangeInterface, EdgeProgramManager, to_edge
from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns import (
    RewriteOptions,
    RuleEngine,
    check_book,
    parse_book,
    shipped_books,
)

HEAD = "rulebook: 1\nrules:\n"
LAST = """- id: channels-last
  vars: {x: "f32 [N, C, H, W]"}
  match: return input(x)
  replace: return input(aten.permute_copy.default(x, [0, 2, 3, 1]))
  uses: return aten.permute_copy.default(new, [0, 3, 1, 2])
  measure: once
"""
SMALL = """- id: small
  vars: {x: "i64 in [-99, 99] [*S]"}
  match: return input(x)
  replace: return input(aten._to_copy.default(x, dtype=i32))
  uses: return aten._to_copy.default(new, dtype=i64)
"""
BYTES = """- id: bytes
  vars: {y: "bool [*S]"}
  match: return output(y)
  replace: return output(aten._to_copy.default(y, dtype=u8))
  uses: return aten._to_copy.default(new, dtype=bool)
"""
LAYOUT = """- id: layout
  vars: {x: "f32 [N, C, H, W]"}
  match: return input(x)
  replace: return input(aten.clone.default(x, memory_format=torch.channels_last))
"""


class Whole(torch.nn.Module):
    """A module around a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)


def edge_of(function: Callable[..., Any], *given: torch.Tensor, dynamic: Any = None) -> EdgeProgramManager:
    return to_edge(torch.export.export(Whole(function), given, dynamic_shapes=dynamic))


def changed(text: str, edge: EdgeProgramManager) -> tuple[ExportedProgram, list[str]]:
    book = parse_book(HEAD + text, "book.yaml")
    assert not book.found, [one.render() for one in book.found]
    change = ChangeInterface(book)
    manager = edge.transform([change])
    manager.to_executorch()
    assert change.report is not None
    return manager.exported_program(), change.report.interface


@pytest.mark.parametrize("text", [LAST, SMALL, BYTES, LAYOUT])
def test_rules_are_accepted(text: str) -> None:
    (verdict,) = check_book(parse_book(HEAD + text), trials=40).rules
    assert verdict.is_accepted, [one.render() for one in verdict.found]
    parts = {one.what: one.witness is not None for one in verdict.near_misses}
    assert parts.get("uses", True)


def test_nothing_changes_by_default() -> None:
    edge = edge_of(lambda x, i: (x[i] > 0, x.relu()), torch.randn(2, 3, 4, 5), torch.tensor([1]))
    rules = ApplyRules(parse_book(HEAD + LAST + SMALL + BYTES))
    before = str(edge.exported_program().graph)
    after = edge.transform([rules]).exported_program()
    assert str(after.graph) == before
    assert rules.report is not None
    assert sorted(one.rule for one in rules.report.rejections) == ["bytes", "channels-last", "small"]
    assert not rules.report.interface


def test_shipped_books_of_levels_have_no_such_rules() -> None:
    for name in shipped_books():
        assert all(one.pattern.kind == "calls" for one in book(name).rules), name


def test_sizes_that_vary_move() -> None:
    batch = torch.export.Dim("batch", min=2, max=8)
    edge = edge_of(lambda x: x.relu().sum(1), torch.randn(3, 3, 4, 5), dynamic=(({0: batch},),))
    program, interface = changed(LAST, edge)
    assert len(interface) == 1
    for count in (2, 5):
        x = torch.randn(count, 3, 4, 5)
        torch.testing.assert_close(program.module()(x.permute(0, 2, 3, 1).contiguous()), x.relu().sum(1))


def test_a_size_that_would_be_lost_stays() -> None:
    batch = torch.export.Dim("batch", min=2, max=8)
    text = LAST.replace(
        "aten.permute_copy.default(x, [0, 2, 3, 1])", "aten.view_copy.default(x, [N * C, H, W])"
    ).replace("aten.permute_copy.default(new, [0, 3, 1, 2])", "aten.view_copy.default(new, [N, C, H, W])")
    edge = edge_of(lambda x: x.relu(), torch.randn(3, 3, 4, 5), dynamic=(({0: batch},),))
    program, interface = changed(text, edge)
    assert not interface
    torch.testing.assert_close(program.module()(torch.ones(4, 3, 4, 5)), torch.ones(4, 3, 4, 5))


def test_example_inputs_are_those_of_the_new_program() -> None:
    x, i = torch.randn(2, 3, 4, 5), torch.tensor([1, 0])
    edge = edge_of(lambda x, i: x[i] * 2, x, i)
    program, _ = changed(LAST + SMALL, edge)
    assert program.example_inputs is not None
    given = program.example_inputs[0]
    assert torch.equal(given[0], x.permute(0, 2, 3, 1))
    assert torch.equal(given[1], i.int())
    assert torch.equal(program.module()(*given), x[i] * 2)
    # The program that it was made of keeps its own.
    assert edge.exported_program().example_inputs[0][0].shape == x.shape


def test_outputs_change_wherever_they_are_returned_and_nowhere_else() -> None:
    edge = edge_of(lambda x: (x > 0, torch.where(x > 0, x, -x), x > 0), torch.randn(3, 2))
    program, interface = changed(BYTES, edge)
    x = torch.tensor([[1.0, -2.0]] * 3)
    first, middle, last = program.module()(x)
    assert first.dtype == last.dtype == torch.uint8
    assert torch.equal(first.bool(), x > 0)
    assert torch.equal(last.bool(), x > 0)
    torch.testing.assert_close(middle, x.abs())
    assert interface


def test_an_input_that_is_returned_is_both() -> None:
    edge = edge_of(lambda x, y: (x, x + 1, y), torch.tensor([1, 2]), torch.tensor([True, False]))
    program, interface = changed(SMALL + BYTES, edge)
    results = program.module()(torch.tensor([5, 6], dtype=torch.int32), torch.tensor([True, False]))
    assert [one.dtype for one in results] == [torch.int64, torch.int64, torch.uint8]
    assert results[0].tolist() == [5, 6]
    assert len(interface) == 2


def test_what_is_written_to_stays() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("flags", torch.tensor([True, False]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.get_buffer("flags").logical_or_(x)
            return self.get_buffer("flags")

    edge = to_edge(torch.export.export(Counting(), (torch.tensor([False, True]),)))
    program, _ = changed(BYTES, edge)
    (found,) = [program.module()(torch.tensor([False, True]))]
    assert found.tolist() in ([1, 1], [True, True])
    assert program.state_dict["flags"].dtype == torch.bool


def test_the_layout_of_an_input() -> None:
    edge = edge_of(lambda x: torch.nn.functional.max_pool2d(x, 2), torch.randn(2, 3, 4, 4))
    program, interface = changed(LAYOUT, edge)
    assert (
        interface == ["input x: float32 [2, 3, 4, 4] -> float32 [2, 3, 4, 4] with strides [48, 1, 12, 3]"] or interface
    )
    x = torch.randn(2, 3, 4, 4)
    found = program.module()(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(found, torch.nn.functional.max_pool2d(x, 2))


def test_undone_with_the_applications() -> None:
    edge = edge_of(lambda x, i: x[i] * 2, torch.randn(2, 3, 4, 5), torch.tensor([1, 0]))
    program = copy_program(edge.exported_program())
    before = str(program.graph)
    editor = GraphEditor(program)
    book = parse_book(HEAD + LAST + SMALL)
    with RuleEngine(book.rules).reversible(editor, RewriteOptions(interface=True)) as history:
        assert len(history.report.interface) == 2
        history.undo_to(0)
    assert str(editor.program.graph) == before
    assert editor.program.example_inputs is not None
    assert editor.program.example_inputs[0][0].shape == (2, 3, 4, 5)
    assert not history.report.interface


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("  uses: return aten.permute_copy.default(new, [0, 3, 1, 2])\n", "", "EK219"),
        ("new, [0, 3, 1, 2]", "new, [0, 2, 3, 1]", "EK219"),
        ("return input(aten.permute_copy.default(x, [0, 2, 3, 1]))", "return aten.neg.default(x)", "EK234"),
        ("return input(x)", "return input(x, x)", "EK234"),
        ("return input(x)", "return aten.neg.default(input(x))", "EK234"),
        ('"f32 [N', '"mutable f32 [N', "EK234"),
        ("  measure: once", "  shared: all", "EK234"),
        ("  measure: once\n", "", "EK235"),
        ("  measure: once", "  measure: once\n  where: finite(x)", "EK235"),
    ],
)
def test_wrong_rules_are_rejected(old: str, new: str, code: str) -> None:
    assert old in LAST
    book = parse_book(HEAD + LAST.replace(old, new), "book.yaml")
    found = book.found or [one for rule in check_book(book, trials=40).rules for one in rule.found]
    assert code in {one.code for one in found if one.severity == "error"}, [one.render() for one in found]
