"""Ranges of elements: wrong claims are rejected, loops end, and rules use what is inferred."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.ir import ModelError
from exirkit.patterns import (
    Inference,
    InferredValues,
    Range,
    check_propagation,
    facts_of,
    load_inference,
    load_propagation,
    parse_analysis,
)

HEAD = "propagation: 1\nid: test.ranges\nvalues: ranges\ntransfer:\n"

WRONG = {
    "mean rounds beyond its elements": ("aten.mean.default", "range(self)", ""),
    "negative": ("aten.neg.default", "range(self)", ""),
    "sum without its count": ("aten.add.Tensor", "hull(range(self), range(other))", ""),
    "alpha is left out": ("aten.sub.Tensor", "range(self) - range(other)", ""),
    "softmax of infinite scores": ("aten._softmax.default", "[0, 1]", ""),
    "tanh is below 1": ("aten.tanh.default", "[-0.99, 0.99]", "rank(self) >= 0"),
    "logarithm of negative numbers": ("aten.log.default", "[-inf, inf]", ""),
    "reciprocal root of minus zero": ("aten.rsqrt.default", "[0, inf]", "range(self).lo < 0"),
    "product of ends": ("aten.mul.Tensor", "[range(self).lo * range(other).lo, range(self).hi * range(other).hi]", ""),
    "absolute value": ("aten.abs.default", "[0, range(self).hi]", ""),
    "places of another dim": ("aten.argmax.default", "[0, 1]", ""),
}


def written(row: tuple[str, str, str]) -> str:
    ops, result, nan = row
    return f"{HEAD}- ops: {ops}\n  result: '{result}'\n" + (f"  nan: {nan}\n" if nan else "")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_claims_are_rejected_with_a_counterexample(name: str) -> None:
    found = check_propagation(parse_analysis(written(WRONG[name]), "wrong.yaml")).found
    assert [one.code for one in found] == ["EK255"], found
    assert found[0].location.line == 5
    assert any(note.startswith("self = ") for note in found[0].notes)


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (("aten.relu.default", "range(slef)", ""), "EK220"),
        (("aten.relu.default", "rank(self) +", ""), "EK220"),
        (("aten.rellu.default", "range(self)", ""), "EK291"),
        (("aten.relu.default", "users(self)", ""), "EK291"),
        (("aten.convolution.default", "range(input)", ""), "EK293"),
    ],
)
def test_wrong_forms_are_rejected(row: tuple[str, str, str], code: str) -> None:
    assert {one.code for one in check_propagation(parse_analysis(written(row))).found} == {code}


def test_an_expression_without_a_value_claims_nothing() -> None:
    assert check_propagation(parse_analysis(written(("aten.relu.default", "rank(self)[3]", "")))).is_accepted


def test_kinds_are_told_apart() -> None:
    with pytest.raises(ModelError, match="infers what is known"):
        load_propagation("ranges.elements")
    with pytest.raises(ModelError, match="chooses values"):
        load_inference("layout.permutes")


def inferred(function: Callable[..., Any], *inputs: torch.Tensor) -> dict[str, Range]:
    """Return the ranges of a function's results, and of all its calls by operator."""
    return inferred_by(load_inference("ranges.elements"), exported(function, *inputs))


def inferred_by(made: Inference, program: ExportedProgram) -> dict[str, Range]:
    return {node.name: fact for node, fact in facts_of(InferredValues(made), program.graph)}


def exported(function: Callable[..., Any], *inputs: torch.Tensor) -> ExportedProgram:

    class Model(torch.nn.Module):
        def forward(self, *args: torch.Tensor) -> Any:
            return function(*args)

    return torch.export.export(Model(), inputs, strict=False)


def test_ranges_of_a_graph() -> None:
    found = inferred(lambda x: (x.sigmoid() * 3 - 1, x.argmax(-1), x.exp().clamp(max=7)), torch.randn(2, 5))
    assert found["sub"] == Range(-1.0, 2.0, nan=True)
    assert found["argmax"] == Range(0, 9)
    assert found["clamp"] == Range(0.0, 7.0, nan=True)


def test_integers_that_wrap_around_are_unknown() -> None:
    small = torch.zeros(3, dtype=torch.uint8)
    found = inferred(lambda x: (x + x, torch.ops.aten._to_copy.default(x, dtype=torch.int32) + x), small)
    assert found["add"] == Range(0, 255)
    assert found["add_1"] == Range(0, 510)


def test_loops_widen_in_the_direction_in_which_they_grow() -> None:
    def count(x: torch.Tensor) -> Any:
        def body(n: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
            return n + 1, torch.relu(y) * 2, z.clamp(0, 5)

        start = torch.zeros((), dtype=torch.int64)
        return torch.while_loop(lambda n, y, z: n < 4, body, (start, x.sigmoid(), x.tanh().abs()))

    found = inferred(count, torch.randn(3))
    n, y, z = (found[f"getitem{end}"] for end in ("", "_1", "_2"))
    # What is added may wrap around, so that there is no lower end either.
    assert n == Range(torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max)
    assert (y.lo, y.hi) == (0.0, math.inf)
    assert (z.lo, z.hi) == (0.0, 1.0)


@pytest.fixture(scope="module")
def loop() -> ExportedProgram:
    def function(x: torch.Tensor) -> Any:
        start = torch.zeros((), dtype=torch.int64)
        return torch.while_loop(lambda n, y: n < 4, lambda n, y: (n + 1, y.neg()), (start, x.sigmoid()))

    return exported(function, torch.randn(3))


@pytest.mark.parametrize(("widen", "most"), [(1, 2), (1, 3), (3, 3), (3, 4), (3, 5), (6, 7), (6, 8)])
def test_what_a_loop_carries_grows_so_often_before_it_has_no_end(loop: ExportedProgram, widen: int, most: int) -> None:
    rows = f"""- ops: aten.sigmoid.default
  result: '[0, 1]'
- ops: aten.neg.default
  result: 'smaller_of(range(self) + 1, {most})'
"""
    made = parse_analysis(HEAD.replace("transfer", f"widen: {widen}\ntransfer") + rows)
    assert isinstance(made, Inference)
    found = inferred_by(made, loop)["getitem_1"]
    assert found.lo == 0
    # It begins with 1, and each round adds 1 until there are `most`.
    assert found.hi == (most if most - 1 <= widen else math.inf)


def test_branches_join() -> None:
    found = inferred(
        lambda p, x: torch.cond(p, lambda y: y.sigmoid(), lambda y: y.tanh() * 2, (x,)),
        torch.tensor(True),
        torch.randn(3),
    )
    assert (found["getitem"].lo, found["getitem"].hi) == (-2.0, 2.0)


def targets(model: torch.nn.Module, level: int, *inputs: torch.Tensor) -> list[str]:
    """Return the operators of a lowered model."""
    lowered = to_edge(torch.export.export(model.eval(), inputs)).to_executorch(
        ExecutorchBackendConfig(optimization_level=level)
    )
    nodes = lowered.exported_program().graph.nodes
    return [str(node.target) for node in nodes if isinstance(node, Node) and node.op == "call_function"]


class Limits(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        places = x.argmax(-1).to(torch.int32).to(torch.int64)
        return x.sigmoid().clamp(0, 1), torch.relu(x.exp()), places.clamp(0, 100), (x + 1).clamp(0, 1)


def test_limits_that_never_act_go() -> None:
    before, after = targets(Limits(), 0, torch.randn(3, 4)), targets(Limits(), 1, torch.randn(3, 4))
    assert [sum("clamp" in one or "relu" in one for one in each) for each in (before, after)] == [4, 1]
    assert [sum("_to_dim_order_copy" in one for one in each) for each in (before, after)] == [2, 0]


class Rounds(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        def body(n: torch.Tensor, y: torch.Tensor) -> Any:
            return n + 1, torch.relu(y).tanh()

        return torch.while_loop(lambda n, y: n < 4, body, (torch.zeros((), dtype=torch.int64), x.sigmoid()))


def test_rules_in_a_loop_know_what_every_round_begins_with() -> None:
    assert any("relu" in one for one in body_targets(0))
    assert not any("relu" in one for one in body_targets(1))


def body_targets(level: int) -> list[str]:
    lowered = to_edge(torch.export.export(Rounds(), (torch.randn(3),))).to_executorch(
        ExecutorchBackendConfig(optimization_level=level)
    )
    bodies = [one for _, one in lowered.exported_program().graph_module.named_children()]
    return [str(node.target) for body in bodies for node in body.graph.nodes]


def test_arguments_of_which_a_result_does_not_depend_are_not_asked_for() -> None:
    inference = load_inference("ranges.elements")
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), torch.nn.ReLU())
    program = to_edge(torch.export.export(model, (torch.randn(1, 3, 4, 4),))).exported_program()
    asked: list[str] = []

    def stored(node: Node) -> torch.Tensor | None:
        asked.append(node.name)
        return torch.zeros(())

    values = InferredValues(inference, stored)
    (relu,) = [node for node in program.graph.nodes if "relu" in node.name]
    assert values.of(relu).lo == 0
    # Nothing is known of a convolution, whatever its weight is.
    assert not asked
