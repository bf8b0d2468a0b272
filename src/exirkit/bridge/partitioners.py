"""Partitioners of the official package as partitioners of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from executorch.exir.backend.partitioner import Partitioner as AnyOfficialPartitioner
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import CompileSpec, ContractError, Diagnostic, OpOverload, called_graphs
from exirkit.passes import DelegationSpec, Partitioner, PartitionResult

from .backends import official_backend
from .operators import official_program


class OfficialPartitioner(Partitioner):
    """Runs a partitioner of the official package, unmodified.

    Args:
        partitioner: The partitioner, such as `XnnpackPartitioner()`.
    """

    def __init__(self, partitioner: AnyOfficialPartitioner) -> None:
        super().__init__(getattr(partitioner, "spec", None))
        self._partitioner = partitioner

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Let it tag a copy with official operators, and copy all metadata that it sets on the nodes.

        A backend may read more than the tags. XNNPACK's partitioner marks the quantise and dequantise calls that belong
        to an operator; its backend treats an operand as quantised only where it finds such a mark.

        Raises:
            ContractError: EK742, it changed the graph.
        """
        theirs = official_program(exported_program)
        result = self._partitioner.partition(theirs)
        mine = list(called_graphs(exported_program.graph_module))
        tagged = list(called_graphs(result.tagged_exported_program.graph_module))
        if _names(mine) != _names(tagged):
            raise ContractError(
                Diagnostic.of(
                    "EK742",
                    f"partitioner {type(self._partitioner).__name__} changed the graph",
                    expected="a PartitionResult with the given program, with entries added to `meta` and nothing else",
                )
            )
        for module, other in zip(mine, tagged, strict=True):
            for node, noted in zip(module.graph.nodes, other.graph.nodes, strict=True):
                _copy_metadata(node, noted)
        specs = {tag: _delegation_spec(spec) for tag, spec in result.partition_tags.items()}
        return PartitionResult(exported_program, specs)

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """Return what it returns: it examines ATen operators, which are those of torch."""
        found: tuple[list[OpOverload], Callable[[Node], bool] | None] = self._partitioner.ops_to_not_decompose(ep)
        return found


def _names(modules: list[GraphModule]) -> list[list[str]]:
    return [[node.name for node in module.graph.nodes] for module in modules]


def _copy_metadata(node: Node, noted: Node) -> None:
    """Copy the metadata that a partitioner has set on the copy of a node."""
    for key, value in noted.meta.items():
        # `spec` is copied with the graph, and partitioners do not plan memory.
        if key != "spec" and node.meta.get(key) is not value:
            node.meta[key] = value


def _delegation_spec(spec: Any) -> DelegationSpec:
    official_backend(spec.backend_id)
    return DelegationSpec(spec.backend_id, [CompileSpec(one.key, bytes(one.value)) for one in spec.compile_specs])
