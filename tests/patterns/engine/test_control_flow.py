"""Rules in the bodies of control flow: of programs that torch exports, each against what the module computes."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.patterns.exported_programs import Computes
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim, ExportedProgram

from exirkit.ir import ContractError, GraphEditor, called_graphs, copy_program
from exirkit.passes import ApplyRules
from exirkit.patterns import CompiledRule, RewriteOptions, RuleEngine, parse_book

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class _Numbers(torch.nn.Module):
    def __init__(self, *values: float) -> None:
        super().__init__()
        for index, value in enumerate(values):
            self.register_buffer("abcd"[index], torch.full((4,), value))


def rules(text: str) -> tuple[CompiledRule, ...]:
    return tuple(parse_book("rulebook: 1\nrules:\n" + text).require_valid().rules)


NEGATIONS = rules("""
- id: negations
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(aten.neg.default(x))
  replace: return x
""")
FACTORS = rules("""
- id: factors
  vars: {x: "f32 [~S]", c: "const f32 [~S]", d: "const f32 [~S]"}
  match: return aten.mul.Tensor(aten.mul.Tensor(x, c), d)
  let: e = c * d
  replace: return aten.mul.Tensor(x, e)
""")
ONES = rules("""
- id: ones
  vars: {x: "f32 [~S]", c: "const f32 [~S]"}
  match: return aten.mul.Tensor(x, c)
  where: ["all_eq(c, 1)", "bshape(x, c) == shape(x)"]
  replace: return x
""")


def step(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Return something for every rule to do, of the size of `x`."""
    return ((x.exp() * m.n.a) * m.n.b).neg().neg() + x * m.n.c


def branches(m: Any, x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: step(m, x), lambda x: x.sin() * m.n.a, (x,))


def rows(m: Any, x: torch.Tensor) -> Any:
    turn: Callable[..., Any] = lambda row: step(m, row)  # noqa: E731
    return map_rows(turn, x)


def scanned(m: Any, x: torch.Tensor) -> Any:
    return scan(lambda total, row: (total + row, step(m, total)), torch.zeros(4), x)[1]


def repeated(m: Any, x: torch.Tensor) -> Any:
    return while_loop(
        lambda i, y: (i < 3) & (y.sum() * m.n.d.sum() > -1e9),
        lambda i, y: (i + 1, step(m, y).tanh()),
        (torch.tensor(0), x),
    )[1]


KINDS = {"cond": branches, "map": rows, "scan": scanned, "while_loop": repeated}


def program_of(function: Callable[..., Any], *, x: torch.Tensor = X, **options: Any) -> ExportedProgram:
    module = Computes(function, n=_Numbers(2.0, 3.0, 1.0, 0.5)).eval()
    return torch.export.export(module, (x,), **options)


def state_of(program: ExportedProgram) -> list[str]:
    return [str(one.graph) for one in called_graphs(program.graph_module)] + [str(program.graph_signature)]


@pytest.mark.parametrize("kind", KINDS)
def test_bodies_are_rewritten(kind: str) -> None:
    program = program_of(KINDS[kind])
    before = state_of(program)
    passed = ApplyRules([*NEGATIONS, *FACTORS, *ONES])
    rewritten, report = passed.apply(program)
    assert report.modified
    assert passed.report is not None
    assert passed.report.applied == {"negations": 1, "factors": 1, "ones": 1}
    assert {one.graph for one in passed.report.journal} <= {
        "true_graph_0", "body_graph_0", "scan_combine_graph_0", "while_loop_body_graph_0"
    }  # fmt: skip
    assert state_of(program) == before
    for x in (X, -X.abs()):
        torch.testing.assert_close(rewritten.module()(x), program.module()(x))
    # torch takes it for one of its programs, and so does a program that is read from a file.
    rewritten.validate()
    file = io.BytesIO()
    torch.export.save(rewritten, file)
    file.seek(0)
    torch.testing.assert_close(torch.export.load(file).module()(X), program.module()(X))


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_constant_becomes_an_operand(kind: str) -> None:
    editor = GraphEditor(copy_program(program_of(KINDS[kind])))
    RuleEngine(FACTORS).run(editor)
    program = editor.program
    made = [spec.arg.name for spec in program.graph_signature.input_specs if "factors" in (spec.target or "")]
    assert len(made) == 1
    call = next(user for node in program.graph.nodes if node.name == made[0] for user in node.users)
    assert kind in str(call.target)
    counts = {
        sum(node.op == "placeholder" for node in one.graph.nodes)
        for one in list(called_graphs(program.graph_module))[1:]
    }
    assert len(counts) == 1, "bodies of one call take the same operands"


def test_operands_that_no_body_uses_any_more_go() -> None:
    editor = GraphEditor(copy_program(program_of(rows)))
    RuleEngine([*FACTORS, *ONES]).run(editor)
    stored = {spec.target for spec in editor.program.graph_signature.input_specs}
    assert not stored & {"n.a", "n.b", "n.c"}
    torch.testing.assert_close(editor.program.module()(X), program_of(rows).module()(X))


def test_bodies_in_bodies() -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        return torch.cond(
            x.sum() > 0,
            lambda x: torch.cond(x.max() > 1, lambda x: step(m, x), lambda x: x.cos(), (x,)),
            lambda x: x.sin(),
            (x,),
        )

    program = program_of(function)
    editor = GraphEditor(copy_program(program))
    report = RuleEngine([*FACTORS, *NEGATIONS]).run(editor)
    assert {one.graph for one in report.journal} == {"true_graph_0.true_graph_0"}
    assert len(report.journal) == 2
    editor.program.validate()
    for x in (X, X.abs(), -X.abs()):
        torch.testing.assert_close(editor.program.module()(x), program.module()(x))


def test_sizes_that_vary() -> None:
    x = torch.randn(5, 4)
    program = program_of(rows, x=x, dynamic_shapes=(({0: Dim("n", max=9)},),))
    editor = GraphEditor(copy_program(program))
    assert len(RuleEngine([*FACTORS, *NEGATIONS]).run(editor).journal) == 2
    for size in (3, 7):
        x = torch.randn(size, 4)
        torch.testing.assert_close(editor.program.module()(x), program.module()(x))


def test_what_changes_from_turn_to_turn_is_not_known() -> None:
    """The sum begins with a tensor that the program stores, and is another one in the next turn."""

    def function(m: Any, x: torch.Tensor) -> Any:
        return scan(lambda total, row: (total + 1, (row.exp() * total) * total), m.n.c, x)[1]

    editor = GraphEditor(copy_program(program_of(function)))
    assert not RuleEngine([*FACTORS, *ONES]).run(editor).journal


def test_a_body_does_not_return_its_input() -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.neg().neg(), lambda x: x.sin(), (x,))

    program = program_of(function)
    editor = GraphEditor(copy_program(program))
    report = RuleEngine(NEGATIONS).run(editor)
    assert not report.journal
    assert [(one.graph, one.is_fault) for one in report.rejections] == [("true_graph_0", False)]
    assert "shares memory" in report.rejections[0].reason


def test_a_cycle_in_a_body_undoes_everything() -> None:
    endless = rules("""
- id: endless
  vars: {x: "f32 [~S]", c: "const f32 [~S]"}
  match: return aten.mul.Tensor(x, c)
  let: d = c * 2
  replace: return aten.mul.Tensor(x, d)
""")
    editor = GraphEditor(copy_program(program_of(branches)))
    before = state_of(editor.program)
    names = list(editor.program.constants), list(editor.program.state_dict)
    with pytest.raises(ContractError, match="EK250"):
        RuleEngine(endless).run(editor, RewriteOptions(bound=1))
    assert state_of(editor.program) == before
    assert (list(editor.program.constants), list(editor.program.state_dict)) == names
    torch.testing.assert_close(editor.program.module()(X), program_of(branches).module()(X))


def test_the_limit_counts_all_graphs() -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        return branches(m, x.neg().neg().exp()).neg().neg()

    journals = []
    for limit in (1, 2, 3, None):
        editor = GraphEditor(copy_program(program_of(function)))
        report = RuleEngine(NEGATIONS).run(editor, RewriteOptions(limit=limit))
        journals.append([(one.number, one.graph, one.root) for one in report.journal])
        torch.testing.assert_close(editor.program.module()(X), program_of(function).module()(X))
    assert [len(one) for one in journals] == [1, 2, 3, 3]
    assert journals[0] == journals[3][:1]
    assert journals[1] == journals[3][:2]
    assert [graph for _, graph, _ in journals[3]] == ["", "", "true_graph_0"]
