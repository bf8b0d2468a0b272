"""Passes that report wrongly, that are not done when they have run, and rules whose results are taken back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.fx import GraphModule

from exirkit import Pass, PassResult, ops
from exirkit.fuzz.compilers import ExirkitCompiler, LoweringTrace
from exirkit.fuzz.examination.stage_audit import StageAudit
from exirkit.fuzz.oracles import DEFAULT_ORACLES, check
from exirkit.fuzz.programs import parse_program
from exirkit.fuzz.triage import find_culprit
from exirkit.ir import GraphEditor
from exirkit.passes import PromoteTypes, WriteInPlace
from exirkit.patterns.engine.application import RuleApplication

PROGRAM = parse_program(
    """program(1)

def forward(x: "f32[3]", n: "i32[3]"):
    y = aten.sub.Tensor(x, x, alpha=2)
    z = aten.div.Tensor(n, n)
    return y, z

run("forward", x=dyadic(1), n=numbers([1, 2, 3]))
"""
)
ORACLES = ["truthful-passes", "idempotent-passes", "rule-contracts"]


def hides_its_change(module: GraphModule) -> PassResult:
    """Swap the operands of a sum, which changes nothing but the graph."""
    for node in module.graph.nodes:
        if node.target is ops.edge.aten.sub.Tensor and "alpha" in node.kwargs:
            with module.graph.inserting_before(node):
                once = module.graph.call_function(ops.edge.aten.sub.Tensor, node.args)
                twice = module.graph.call_function(ops.edge.aten.sub.Tensor, (once, node.args[1]))
            once.meta["val"] = twice.meta["val"] = node.meta["val"]
            node.replace_all_uses_with(twice)
            module.graph.erase_node(node)
            return PassResult(module, modified=False)
    return PassResult(module, modified=False)


def claims_a_change(module: GraphModule) -> PassResult:
    """Change nothing."""
    return PassResult(module, modified=True)


class Grows(Pass):
    """Negates twice, again and again."""

    name = "grows"

    def edit(self, editor: GraphEditor) -> None:
        node = next(one for one in editor.graph.nodes if one.target is ops.edge.aten.sub.Tensor)
        once = editor.call(ops.edge.aten.neg.default, node.args[:1], before=node, origins=node)
        twice = editor.call(ops.edge.aten.neg.default, (once,), before=node, origins=node)
        editor.rewire(node, args=(twice, node.args[1]))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_chain_reports_truthfully_and_is_done(level: int) -> None:
    verdict = check(PROGRAM, compiler=ExirkitCompiler(level=level), oracles=ORACLES, seed=1)
    assert verdict.is_good, verdict.failures
    assert not verdict.not_run


SUM = parse_program(
    """program(1)

def forward(x: "f32[3]"):
    y = aten.neg.default(x)
    z = aten.add.Tensor(y, x)
    return z

run("forward", x=dyadic(1))
"""
)


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_result_over_an_argument_is_a_change(monkeypatch: pytest.MonkeyPatch, is_silent: bool) -> None:
    """The graph, and what is recorded for each value, are the same then; only the spec is that of another value."""
    compiler = ExirkitCompiler(level=0, kernels="official", reinplace_extra_ops=("aten.add.Tensor",))
    run = WriteInPlace.run

    def silent(self: WriteInPlace, editor: GraphEditor) -> Any:
        return replace(run(self, editor), modified=False)

    if is_silent:
        monkeypatch.setattr(WriteInPlace, "run", silent)
    verdict = check(SUM, compiler=compiler, oracles=["truthful-passes"], seed=1)
    assert [one.stage for one in verdict.failures] == ["write-in-place"] * is_silent


def test_stages_are_examined_while_the_program_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[LoweringTrace] = []
    lower = ExirkitCompiler.lower

    def noted(self: ExirkitCompiler, programs: Any, trace: LoweringTrace) -> Any:
        lowered.append(trace)
        return lower(self, programs, trace)

    monkeypatch.setattr(ExirkitCompiler, "lower", noted)
    assert check(PROGRAM, seed=1).is_good
    assert check(PROGRAM, seed=2).is_good
    assert check(PROGRAM, oracles=ORACLES, seed=1).is_good
    assert [isinstance(one, StageAudit) for one in lowered] == [True, False, True, True]


@pytest.mark.parametrize(
    ("edit", "oracle"),
    [(hides_its_change, "truthful-passes"), (Grows(), "idempotent-passes")],
    ids=["hides", "grows"],
)
def test_a_pass_of_a_user(edit: Any, oracle: str) -> None:
    compiler = ExirkitCompiler(level=0, passes=(edit,))
    verdict = check(PROGRAM, compiler=compiler, oracles=[*DEFAULT_ORACLES, oracle], seed=1)
    assert [one.oracle for one in verdict.failures] == [oracle]
    name = getattr(edit, "name", None) or edit.__name__
    assert find_culprit(PROGRAM, verdict.failures[0], compiler=compiler).part == name


def test_a_pass_of_the_chain_whose_report_is_false(monkeypatch: pytest.MonkeyPatch) -> None:
    run = PromoteTypes.run

    def wrong(self: PromoteTypes, editor: GraphEditor) -> Any:
        report = run(self, editor)
        return type(report)(report.name, not report.modified, *list(vars(report).values())[2:])

    monkeypatch.setattr(PromoteTypes, "run", wrong)
    verdict = check(PROGRAM, compiler=ExirkitCompiler(verify="none"), oracles=["truthful-passes"], seed=1)
    assert [one.stage for one in verdict.failures] == ["promote-types"]


def test_what_is_not_a_finding() -> None:
    claims = ExirkitCompiler(level=0, passes=(claims_a_change,))
    assert check(PROGRAM, compiler=claims, oracles=ORACLES, seed=1).is_good
    others = ExirkitCompiler(level=0, passes=(hides_its_change,))
    assert check(PROGRAM, compiler=others, oracles=ORACLES, seed=2).is_good


def test_a_rule_whose_result_is_taken_back(tmp_path: Path) -> None:
    book = tmp_path / "wrong.yaml"
    book.write_text(
        """rulebook: 1
namespace: wrong
doc: A rule that breaks its contract.
rules:
- id: wrong.quotient
  doc: The quotient of integers is a float, and the product is not.
  vars: {x: "i32 [*S]", y: "i32 [*S]"}
  match: return aten.div.Tensor(x, y)
  replace: return aten.mul.Tensor(x, y)
"""
    )
    compiler = ExirkitCompiler(rules=(str(book),))
    others = [name for name in DEFAULT_ORACLES if name != "rule-contracts"]
    assert check(PROGRAM, compiler=compiler, oracles=others).is_good
    verdict = check(PROGRAM, compiler=compiler, oracles=ORACLES)
    assert [one.oracle for one in verdict.failures] == ["rule-contracts"]
    assert find_culprit(PROGRAM, verdict.failures[0], compiler=compiler).rule == "wrong.quotient"


def test_a_replacement_in_front_of_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine rejects the application, so that nothing but this oracle sees that it had chosen the wrong place."""
    text = """program(1)

def forward(x: "f32[3, 2]", y: "f32[3, 2]"):
    a = aten.neg.default(x)
    b = aten.abs.default(y)
    z = aten.add.Tensor(b, a)
    return z

run("forward", x=dyadic(1), y=dyadic(2))
"""
    program = parse_program(text)
    assert check(program, oracles=ORACLES).is_good
    monkeypatch.setattr(RuleApplication, "_place", lambda _, roots, state: min(state.nodes))
    verdict = check(program, oracles=ORACLES)
    assert [one.oracle for one in verdict.failures] == ["rule-contracts"]
    assert "add-neg-to-sub" in verdict.failures[0].message
