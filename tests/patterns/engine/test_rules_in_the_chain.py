"""Rules on the way from a model to a file: on Edge programs, and with the same answers on both runtimes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.official.oracle import OfficialRuntime
from tests.patterns import rule_files
from torch._higher_order_ops.map import map as _map_rows

from exirkit import ApplyRules, ExecutorchBackendConfig, to_edge
from exirkit.patterns import load_book, parse_book
from exirkit.runtime_ref import Runtime


class Shuffles(torch.nn.Module):
    """Moves data about more than it needs to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.permute(1, 2, 0).permute(2, 0, 1) * 1.0 + 0
        return torch.neg(torch.neg(self.linear(y.unsqueeze(0).squeeze(0))))


map_rows: Any = _map_rows
MODEL = Shuffles().eval()
X = torch.randn(2, 3, 6)


def lowered(*passes: ApplyRules) -> bytes:
    edge = to_edge(torch.export.export(MODEL, (X,), strict=False))
    # What the shipped levels of optimization do would hide what these rules do.
    plain = ExecutorchBackendConfig(optimization_level=0)
    return bytes(edge.transform(list(passes)).to_executorch(plain).buffer)


@pytest.mark.executorch
def test_rules_on_an_edge_program(official_runtime: OfficialRuntime) -> None:
    rules = ApplyRules([*rule_files.book("canonicalize").rules, *rule_files.book("algebra").rules])
    plain, better = lowered(), lowered(rules)
    assert rules.report is not None
    assert {"canonicalize.permute-permute-merge", "simplify.neg-neg-remove", "simplify.mul-one-remove"} <= set(
        rules.report.applied
    )
    counts = []
    for data in (plain, better):
        program = Runtime.get().load_program(data)
        torch.testing.assert_close(program.load_method("forward").execute([X])[0], MODEL(X))
        counts.append(len(program._file.program.execution_plan[0].chains[0].instructions))
    assert counts[1] <= counts[0] - 4
    (got,) = official_runtime.run(better, [[X]]).unwrap()
    torch.testing.assert_close(got[0], MODEL(X))


class Branches(torch.nn.Module):
    """Branches that begin and end alike, one of which has a branch of its own, and rows of one operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inner(y: torch.Tensor) -> torch.Tensor:
            return torch.cond(y.sum() > 1, lambda z: (z.exp() + 1).relu(), lambda z: (z.exp() - 2).relu(), (y,))

        chosen = torch.cond(x.sum() > 0, lambda y: (inner(y.tanh()) * 2).sin(), lambda y: (y.tanh() - 1).sin(), (x,))
        rows: torch.Tensor = map_rows(lambda row: row.sigmoid(), chosen)
        return rows


@pytest.mark.executorch
def test_rules_about_bodies_on_an_edge_program(official_runtime: OfficialRuntime) -> None:
    rules = ApplyRules(load_book("control"))
    edge = to_edge(torch.export.export(Branches(), (X,), strict=False)).transform([rules])
    assert rules.report is not None
    # Branches in branches are rewritten, and so are those around them.
    applied = {(one.rule.partition(".")[2], bool(one.graph)) for one in rules.report.journal}
    common = {(name, inner) for name in ("common-operand", "common-result") for inner in (True, False)}
    assert applied == {*common, ("map-of-pointwise", False)}
    data = bytes(edge.to_executorch().buffer)
    inputs = [[X.abs()], [X.abs() * 0.01], [-X.abs()]]
    wanted = [Branches()(*one) for one in inputs]
    method = Runtime.get().load_program(data).load_method("forward")
    official = official_runtime.run(data, inputs).unwrap()
    for one, expected, (theirs,) in zip(inputs, wanted, official, strict=True):
        torch.testing.assert_close(method.execute(one)[0], expected)
        torch.testing.assert_close(theirs, expected)


def test_programs_are_not_changed_by_rules_on_their_copies() -> None:
    edge = to_edge(torch.export.export(MODEL, (X,), strict=False))
    before = str(edge.exported_program().graph)
    edge.transform([ApplyRules(rule_files.book("canonicalize"))])
    assert str(edge.exported_program().graph) == before


def test_an_invalid_book_is_rejected_at_once() -> None:
    from exirkit import ModelError

    with pytest.raises(ModelError, match="EK202"):
        ApplyRules(parse_book("rulebook: 1\nrule: []\n"))


class Strided(torch.nn.Module):
    """A convolution over every second element and a batch norm, as transformers' EfficientNet has them."""

    def __init__(self, padding: str | int) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(4, 6, 3, stride=2, padding=padding, bias=False)
        self.norm = torch.nn.BatchNorm2d(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.convolution(x))


@pytest.mark.parametrize("level", [2])
def test_a_padding_that_is_stated_once_changes_no_choice(level: int) -> None:
    stated, spelt = Strided("valid").eval(), Strided(0).eval()
    spelt.load_state_dict(stated.state_dict())
    images = torch.randn(1, 4, 9, 11)
    config = ExecutorchBackendConfig(optimization_level=level)
    programs = [torch.export.export(one, (images,)) for one in (stated, spelt)]
    edges = [to_edge(one) for one in programs]
    written = [[one.args[4] for one in each.exported_program().graph.nodes if len(one.args) == 9] for each in edges]
    assert written == [[[0]], [[0, 0]]], "torch spells both alike: this test shows nothing"
    # Rules see one number for each dim; where none applies, as at -O1, the call stays as torch wrote it.
    assert len({bytes(one.to_executorch(config).buffer) for one in edges}) == 1
