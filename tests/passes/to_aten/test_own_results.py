"""Programs whose results are inputs are traced again by torch."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from tests.passes.programs import core, exported, outputs
from torch import nn

from exirkit.fuzz.programs import build, parse_program
from exirkit.passes.to_aten.own_results import with_own_results
from exirkit.passes.to_aten.whole_graph import DecomposeWholeGraph


class Exchange(nn.Module):
    """Exchanges two buffers, the second written first."""

    a: torch.Tensor
    b: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(1))
        self.register_buffer("b", torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return something else."""
        kept = self.b.clone()
        self.b.copy_(self.a)
        self.a.copy_(kept)
        return x + 1


def test_exchanged_buffers_are_traced_again() -> None:
    program = core(Exchange(), torch.zeros(1))
    made = DecomposeWholeGraph()(program).exported_program
    assert {spec.target for spec in made.graph_signature.output_specs} == {"a", "b", None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        after: Any = made.module()
        assert torch.equal(after(torch.zeros(1)), torch.ones(1))
    assert (float(after.a), float(after.b)) == (1.0, 0.0)


_BRANCHES = """program(1)

def forward(a: "f32[2]", b: "f32[2]", c: "bool[]"):
    def more(p, q):
        return q, p

    def less(u, v):
        w = aten.neg.default(u)
        return w, w

    r, s = cond(c, more, less, [a, b])
    return r, s

run("forward", a=dyadic(1), b=dyadic(2), c=numbers([True]))
"""


def test_bodies_that_return_their_inputs_are_traced_again() -> None:
    made = DecomposeWholeGraph()(build(parse_program(_BRANCHES))["forward"]).exported_program
    for condition in (True, False):
        inputs = (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), torch.tensor(condition))
        wanted = (inputs[1], inputs[0]) if condition else (-inputs[0], -inputs[0])
        assert all(map(torch.equal, outputs(made, *inputs), wanted))


_LOOP = """program(1)

def forward(a: "f32[2]", n: "i64[]"):
    def goes(p, i, q):
        g = aten.lt.Scalar(i, 3)
        return g

    def turn(u, j, v):
        w = aten.add.Tensor(u, v)
        k = aten.add.Scalar(j, 1)
        return w, k

    b = aten.view.default(a, [2])
    r, t = while_loop(goes, turn, [a, n], [b])
    return r

run("forward", a=dyadic(1), n=numbers([0]))
"""


def test_loops_whose_operands_share_memory_are_traced_again() -> None:
    made = DecomposeWholeGraph()(build(parse_program(_LOOP))["forward"]).exported_program
    (found,) = outputs(made, torch.tensor([1.0, 2.0]), torch.tensor(0))
    assert torch.equal(found, torch.tensor([4.0, 8.0]))


def test_other_programs_stay_as_they_are() -> None:
    program = exported(nn.Linear(2, 2), torch.zeros(1, 2))
    assert with_own_results(program) is program
