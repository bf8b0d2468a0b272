"""Models, partitioners and backends that tests of delegation share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit import (
    BackendDetails,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
    ReferenceBackend,
)
from exirkit.runtime_ref import DelegateContext, LoadedDelegate, Runtime

Picks = Callable[[Node], bool]


class Checking(BackendDetails):
    """Runs what it is given like the reference backend, and examines everything that it is handed."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        assert [spec.key for spec in compile_specs] == ["asked"]
        made = ReferenceBackend.preprocess(edge_program, compile_specs)
        handles = {
            number: (node.meta["debug_handle"],)
            for number, node in enumerate(edge_program.graph.nodes)
            if isinstance(node.meta.get("debug_handle"), int)
        }
        return PreprocessResult(made.processed_bytes, handles, {"key of checking": b"data of checking"})


class CheckingDelegate(LoadedDelegate):
    def __init__(self, context: DelegateContext) -> None:
        assert context.compile_specs == {"asked": b"yes"}
        assert context.named_data("key of checking") == b"data of checking"
        self._method = Runtime.get().load_program(context.processed, sanitize=True).load_method("forward")

    @property
    def result_count(self) -> int:
        return self._method.metadata.num_outputs()

    def execute(self, inputs: Sequence[Any]) -> Sequence[Tensor]:
        tensors = [one for one in inputs if isinstance(one, Tensor)]
        assert len({one.data_ptr() for one in tensors if one.numel()}) == sum(one.numel() > 0 for one in tensors)
        results = self._method.execute(inputs)
        for one in tensors:
            # What it is handed is its own: nothing of this may reach the program.
            one.fill_(1)
        return results


Runtime.get().backend_registry.register("Checking", CheckingDelegate)


class Picking(Partitioner):
    """Takes each run of neighbours that a function picks.

    Args:
        picks: The function.
        backend: Where they go.
        keeps_state: Whether delegates keep parameters, buffers and constants that only they read.
    """

    def __init__(self, picks: Picks, backend: str = "ReferenceBackend", *, keeps_state: bool = True) -> None:
        super().__init__()
        self._picks = picks
        self._goes = DelegationSpec(backend, [CompileSpec("asked", b"yes")])
        self._keeps_state = keeps_state

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags: dict[str, DelegationSpec] = {}
        state = {
            spec.arg.name for spec in exported_program.graph_signature.input_specs if spec.kind.name != "USER_INPUT"
        }
        tag: str | None = None
        for node in exported_program.graph.nodes:
            if node.op != "call_function" or "executorch_call_delegate" in str(node.target):
                tag = None
            elif self._picks(node):
                tag = tag or f"{self._goes.backend_id}_{len(tags)}"
                tags[tag] = self._goes
                node.meta["delegation_tag"] = tag
            else:
                tag = None
        if self._keeps_state:
            self._tag_state(exported_program, state)
        return PartitionResult(exported_program, tags)

    def _tag_state(self, program: ExportedProgram, state: set[str]) -> None:
        for node in program.graph.find_nodes(op="placeholder"):
            found = {user.meta.get("delegation_tag") for user in node.users if user.op == "call_function"}
            is_written = node.name in program.graph_signature.inputs_to_buffers and (
                program.graph_signature.inputs_to_buffers[node.name]
                in program.graph_signature.buffers_to_mutate.values()
            )
            if node.name in state and len(found) == 1 and None not in found and not is_written:
                node.meta["delegation_tag"] = found.pop()


def names(*parts: str) -> Picks:
    """Pick operators whose names have one of these parts."""
    return lambda node: any(part in str(node.target) for part in parts)


class Counting(nn.Module):
    """Weights, a buffer that is written, several results of one operator, and a view."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)
        self.total: Tensor
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = torch.relu(self.first(x))
        z = self.second(y)
        self.total.add_(z.sum(0))
        values, indices = z.max(1)
        return z * 2 + self.total, values, indices, y.transpose(0, 1)
