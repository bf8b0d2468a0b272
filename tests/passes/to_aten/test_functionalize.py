"""Programs that write to tensors, made functional node by node, on torch as eager."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.passes.programs import Function
from torch import nn
from torch.export import ExportedProgram

from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import build, parse_program
from exirkit.ir import ModelError, called_graphs
from exirkit.passes import WholeGraphNeededError, decomposition_passes
from exirkit.passes.to_aten.whole_graph import DecomposeWholeGraph
from exirkit.passes.to_aten.written_operands import reject_writes_to_carried

X = torch.arange(12.0).reshape(3, 4) - 5


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


def test_values_whose_shape_is_changed_in_place() -> None:
    def other_shapes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.clone()
        part = y[:1]
        y.unsqueeze_(0)
        y.add_(1)
        y.transpose_(0, 2)
        part.mul_(3)
        return y * 2, part, y.squeeze_(2).t_()

    program = exported(Function(other_shapes), X)
    with torch.no_grad():
        for one, other in zip(alone(program).module()(X), other_shapes(X), strict=True):
            assert torch.equal(one, other)


def test_parts_of_a_split_are_written_apart() -> None:
    """Nothing is put together that nothing reads, as the gates of a recurrent cell."""

    def gates(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second, third = x.neg().split(1)
        first.add_(x[:1]).sigmoid_()
        part = second[:, 1:]
        second.mul_(2)
        third.add_(first)
        return first, second, third, part + 1

    program = exported(Function(gates), torch.randn(3, 4))
    made = alone(program)
    assert not any("scatter" in str(node.target) for node in made.graph.nodes)
    x = torch.randn(3, 4)
    for one, other in zip(made.module()(x), gates(x), strict=True):
        assert torch.equal(one, other)


_RESHAPED_RESULT = """program(1)

def forward(x: "f32[2, 3]"):
    y = aten.neg.default(x)
    z = aten.unsqueeze_.default(y, 0)
    return y, z

run("forward", x=dyadic(1))
"""


def test_what_torch_has_to_do() -> None:
    program = build(parse_program(_RESHAPED_RESULT))["forward"]
    with pytest.raises(WholeGraphNeededError, match="changes the shape of a result"):
        alone(program)


_WRITTEN_IN_A_LOOP = """program(1)

def forward(x: "f32[2, 2]", n: "i64[]"):
    y = aten.clone.default(x)
    def on(a, b):
        c = aten.lt.Scalar(a, 2)
        return c
    def turn(d, e):
        part = aten.select.int(e, 0, 1)
        f = aten.add_.Scalar(part, 1)
        g = aten.add.Scalar(d, 1)
        return g
    m = while_loop(on, turn, [n], [y])
    return m, y

run("forward", x=dyadic(1), n=zeros())
"""


_VIEW_GIVEN_TO_A_LOOP = """program(1)

def forward(x: "f32[2]", n: "i64[]"):
    y = aten.zeros_like.default(x)
    v = aten.alias.default(y)
    a = aten.copy_.default(y, x)
    def on(i, t):
        g = aten.lt.Scalar(i, 3)
        return g
    def turn(j, u):
        w = aten.add_.Scalar(u, 2)
        k = aten.add.Scalar(j, 1)
        return k
    m = while_loop(on, turn, [n], [v])
    return m, y

run("forward", x=numbers([1, 5]), n=zeros())
"""


def test_a_loop_that_writes_begins_with_what_its_operand_shows() -> None:
    # The view was taken before its base was written to.
    assert check(parse_program(_VIEW_GIVEN_TO_A_LOOP)).is_good


def test_torch_forgets_what_bodies_write_to_their_operands() -> None:
    program = build(parse_program(_WRITTEN_IN_A_LOOP))["forward"]
    with pytest.raises(ModelError, match="writes to an operand, in a program that torch has to decompose as a whole"):
        DecomposeWholeGraph().call(program)
    made = alone(program).module()(X[:2, :2], torch.tensor(0))
    assert torch.equal(made[1], X[:2, :2] + torch.tensor([[0.0], [2.0]]))


def test_one_memory_under_two_names() -> None:
    def both(x: torch.Tensor) -> Any:
        y = x * 1
        same = torch.cond(x.sum() > 0, lambda a: a, lambda a: a + 1, (y,))
        y.add_(1)
        return same, y

    with pytest.raises(ModelError, match="under another name"):
        alone(exported(Function(both), X))


@pytest.mark.parametrize(
    ("kind", "writes", "what"),
    [
        ("while_loop", [{}, {0: None}], "a value that it carries"),
        ("while_loop", [{1: None}, {}], "the condition of a loop"),
        ("map", [{1: None}], "the body of map"),
        ("while_loop", [{}, {1: None}], ""),
        ("cond", [{0: None}, {}], ""),
        ("while_loop", [{}, {}], ""),
    ],
)
def test_writes_that_no_result_of_a_call_stands_for(kind: str, writes: Any, what: str) -> None:
    node = torch.fx.Graph().placeholder("x")
    carried = (node,) if kind == "while_loop" else ()
    call: Any = SimpleNamespace(kind=kind, carried=carried, node=node)
    if not what:
        reject_writes_to_carried(call, writes)
        return
    with pytest.raises(ModelError, match=f"EK427.*{what}"):
        reject_writes_to_carried(call, writes)
