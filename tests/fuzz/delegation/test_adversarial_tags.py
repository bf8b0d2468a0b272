"""Tags on anything: what comes of them is a diagnostic that says why, or a program that computes what it did."""

from __future__ import annotations

import random
from collections import Counter

import torch
from tests.thoroughness import TRIES_ALL
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from exirkit import ContractError, DelegationSpec, EdgeProgramManager, Partitioner, PartitionResult, to_edge
from exirkit.fuzz.delegation import CheckingBackend
from exirkit.ir import called_graphs
from exirkit.passes import DELEGATION_TAG
from exirkit.runtime_ref import Runtime

EXPECTED = {"EK491", "EK492", "EK493"}


class Everything(nn.Module):
    """Control flow, a buffer that is written, several results, sizes that vary and constants."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Tensor
        self.register_buffer("count", torch.zeros(4))
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = torch.sin(self.layer(x))
        self.count.add_(y.sum(0))
        chosen: Tensor = torch.cond(y.sum() > 0, lambda z: (z * 2).cos(), lambda z: z.exp() - 1, [y])
        values, places = chosen.max(1)
        longer = torch.cat([chosen, x]) + x.shape[0]
        return longer * self.count, values, places, y.reshape(-1)


class Tagging(Partitioner):
    """Tags nodes of any kind at random, with few tags."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.draw = draw

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        draw = self.draw
        share, count = draw.choice((0.05, 0.15, 0.4)), draw.choice((1, 3, 20))
        kinds = draw.choice(
            (["call_function"], ["call_function", "placeholder"], ["call_function", "get_attr", "output"])
        )
        for module in called_graphs(exported_program.graph_module):
            for node in module.graph.nodes:
                if draw.random() < share and node.op in kinds:
                    node.meta[DELEGATION_TAG] = f"tag{draw.randrange(count)}"
        specs = {f"tag{number}": DelegationSpec(CheckingBackend.__name__) for number in range(count)}
        return PartitionResult(exported_program, specs)


def check(program: ExportedProgram, manager: EdgeProgramManager) -> None:
    method = Runtime.get().load_program(manager.to_executorch().buffer, sanitize=True).load_method("forward")
    # Not the model itself, whose branches torch would compile.
    eager = program.module()
    for rows in (3, 1, 5):
        x = torch.linspace(-2, 1, rows * 4).reshape(rows, 4)
        with torch.no_grad():
            wanted = eager(x)
        for got, one in zip(method.execute([x]), wanted, strict=True):
            torch.testing.assert_close(got, one, rtol=1e-4, atol=1e-5)
    # The program's own tensor, from which the next file is made.
    eager.get_buffer("count").zero_()


def test_any_tags() -> None:
    model = Everything().requires_grad_(False)
    program = export(model, (torch.ones(3, 4),), dynamic_shapes=({0: Dim("n", max=6)},))
    edge = to_edge(program)
    before = str(edge.exported_program())
    outcomes: Counter[str] = Counter()
    for seed in range(400 if TRIES_ALL else 60):
        try:
            delegated = edge.to_backend(Tagging(random.Random(seed)))
        except ContractError as error:
            outcomes[str(error.code)] += 1
            continue
        outcomes["taken"] += 1
        check(program, delegated)
    assert str(edge.exported_program()) == before
    assert outcomes.keys() <= {*EXPECTED, "taken"}, outcomes
    assert min(outcomes[one] for one in ("EK491", "EK492", "taken")) >= 8, outcomes
