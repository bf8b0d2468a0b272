"""Buffers that a program only keeps up to date go; those on which a result or an effect depends stay."""

from __future__ import annotations

from typing import Any

import torch

from exirkit import to_edge
from exirkit.passes import RemoveUnreadState


class Counting(torch.nn.Module):
    """A model with several counters: what becomes of them is in their names."""

    unread_0: torch.Tensor
    unread_1: torch.Tensor
    read_0: torch.Tensor
    read_1: torch.Tensor
    returned: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("unread_0", "unread_1", "read_0", "read_1", "returned"):
            self.register_buffer(name, torch.tensor(1.0))
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> Any:
        # Each of these two depends on the other, and nothing else on them.
        self.unread_0.add_(self.unread_1)
        self.unread_1.mul_(self.unread_0 + x.sum())
        # What the next run reads of one comes from the other.
        self.read_1.add_(1)
        y = x * self.read_0
        self.read_0.add_(self.read_1)
        self.returned.add_(2)
        return self.norm(x), y, self.returned


def test_only_what_nothing_depends_on_goes() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    before = to_edge(torch.export.export(Counting(), (x,))).exported_program().module()
    edge = to_edge(torch.export.export(Counting(), (x,)))
    edge = edge.transform([RemoveUnreadState()])
    program = edge.exported_program()
    after = program.module()
    written = set(program.graph_signature.buffers_to_mutate.values())
    # The statistics of a batch are not those that it keeps.
    assert written == {"read_0", "read_1", "returned"}
    assert not {"unread_0", "unread_1", "norm.num_batches_tracked"} & set(program.state_dict)
    assert len(program.graph_signature.input_specs) == len(program.graph.find_nodes(op="placeholder"))
    for _ in range(3):
        torch.testing.assert_close(after(x), before(x))
    edge.to_executorch()
    again = edge.transform([RemoveUnreadState()]).exported_program()
    assert str(again.graph) == str(program.graph)
