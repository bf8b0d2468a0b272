"""Buffers that delegates keep: who may read and write them, and what is handed back."""

from __future__ import annotations

import pytest
import torch
from tests.program.delegation_models import Picking, Picks, names
from torch import Tensor, nn
from torch.export import ExportedProgram, export

from exirkit import ContractError, EdgeProgramManager, PartitionResult, to_edge
from exirkit.ir import CALL_DELEGATE
from exirkit.runtime_ref import Runtime


class Summing(nn.Module):
    """Adds what it is given to a buffer.

    Args:
        returns_sum: Return the buffer; a number made of the input otherwise.
    """

    total: Tensor

    def __init__(self, returns_sum: bool) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self._returns_sum = returns_sum

    def forward(self, x: Tensor) -> Tensor:
        half = x.neg()
        self.total.add_(half.exp())
        return self.total if self._returns_sum else half.relu()


class Reading(Summing):
    """Also reads the buffer before it is written."""

    def forward(self, x: Tensor) -> Tensor:
        seen = self.total.cosh()
        return seen + super().forward(x)


class _WithBuffers(Picking):
    """Tags buffers, too."""

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        found = super().partition(exported_program)
        for node in exported_program.graph.find_nodes(op="placeholder"):
            if node.name.startswith("b_"):
                node.meta["delegation_tag"] = next(iter(found.partition_tags))
        return found


def lowered(model: nn.Module, picks: Picks) -> EdgeProgramManager:
    """Give the picked calls, and the buffers, to a backend that examines all it is given."""
    return to_edge(export(model, (torch.ones(3),))).to_backend(_WithBuffers(picks, "Checking"))


@pytest.mark.parametrize("returns_sum", [True, False])
def test_what_is_kept_is_handed_back_where_it_is_read(returns_sum: bool) -> None:
    model = Summing(returns_sum)
    picks = names("exp", "add.Tensor") if returns_sum else names("neg", "exp", "add.Tensor", "relu")
    manager = lowered(model, picks)
    program = manager.exported_program()
    assert not program.graph_signature.buffers_to_mutate
    (call,) = program.graph.find_nodes(op="call_function", target=CALL_DELEGATE)
    # The new sum or the number, never both.
    assert len(call.meta["val"]) == 1
    method = Runtime.get().load_program(manager.to_executorch().buffer, sanitize=True).load_method("forward")
    for number in range(3):
        given = torch.full((3,), float(number))
        torch.testing.assert_close(method.execute([given])[0], model(given))


def test_a_buffer_that_others_read_stays_outside() -> None:
    with pytest.raises(ContractError) as raised:
        lowered(Reading(returns_sum=False), names("exp", "add.Tensor"))
    assert raised.value.code == "EK493"
    assert "%aten_cosh_default reads it too" in str(raised.value)


def test_a_buffer_that_others_write_stays_outside() -> None:
    class Doubling(nn.Module):
        total: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            found = x.exp() + self.total
            self.total.copy_(x.sin())
            return found

    with pytest.raises(ContractError) as raised:
        lowered(Doubling(), names("exp", "add.Tensor"))
    assert raised.value.code == "EK493"
    assert "outside of the partition is written to it" in str(raised.value)


def test_calls_have_handles_of_their_own() -> None:
    edge = to_edge(export(Summing(returns_sum=False), (torch.ones(3),)))
    before = max(node.meta.get("debug_handle", 0) for node in edge.exported_program().graph.nodes)
    graph = edge.to_backend(Picking(names("neg", "relu"))).exported_program().graph
    handles = [node.meta["debug_handle"] for node in graph.nodes if node.op == "call_function"]
    calls = [node.meta["debug_handle"] for node in graph.find_nodes(op="call_function", target=CALL_DELEGATE)]
    assert len(set(calls)) == len(calls) == 2
    assert min(calls) > before
    assert all(isinstance(one, int) and one > 0 for one in handles)


def test_a_tag_on_what_a_delegate_does_not_read_says_nothing() -> None:
    class Two(nn.Module):
        first: Tensor
        second: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("first", torch.ones(3))
            self.register_buffer("second", torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return (x + self.first).relu() * self.second

    manager = lowered(Two(), names("add.Tensor"))
    (delegate,) = (one for one in manager.exported_program().graph_module.children())
    assert list(delegate.original_module.state_dict) == ["first"]
    assert list(manager.exported_program().state_dict) == ["second"]
