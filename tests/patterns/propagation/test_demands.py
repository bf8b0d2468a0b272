"""Analyses that demand: what users need flows to producers, and calls of which not all is needed become shorter."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.thoroughness import TRIES_ALL
from torch.export import ExportedProgram

from exirkit import to_edge
from exirkit.ir import ModelError, operator_name, register_quantized_decomposed
from exirkit.passes import PropagationPass
from exirkit.patterns import (
    Demands,
    NeededRanges,
    account_of_need,
    check_propagation,
    load_analysis,
    load_inference,
    load_propagation,
    parse_analysis,
)

register_quantized_decomposed()
quantized = torch.ops.quantized_decomposed


def q(x: torch.Tensor, scale: float = 0.25, zero: int = -128) -> torch.Tensor:
    made: torch.Tensor = quantized.quantize_per_tensor(x, scale, zero, -128, 127, torch.int8)
    return made


class Model(torch.nn.Module):
    """A module around a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)


def shortened(function: Any, *inputs: torch.Tensor, dynamic: Any = None) -> tuple[list[str], int]:
    """Return the operators of a function after calls became shorter, which changes no result; and how many."""
    model = Model(function)
    edge = to_edge(torch.export.export(model, inputs, dynamic_shapes=dynamic))
    chosen = PropagationPass("ranges.needed")
    edge = edge.transform([chosen])
    program = edge.exported_program()
    torch.testing.assert_close(program.module()(*inputs), model(*inputs), rtol=0, atol=0, equal_nan=True)
    assert chosen.report is not None
    graphs = [one for one in program.graph_module.modules() if isinstance(one, torch.fx.GraphModule)]
    nodes = [node for one in graphs for node in one.graph.nodes if node.op == "call_function"]
    return [str(operator_name(node.target)) for node in nodes], chosen.report.converted_calls


ODD = torch.tensor([[-3.0, 0.0, float("nan"), 70.0], [float("inf"), -0.0, 5.9, float("-inf")]]).view(1, 1, 2, 4)


@pytest.mark.parametrize(
    ("function", "gone"),
    [
        # What is quantized from its least integer on is cut at 0 there, over whatever only moves and compares.
        (lambda x: q(torch.max_pool2d(torch.relu(x), 2).permute(0, 2, 3, 1).reshape(-1)), 1),
        (lambda x: q(torch.nn.functional.relu6(x), 6 / 255), 1),
        (lambda x: q(torch.relu(torch.clamp(x, -1, 100))), 2),
        (lambda x: q(torch.cat([torch.relu(x), torch.relu(-x)])), 2),
        (lambda x: q(torch.maximum(torch.relu(x), x.clamp(min=-2))), 2),
        # Numbers below 0 are other integers.
        (lambda x: q(torch.relu(x), zero=-100), 0),
        # The greatest integer stands for less than the limit, and for more.
        (lambda x: q(torch.clamp(x, 0, 63.8)), 1),
        (lambda x: q(torch.clamp(x, 0, 63.6)), 0),
        # Another user needs all of it.
        (lambda x: [(q(y), y + 1) for y in [torch.relu(x)]], 0),
        (lambda x: [(q(y), q(y, 0.5)) for y in [torch.relu(x)]], 1),
        (lambda x: [(q(y), q(y, 0.5, 0)) for y in [torch.relu(x)]], 0),
        (lambda x: q(torch.relu(x) * -1), 0),
        # Two limits of which the second one makes the first one needless.
        (lambda x: torch.clamp(torch.clamp(x, -4, 9), -1, 6), 1),
        (lambda x: torch.clamp(torch.clamp(x, 0, 9), -1, 6), 0),
        # Indices say where the greatest number was.
        (lambda x: tuple(q(one) if one.is_floating_point() else one for one in torch.max(torch.relu(x), 3)), 0),
    ],
)
def test_limits_that_users_need_not_go(function: Any, gone: int) -> None:
    inputs = ODD.nan_to_num(2.0) if gone else ODD.nan_to_num(1.0)
    names, count = shortened(function, inputs.nan_to_num(posinf=1e30, neginf=-1e30))
    assert count == gone, names


@pytest.mark.skipif(not TRIES_ALL, reason="it compiles loops: EXIRKIT_TESTS=all runs it")
def test_needs_go_through_branches_and_loops() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    def branches(x: torch.Tensor) -> Any:
        def yes(y: torch.Tensor) -> torch.Tensor:
            return y.clone()

        def no(y: torch.Tensor) -> torch.Tensor:
            return torch.relu(y)

        return q(torch.cond(x.sum() > 0, yes, no, (torch.relu(x),)))

    names, count = shortened(branches, torch.tensor([1.0, -2.0, 3.0]))
    # The branch is solved on its own: what leaves it is as it was.
    assert (count, names.count("aten.relu.default")) == (1, 1)

    def loop(x: torch.Tensor, bodies: int = 2) -> Any:
        def more(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return i < 3

        def moved(i: torch.Tensor, y: torch.Tensor) -> Any:
            return i + 1, y.flip(0)

        def grown(i: torch.Tensor, y: torch.Tensor) -> Any:
            return i + 1, y + 0.5

        start, given = torch.tensor(0), torch.relu(x)
        return [q(while_loop(more, body, (start, given))[1]) for body in (moved, grown)[:bodies]]

    names, count = shortened(loop, torch.tensor([1.0, -2.0, 3.0]))
    # Both loops begin with one tensor, of which the second one needs everything.
    assert count == 0
    names, count = shortened(lambda x: loop(x, 1), torch.tensor([1.0, -2.0, 3.0]))
    assert (count, names.count("aten.relu.default")) == (1, 0)


GROWING = """propagation: 1
id: test.growing
demands: ranges
widen: {widen}
transfer:
- ops: [aten.tanh.default]
  needs: {{self: "[0, 1]"}}
- ops: [aten.neg.default]
  needs: {{self: "larger_of(need - 1, -{most})"}}
"""


@pytest.fixture(scope="module")
def loop() -> ExportedProgram:
    def function(x: torch.Tensor) -> Any:
        carried = torch.while_loop(lambda n, y: n < 4, lambda n, y: (n + 1, y.neg()), (torch.tensor(0), x.exp()))
        return carried[1].tanh()

    return torch.export.export(Model(function), (torch.ones(3),), strict=False)


@pytest.mark.parametrize(("widen", "most"), [(1, 1), (1, 2), (3, 2), (3, 3), (3, 4), (6, 6), (6, 7)])
def test_what_a_loop_needs_grows_so_often_before_it_has_no_end(loop: ExportedProgram, widen: int, most: int) -> None:
    made = parse_analysis(GROWING.format(widen=widen, most=most))
    assert isinstance(made, Demands)
    needed = NeededRanges(made, loop.graph)
    (start,) = [node for node in loop.graph.nodes if node.name == "exp"]
    need = needed.of(start)
    assert need is not None
    # Each round needs one more below, until it needs `most`; nothing grows above.
    assert need.lo == (-most if most <= widen else -math.inf)
    assert need.hi == 1


def test_sizes_may_vary() -> None:
    batch = torch.export.Dim("batch", min=2, max=8)
    _, count = shortened(lambda x: q(torch.relu(x).view(-1)), torch.randn(3, 5), dynamic=(({0: batch},),))
    assert count == 1


def test_it_says_who_needs_what() -> None:
    edge = to_edge(torch.export.export(Model(lambda x: q(torch.relu(x))), (torch.randn(3),)))
    made = load_analysis("ranges.needed")
    assert isinstance(made, Demands)
    needed = NeededRanges(made, edge.exported_program().graph)
    (relu,) = [one for one in needed.graph.nodes if "relu" in one.name]
    need = needed.of(relu)
    assert need is not None
    assert 0.1 < need.lo < 0.25 / 2 < 63.5 < need.hi < 63.75
    said = account_of_need(needed, relu)
    assert said.code == "EK298"
    assert "it can be replaced" in said.message
    assert "ranges.needed.yaml" in said.notes[0]
    for load in (load_propagation, load_inference):
        with pytest.raises(ModelError, match="EK249"):
            load("ranges.needed")


WRONG = {
    "a relu needs less": ('{self: "larger_of(need, 0)"}', '{self: "larger_of(need, 1)"}', "EK257"),
    "integers of other zeros": ("quant_min).lo - zero_point + 0.45)", "quant_min).lo + 0.45)", "EK257"),
    "halves": ("- zero_point + 0.45)", "- zero_point + 0.55)", "EK257"),
    "indices": (
        "aten.amin.default\n",
        "aten.amin.default\n  - aten.neg.default\n",
        "EK257",
    ),
    "pieces": ("{tensors: need}", '{tensors: "[0, 1]"}', "EK257"),
    "limits that act": ("where: need.lo >= 0", "where: need.hi >= 0", "EK258"),
    "one limit": (
        "where: min_val <= need.lo and need.hi <= max_val and",
        "where: min_val <= need.lo and",
        "EK258",
    ),
    "a condition that never holds": ("where: need.lo >= 0", "where: need.lo > need.hi", "EK293"),
    "an argument that there is not": ('needs: {self: "larger_of(need, 0)"}', 'needs: {input: "need"}', "EK291"),
    "a number": ("where: min_val <= max_val\n  needs: {self", "where: min_val <= max_val\n  needs: {min_val", "EK291"),
    "a name": ("where: need.lo >= 0", "where: ned.lo >= 0", "EK220"),
    "results": ("shorten:\n- ops: [aten.relu.default]", "shorten:\n- ops: [aten.unbind_copy.int]", "EK291"),
}


def test_wrong_declarations_are_rejected() -> None:
    """All wrong rows at once would hide each other: each is tried alone, with few trials, in a file of its own row."""
    text = "\n".join(load_analysis("ranges.needed").source.lines)
    for name, (right, wrong, code) in WRONG.items():
        assert right in text, name
        changed = text.replace(right, wrong, 1)
        found = check_propagation(parse_analysis(_about(changed, wrong), "wrong.yaml"), trials=12).found
        assert code in {one.code for one in found}, (name, [one.render() for one in found])


def _about(text: str, wrong: str) -> str:
    """Return a declaration with the rows that a change is in, and the draws."""
    head, _, rest = text.partition("transfer:\n")
    rows, _, rest = rest.partition("shorten:\n")
    shorter, _, draws = rest.partition("draw:\n")

    def kept(part: str, needle: str) -> str:
        each = ["- ops" + one for one in part.split("- ops")[1:]]
        chosen = [one for one in each if needle in one] or each[:1]
        return "".join(chosen)

    needle = wrong.replace("shorten:\n", "").strip()
    relu = '- ops: [aten.relu.default]\n  needs: {self: "larger_of(need, 0)"}\n'
    changed = kept(rows, needle) if needle in rows else relu
    return f"{head}transfer:\n{changed}shorten:\n{kept(shorter, needle)}draw:\n{draws}"
