"""Partitions that kernels compute faster than a delegate are left to them, by descriptions of both."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import ExportedProgram, export
from torch.fx import Node

from exirkit import (
    DelegationSpec,
    EdgeProgramManager,
    Partitioner,
    PartitionResult,
    UsageError,
    WorthwhilePartitioner,
    to_edge_transform_and_lower,
)
from exirkit.ir import CALL_DELEGATE, OpOverload, underlying
from exirkit.passes import DELEGATION_TAG
from exirkit.patterns import KernelCost, Target
from exirkit.runtime_ref import Runtime

aten = torch.ops.aten
SMALL, LARGE = torch.rand(2, 4), torch.rand(64, 512)


class Each(Partitioner):
    """Takes each sum, and each linear layer whole, as a partition of its own."""

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags: dict[str, DelegationSpec] = {}
        for node in exported_program.graph.nodes:
            if underlying(node.target) in (aten.add.Tensor, aten.linear.default):
                node.meta[DELEGATION_TAG] = f"part_{len(tags)}"
                tags[f"part_{len(tags)}"] = DelegationSpec("ReferenceBackend", [])
        return PartitionResult(exported_program, tags)

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        return [aten.linear.default], None


def target(element_ns: float, *operators: str, delegate_ns: float | None = None) -> Target:
    costs = {name: KernelCost(element_ns=element_ns) for name in operators}
    return Target(target=1, name="made", kernels=costs, delegate_ns=delegate_ns)


SUM, LINEAR = "aten.add.Tensor", "aten.linear.default"
INSIDE = target(0.5, SUM, LINEAR, delegate_ns=100.0)


class Sums(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, small: torch.Tensor, large: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.linear(small) + small, large + large


def lowered(inside: Target, outside: Target) -> tuple[EdgeProgramManager, WorthwhilePartitioner]:
    partitioner = WorthwhilePartitioner(Each(), inside=inside, outside=outside)
    edge = to_edge_transform_and_lower(export(Sums().eval(), (SMALL, LARGE)), partitioner=[partitioner])
    return edge, partitioner


def delegates(edge: EdgeProgramManager) -> int:
    return sum(node.target is CALL_DELEGATE for node in edge.exported_program().graph.nodes)


def test_small_partitions_are_left_to_the_kernels() -> None:
    torch.manual_seed(0)
    model = Sums().eval()
    partitioner = WorthwhilePartitioner(Each(), inside=INSIDE, outside=target(1.0, SUM, LINEAR))
    edge = to_edge_transform_and_lower(export(model, (SMALL, LARGE)), partitioner=[partitioner])
    # Eight elements: 8 ns outside, 104 in a delegate. 32,768 elements: twice as fast in a delegate.
    assert delegates(edge) == 1
    assert [(one.inside_ns, one.outside_ns) for one in partitioner.left] == [(104.0, 8.0)] * 2
    got = Runtime.get().load_program(edge.to_executorch().buffer).load_method("forward").execute([SMALL, LARGE])
    for one, wanted in zip(got, model(SMALL, LARGE), strict=True):
        torch.testing.assert_close(one, wanted)


@pytest.mark.parametrize(
    ("inside", "outside", "count"),
    [
        # A delegate is as fast: what gains less than a twentieth is not worth a change.
        (target(1.0, SUM, LINEAR, delegate_ns=0.0), target(0.96, SUM, LINEAR), 3),
        (target(1.0, SUM, LINEAR, delegate_ns=0.0), target(0.94, SUM, LINEAR), 0),
        # What is not described is not judged.
        (target(1.0, SUM, delegate_ns=0.0), target(0.5, SUM, LINEAR), 1),
        (target(1.0, SUM, LINEAR, delegate_ns=0.0), target(0.5, LINEAR), 2),
    ],
)
def test_what_decides(inside: Target, outside: Target, count: int) -> None:
    edge, partitioner = lowered(inside, outside)
    assert delegates(edge) == count
    assert len(partitioner.left) == 3 - count


def test_a_description_of_kernels_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"EK448.*official_host"):
        WorthwhilePartitioner(Each(), inside="official_host")


class Recurrent(torch.nn.Module):
    """Layers with one weight, kept apart by what is not taken."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.last(torch.tanh(self.step(torch.tanh(self.step(x)))))
        return y


def test_each_delegate_has_its_own_copy_of_a_weight() -> None:
    alone = target(1.0, LINEAR, delegate_ns=0.0)
    shared = alone.model_copy(update={"shared_weight_ns": 0.5})
    left = []
    for inside in (alone, shared):
        partitioner = WorthwhilePartitioner(Each(), inside=inside, outside=target(1.0, LINEAR))
        to_edge_transform_and_lower(export(Recurrent().eval(), (SMALL,)), partitioner=[partitioner])
        left.append([one.inside_ns for one in partitioner.left])
    # Eight results, and half a nanosecond for each of 20 elements of weight and bias; the last layer has its own.
    assert left == [[], [18.0, 18.0]]
