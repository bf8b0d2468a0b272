"""What is printed of a program is a pattern, and matches the calls that it was printed from."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
from torch.export import Dim, ExportedProgram
from torch.fx import Node

from exirkit import GraphEditor, load_book, to_edge
from exirkit.ir import copy_program
from exirkit.patterns import ProgramNotation, explain_rule, notation_of, surrounding, with_between


class Mixed(torch.nn.Module):
    """Results of several kinds, numbers, dtypes, an infinity and a value used twice."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(6)
        self.linear = torch.nn.Linear(6, 4)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.linear(self.norm(x) * 0.1)
        largest, where = y.max(dim=-1, keepdim=True)
        first, second = y.split([1, 3], dim=-1)
        z = torch.where(y > 0.5, y, float("-inf"))
        self.count.add_(1)
        return torch.cat([first, second, largest], -1), where.to(torch.int32) // 2, z.clamp(min=-1.0), y.sum(0) + y


class Convolutions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, 2, 1, bias=False), torch.nn.BatchNorm2d(4), torch.nn.Hardswish(),
            torch.nn.MaxPool2d(2),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.features(x)
        return torch.nn.functional.pad(y, (1, 1)).flatten(1)


def aten(model: torch.nn.Module, *inputs: torch.Tensor, dynamic: bool = False) -> ExportedProgram:
    shapes = tuple({0: Dim("rows", max=9)} for _ in inputs) if dynamic else None
    return torch.export.export(model.eval(), inputs, dynamic_shapes=shapes)


def book_text(notation: ProgramNotation) -> str:
    rule = "- id: own.copied\n  doc: Copied.\n" + textwrap.indent(notation.text(), "  ")
    rule += "  replace: |\n" + textwrap.indent(notation.match, "    ") + "  equiv: {mode: exact}\n"
    return "rulebook: 1\nrules:\n" + rule


def matches(notation: ProgramNotation, program: ExportedProgram, scratch: Path) -> bool:
    """Whether what is printed loads as a rule, and its pattern matches somewhere in the program."""
    path = scratch / "book.yaml"
    path.write_text(book_text(notation))
    rule = load_book(path).require_valid().rule("own.copied")
    explained = explain_rule(rule, GraphEditor(copy_program(program)))
    # The replacement is the pattern: it fires if it makes a new constant, otherwise a match ends in "is there already".
    return explained.firing > 0 or any("it cannot be replaced" in one.diagnostic().render() for one in explained.nodes)


PROGRAMS = {
    "mixed": lambda: aten(Mixed(), torch.randn(5, 6)),
    "mixed, varying": lambda: aten(Mixed(), torch.randn(5, 6), dynamic=True),
    "mixed, one row": lambda: aten(Mixed(), torch.randn(1, 6)),
    "convolutions": lambda: aten(Convolutions(), torch.randn(1, 3, 16, 16)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("distance", [0, 1])
def test_surroundings_match(name: str, distance: int, tmp_path: Path) -> None:
    program = to_edge(PROGRAMS[name]()).exported_program()
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    tried = 0
    for node in calls:
        chosen = surrounding(node, distance)
        notation = notation_of(program, chosen)
        if notation.unsaid or not notation.lines[-1].startswith("return"):
            continue
        tried += 1
        assert matches(notation, program, tmp_path), book_text(notation)
    assert tried >= len(calls) // 2


def test_aten_matches(tmp_path: Path) -> None:
    program = aten(Mixed(), torch.randn(5, 6))
    for node in [one for one in program.graph.nodes if one.op == "call_function"]:
        notation = notation_of(program, surrounding(node, 0))
        if not notation.unsaid and notation.lines[-1].startswith("return"):
            path = tmp_path / "book.yaml"
            path.write_text(book_text(notation))
            load_book(path).require_valid()


def test_text() -> None:
    class Gate(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x * torch.sigmoid(y)).sum(-1, keepdim=True)

    program = to_edge(aten(Gate(), torch.randn(2, 3), torch.randn(2, 3))).exported_program()
    assert notation_of(program, comment=lambda node: "same").text() == textwrap.dedent("""\
        vars:
          y: "f32 [N, K]"
          x: "f32 [N, K]"
        match: |
          # same
          aten_sigmoid_default = aten.sigmoid.default(y)  # f32 [2, 3]
          aten_mul_tensor = aten.mul.Tensor(x, aten_sigmoid_default)  # f32 [2, 3]
          aten_sum_dim_int_list = aten.sum.dim_IntList(aten_mul_tensor, [-1], True)  # f32 [2, 1]
          return aten_sum_dim_int_list
        """)
    numbers = notation_of(program, sizes=False)
    assert numbers.variables == {"y": "f32 [2, 3]", "x": "f32 [2, 3]"}


def test_stored_tensors_say_what_they_are() -> None:
    program = to_edge(aten(Mixed(), torch.randn(5, 6))).exported_program()
    kinds = notation_of(program, sizes=False).variables
    assert kinds["p_linear_weight"] == "param f32 [4, 6]"
    assert kinds["b_count"] == "buffer f32 [4]"
    assert kinds["x"] == "f32 [5, 6]"


def test_numbers_stand_for_constants() -> None:
    program = to_edge(aten(Mixed(), torch.randn(5, 6))).exported_program()
    text = notation_of(program).match
    assert ", 0.1)" in text
    assert ", 0.5)" in text


def test_what_cannot_be_said_is_a_comment() -> None:
    class Branch(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)) * 2

    notation = notation_of(to_edge(aten(Branch(), torch.randn(3))).exported_program())
    assert notation.unsaid
    assert any(line.startswith("# %") for line in notation.lines)
    assert notation.lines[-1].startswith("return aten_mul_tensor")


def test_calls_between_are_taken_too() -> None:
    program = to_edge(aten(Mixed(), torch.randn(5, 6))).exported_program()
    calls: list[Node] = [node for node in program.graph.nodes if node.op == "call_function"]
    ends = [calls[0], calls[-1]]
    closed = with_between(ends)
    inside = set(closed)
    for node in calls:
        is_behind = any(source in inside for source in node.all_input_nodes)
        leads_back = any(user in inside for user in node.users)
        assert node in inside or not (is_behind and leads_back)
    assert with_between([]) == []
