"""The minimum cut has the least cost of all choices, and the same choice every time; other solvers are sound."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from tests.patterns.propagation.declarations import BASE, parsed, with_rows
from tests.work import counted
from torch.fx import Graph, Node

from exirkit.patterns import InferredValues, Problem, Solution, Solver, facts_of, load_inference, problem_of, solve

ROWS = """- ops: aten.convolution.default
  args: {input: nhwc}
  result: nhwc
- ops: aten.neg.default
  args: same
  result: same
  cost: {nchw: "3", nhwc: "7"}
- family: [unary_pointwise, pointwise]
  args: same
  result: same
- ops: aten.cat.default
  args: same
  result: same
  adapt: {dim: "inverse(perm)[dim]"}
- ops: aten.split_with_sizes_copy.default
  args: same
  result: same
  adapt: {dim: "inverse(perm)[dim]"}
"""
MADE = parsed(with_rows(ROWS))
SIZES = (1, 2, 3, 5)
aten = torch.ops.aten


def tensor(size: int) -> torch.Tensor:
    return torch.empty(1, 1, 1, size, device="meta")


def call(graph: Graph, op: Any, args: tuple[Any, ...], value: object) -> Node:
    node = graph.call_function(op, args)
    node.meta["val"] = value
    return node


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, list[Node]]:
    """Return a graph of calls that have rows and calls that have none, and its stored tensors.

    Sizes differ on purpose: shapes need not fit for a solver.
    """
    graph = Graph()
    values, stored = [], []
    for number in range(draw(st.integers(1, 3))):
        node = graph.placeholder(f"x{number}")
        node.meta["val"] = tensor(draw(st.sampled_from(SIZES)))
        values.append(node)
        if draw(st.booleans()):
            stored.append(node)
    for _ in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from(["conv", "relu", "neg", "add", "cat", "view", "split"]))
        one, other = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        size = tensor(draw(st.sampled_from(SIZES)))
        if kind == "conv":
            args = (one, other, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
            values.append(call(graph, aten.convolution.default, args, size))
        elif kind == "split":
            made = call(graph, aten.split_with_sizes_copy.default, (one, [1, 1], 3), [size, size])
            values += [call(graph, operator.getitem, (made, index), size) for index in range(2)]
        elif kind == "add":
            values.append(call(graph, aten.add.Tensor, (one, other), size))
        elif kind == "cat":
            values.append(call(graph, aten.cat.default, ([one, other, one], 3), size))
        else:
            op = {"relu": aten.relu.default, "neg": aten.neg.default, "view": aten.view_copy.default}[kind]
            values.append(call(graph, op, (one, [1, 1, 1, -1]) if kind == "view" else (one,), size))
    graph.output(tuple(draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))))
    return graph, stored


def every_solution(problem: Problem) -> list[Solution]:
    choices = problem.choices
    picks = itertools.product(problem.made.names, repeat=len(choices))
    return [Solution(problem, dict(zip(choices, pick, strict=True))) for pick in picks]


@settings(max_examples=250)
@given(graphs())
def test_the_cut_costs_least_and_converts_least_often(drawn: tuple[Graph, list[Node]]) -> None:
    graph, stored = drawn
    problem = problem_of(MADE, graph, stored)
    found = solve(problem, "cut")
    least = min((one.cost, len(one.paid)) for one in every_solution(problem))
    assert (found.cost, len(found.paid)) == least


@settings(max_examples=100)
@given(graphs())
def test_other_solvers_never_beat_the_cut_and_all_repeat_themselves(drawn: tuple[Graph, list[Node]]) -> None:
    graph, stored = drawn
    problem = problem_of(MADE, graph, stored)
    least = solve(problem, "cut").cost
    for solver in ("cut", "forward", "backward", "local"):
        one, other = (solve(problem_of(MADE, graph, stored), solver) for _ in range(2))
        assert one.chosen == other.chosen
        assert list(one.chosen) == problem.choices
        assert one.cost >= least


@settings(max_examples=100)
@given(graphs(), st.data())
def test_forced_values_are_kept_at_the_least_cost(drawn: tuple[Graph, list[Node]], data: st.DataObject) -> None:
    graph, stored = drawn
    problem = problem_of(MADE, graph, stored)
    if not problem.choices:
        return
    node = data.draw(st.sampled_from(problem.choices))
    value = data.draw(st.sampled_from(MADE.names))
    found = solve(problem, forced={node: value})
    assert found.chosen[node] == value
    assert found.cost == min(one.cost for one in every_solution(problem) if one.chosen[node] == value)


def chain(count: int, *, every: int) -> Graph:
    """Return a chain of pointwise calls with residuals, and a convolution every so many calls."""
    graph = Graph()
    value = graph.placeholder("x")
    value.meta["val"] = torch.empty(1, 8, 8, 8, device="meta")
    skip = value
    for number in range(count):
        like = value.meta["val"]
        if number % every == every - 1:
            value = call(graph, aten.convolution.default, (value, skip, None, [1], [0], [1], False, [0], 1), like)
        elif number % 3 == 2:
            value = call(graph, aten.add.Tensor, (value, skip), like)
            skip = value
        elif number % (2 * every) == every // 2:
            value = call(graph, aten.view_copy.default, (value, [1, 8, 8, 8]), like)
        else:
            value = call(graph, aten.relu.default, (value,), like)
    graph.output((value,))
    return graph


def solved(solver: Solver, graph: Graph) -> Solution:
    return solve(problem_of(MADE, graph), solver)


@pytest.mark.parametrize("every", [7, 500, 20_000])
def test_a_least_cost_cut_grows_linearly(every: int) -> None:
    """Ten convolutions, or a thousand; few long stretches between them, or many short ones."""
    _, few = counted(solved, "cut", chain(1_000, every=every))
    solution, many = counted(solved, "cut", chain(10_000, every=every))
    assert len(solution.chosen) > 5_000
    assert many < 12 * few
    # 2 s on a machine of 2024 that does nothing else.
    assert many < 6_000_000


@pytest.mark.parametrize("solver", ["forward", "backward", "local"])
def test_the_other_solvers_grow_linearly(solver: Solver) -> None:
    _, few = counted(solved, solver, chain(1_000, every=500))
    _, many = counted(solved, solver, chain(10_000, every=500))
    assert many < 12 * few


def test_inference_grows_linearly() -> None:
    def inferred(graph: Graph) -> int:
        return len(dict(facts_of(InferredValues(load_inference("ranges.elements")), graph)))

    _, few = counted(inferred, chain(1_000, every=50))
    found, many = counted(inferred, chain(10_000, every=500))
    assert found > 10_000
    assert many < 12 * few


def test_conversions_of_one_tensor_for_several_users_count_once() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = tensor(5)
    convs = [
        call(graph, aten.convolution.default, (x, x, None, [1], [0], [1], False, [0], 1), tensor(2)) for _ in range(3)
    ]
    graph.output(tuple(convs))
    solution = solve(problem_of(MADE, graph))
    assert next((one.tensor, one.cost, len(one.uses)) for one in solution.paid) == (x, 5, 3)
    assert solution.cost == 5 + 3 * 2


def test_three_values_are_chosen_in_one_direction() -> None:
    text = BASE.replace("  nhwc: {", "  chwn: {perm: [1, 2, 3, 0]}\n  nhwc: {").replace(
        "transfer:",
        "  nchw -> chwn: return aten.permute_copy.default(x, [1, 2, 3, 0])\n"
        "  chwn -> nchw: return aten.permute_copy.default(x, [3, 0, 1, 2])\nsolve: forward\ntransfer:",
    )
    rows = (
        "- ops: aten.neg.default\n  result: chwn\n"
        "  call: 'return aten.permute_copy.default(aten.neg.default(self), [1, 2, 3, 0])'\n"
    )
    made = parsed(with_rows(rows + "- ops: aten.relu.default\n  args: same\n  result: same\n", text)).require_valid()
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = tensor(5)
    neg = call(graph, aten.neg.default, (x,), tensor(5))
    relu = call(graph, aten.relu.default, (neg,), tensor(5))
    graph.output((relu,))
    solution = solve(problem_of(made, graph))
    assert solution.chosen == {relu: "chwn"}
    assert [(one.given, one.wanted) for one in solution.conversions] == [("chwn", "nchw")]
