"""Partitioners of the official package as partitioners of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from executorch.exir.backend.partitioner import Partitioner as AnyOfficialPartitioner
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import CompileSpec, called_graphs
from exirkit.passes import DELEGATION_TAG, DelegationSpec, Partitioner, PartitionResult

from .backends import official_backend
from .operators import official_program


class OfficialPartitioner(Partitioner):
    """Asks a partitioner of the official package, which may know nothing of exirkit.

    Args:
        partitioner: The partitioner, such as `XnnpackPartitioner()`.
    """

    def __init__(self, partitioner: AnyOfficialPartitioner) -> None:
        super().__init__(getattr(partitioner, "spec", None))
        self._partitioner = partitioner

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Let it tag a copy with official operators, and take its tags over."""
        theirs = official_program(exported_program)
        result = self._partitioner.partition(theirs)
        pairs = zip(
            called_graphs(exported_program.graph_module),
            called_graphs(result.tagged_exported_program.graph_module),
            strict=True,
        )
        for mine, other in pairs:
            tags = {node.name: node.meta.get(DELEGATION_TAG) for node in other.graph.nodes}
            for node in mine.graph.nodes:
                if tags.get(node.name) is not None:
                    node.meta[DELEGATION_TAG] = tags[node.name]
        specs = {tag: _delegation_spec(spec) for tag, spec in result.partition_tags.items()}
        return PartitionResult(exported_program, specs)

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """Return what it returns: it looks at ATen operators, which are torch's."""
        found: tuple[list[OpOverload], Callable[[Node], bool] | None] = self._partitioner.ops_to_not_decompose(ep)
        return found


def _delegation_spec(spec: Any) -> DelegationSpec:
    official_backend(spec.backend_id)
    return DelegationSpec(spec.backend_id, [CompileSpec(one.key, bytes(one.value)) for one in spec.compile_specs])
