"""Programs that write to tensors, made functional node by node, on torch as eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from exirkit.ir import ModelError, called_graphs
from exirkit.passes import Pipeline, WholeGraphNeededError, decomposition_passes

X = torch.arange(12.0).reshape(3, 4) - 5

FUNCTIONS: dict[str, Callable[..., Any]] = {}


def form(function: Callable[..., Any]) -> Callable[..., Any]:
    FUNCTIONS[function.__name__] = function
    return function


@form
def rows_and_columns(x: Any) -> Any:
    y = x * 2
    row, column = y[1], y[:, 2]
    row.add_(100)
    column.mul_(-1)
    y[2, 3] = 7
    return y, row, column, row + column[:1]


@form
def written_through_many_views(x: Any) -> Any:
    y = x + 0
    turned = y.t().reshape(4, 3, 1).squeeze(2).permute(1, 0).unsqueeze(0)
    turned[0, 1:].copy_(x[0])
    y.transpose(0, 1)[0].fill_(3)
    turned.view(-1)[::5].zero_()
    y.expand(3, 4).diagonal().sub_(1)
    return turned, y.sum(), y


@form
def parts(x: Any) -> Any:
    y = x.clone()
    first, second, third = y.split(1)
    left, right = y.split([1, 3], dim=1)
    first.add_(1)
    right.mul_(second[:, 1:] + 0)
    y.unbind(1)[3].neg_()
    y.unbind(0)[1].add_(right[0, 0])
    return first + third, left, right, y


@form
def old_values_stay(x: Any) -> Any:
    y = x * 1
    before = y + 0
    view = y[0]
    kept = view * 1
    y.relu_().add_(view + 0)
    return before, kept, view, y


@form
def types_of_places(x: Any) -> Any:
    y = x.to(torch.int32)
    y[0].add_(torch.ones(4, dtype=torch.int64) * 300)
    z = (x > 0).clone()
    z.logical_not_()
    half = x.half()
    half.mul_(x[0].float())
    y.copy_(x * 1.5)
    return y, z, half


@form
def names_of_one_value(x: Any) -> Any:
    y = x.clone()
    same = y.add_(1)
    again = same.mul_(2)
    y.detach_().sub_(3)
    return y, same, again + same


@form
def rows_of_an_input(x: Any) -> Any:
    x[1:].add_(1)
    y = x.view(-1)
    y[0] = 9
    return x.sum(), y * 1


@form
def turned_memory(x: Any) -> Any:
    y = x.t().clone(memory_format=torch.preserve_format)
    flat = x.clone().view(12)
    y.copy_(flat.view(4, 3))
    flat[3:6] = y[:3, 0]
    return y.t().reshape(-1) + flat, y


@form
def branches_write(x: Any) -> Any:
    y, z = x * 1, x + 1

    def yes(a: Any, b: Any) -> Any:
        a[0].add_(b[1])
        return a.sum() + b

    def no(a: Any, b: Any) -> Any:
        inner = torch.cond(b.sum() > 3, lambda c: c.mul_(2) + 1, lambda c: c - 1, (b,))
        return inner + a

    chosen = torch.cond(x[0, 0] > -5, yes, no, (y, z))
    return chosen, y, z, y.view(-1) + z.view(-1)


class Stored(nn.Module):
    count: torch.Tensor
    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.ones(3, 4))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> Any:
        self.total[1].add_(x[0])
        self.count += 1
        read = self.total * self.count
        self.total.mul_(2)
        x.add_(self.count)
        return read, self.total[1:], self.count, x


def exported(module: nn.Module, *arguments: torch.Tensor) -> ExportedProgram:
    with torch.no_grad():
        return torch.export.export(module, arguments)


def alone(program: ExportedProgram) -> ExportedProgram:
    """Decompose without the way out that traces the whole graph."""
    for one in decomposition_passes():
        program, _report = one.apply(program)
    for module in called_graphs(program.graph_module):
        for node in module.graph.nodes:
            schema = getattr(node.target, "_schema", None)
            assert schema is None or not schema.is_mutable, node.format_node()
    return program


class Called(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_eager(name: str) -> None:
    module = Called(FUNCTIONS[name])
    program = alone(exported(module, X.clone()))
    for given in (X, -X, X * 3 + 1):
        mine, theirs = given.clone(), given.clone()
        with torch.no_grad():
            got, expected = program.module()(mine), module(theirs)
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
        assert torch.equal(mine, theirs)


def test_buffers_and_inputs_are_mutated_at_the_end() -> None:
    module = Stored()
    program = alone(exported(copy.deepcopy(module), X.clone()))
    assert list(program.graph_signature.buffers_to_mutate.values()) == ["count", "total"]
    assert list(program.graph_signature.user_inputs_to_mutate.values()) == ["x"]
    run = program.module()
    for _ in range(3):
        mine, theirs = X.clone(), X.clone()
        with torch.no_grad():
            got, expected = run(mine), module(theirs)
        for one, other in zip((*got, mine), (*expected, theirs), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_what_torch_has_to_do() -> None:
    def another_shape(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.unsqueeze_(0)
        return y.add_(1)

    program = exported(Called(another_shape), X)
    with pytest.raises(WholeGraphNeededError, match="changes the shape"):
        alone(program)
    made = Pipeline.shipped("to_edge").run(program).program
    with torch.no_grad():
        assert torch.equal(made.module()(X), another_shape(X))


def test_one_memory_under_two_names() -> None:
    def both(x: torch.Tensor) -> Any:
        y = x * 1
        same = torch.cond(x.sum() > 0, lambda a: a, lambda a: a + 1, (y,))
        y.add_(1)
        return same, y

    with pytest.raises(ModelError, match="under another name"):
        alone(exported(Called(both), X))
