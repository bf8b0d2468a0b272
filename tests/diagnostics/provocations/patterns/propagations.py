"""Wrong propagations."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.diagnostics.programs import edge, exported
from tests.diagnostics.provocation import provokes

from exirkit.ir import Diagnostic
from exirkit.passes import PropagationPass
from exirkit.patterns import account_of_node, check_propagation, parse_analysis, parse_propagation, problem_of, solve

LAYOUT = """propagation: 1
id: my.layout
values: [nchw, nhwc]
of: rank(x) == 4
materialise:
  nchw -> nhwc: return aten.permute_copy.default(x, [0, 2, 3, 1])
  nhwc -> nchw: return aten.permute_copy.default(x, [0, 3, 1, 2])
transfer:
- ops: aten.relu.default
  args: same
  result: same
"""

MEMORY = """propagation: 1
id: my.memory
values: [nchw, nhwc]
of: rank(x) == 4
compare: layouts
materialise:
  nchw -> nhwc: return dim_order_ops._to_dim_order_copy.default(x, dim_order=[0, 2, 3, 1])
  nhwc -> nchw: return dim_order_ops._to_dim_order_copy.default(x, dim_order=[0, 1, 2, 3])
transfer:
- ops: aten.amax.default
  args: {self: nhwc}
  result: nhwc
"""


def found(text: str) -> list[Diagnostic]:
    """Return what is wrong with a propagation."""
    return check_propagation(parse_propagation(text, "layout.yaml")).found


@provokes("EK290")
def misspelt_key(_: Path) -> object:
    return found(LAYOUT.replace("args:", "arg:"))


@provokes("EK291")
def unknown_value(_: Path) -> object:
    return found(LAYOUT.replace("result: same", "result: nhcw"))


@provokes("EK292")
def softmax_over_another_axis(_: Path) -> object:
    wrong = found(LAYOUT.replace("relu.default", "_softmax.default"))
    # Numbers differ in their last digits from machine to machine.
    return [one.model_copy(update={"message": one.message.partition(":")[0], "notes": one.notes[1:]}) for one in wrong]


@provokes("EK293")
def convolution_without_a_draw(_: Path) -> object:
    wrong = found(LAYOUT.replace("relu.default", "convolution.default"))
    return [one.model_copy(update={"message": one.message.partition(":")[0]}) for one in wrong]


@provokes("EK294")
def conversion_that_is_not_undone(_: Path) -> object:
    wrong = found(LAYOUT.replace("x, [0, 3, 1, 2]", "x, [0, 2, 3, 1]"))
    return [one.model_copy(update={"notes": ()}) for one in wrong]


@provokes("EK295")
def half_a_cost(_: Path) -> object:
    wrong = found(LAYOUT.replace("transfer:", "cost: numel(x) / 2\ntransfer:"))
    return [one.model_copy(update={"message": one.message.partition(" for ")[0]}) for one in wrong]


@provokes("EK296")
def cut_between_three_values(_: Path) -> object:
    text = LAYOUT.replace("[nchw, nhwc]", "[nchw, nhwc, chwn]")
    return [one for one in found(text.replace("of:", "solve: cut\nof:")) if one.code == "EK296"]


@provokes("EK297")
def layout_that_an_operator_does_not_give(path: Path) -> None:
    (path / "memory.yaml").write_text(MEMORY)
    program = edge(exported(lambda x: x.amax((0, 2), keepdim=True), torch.ones(2, 3, 5, 7)))
    PropagationPass(path / "memory.yaml", tries=False).apply(program)


@provokes("EK298")
def relu_that_stays_as_it_is(_: Path) -> object:
    program = edge(exported(torch.relu, torch.ones(2, 3, 5, 7)))
    solution = solve(problem_of(parse_propagation(LAYOUT, "layout.yaml"), program.graph))
    return [account_of_node(solution, node).diagnostic() for node in solution.chosen]


RANGES = """propagation: 1
id: my.ranges
values: ranges
transfer:
- ops: aten.neg.default
  result: range(self)
"""


@provokes("EK249")
def analysis_that_chooses_nothing(path: Path) -> None:
    (path / "ranges.yaml").write_text(RANGES)
    PropagationPass(path / "ranges.yaml").apply(edge(exported(torch.relu, torch.ones(2, 3))))


@provokes("EK255")
def negative_that_stays_in_its_range(_: Path) -> object:
    wrong = check_propagation(parse_analysis(RANGES, "ranges.yaml")).found
    # Numbers differ in their last digits from machine to machine.
    return [one.model_copy(update={"message": one.message.partition(":")[0], "notes": ()}) for one in wrong]
