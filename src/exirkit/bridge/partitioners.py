"""Partitioners of the official package as partitioners of ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from executorch.exir.backend.partitioner import Partitioner as AnyOfficialPartitioner
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import CompileSpec, ContractError, Diagnostic, OpOverload, called_graphs
from exirkit.passes import DelegationSpec, Partitioner, PartitionResult

from .backends import official_backend
from .chains import CHAIN_KEY, check_chain
from .operators import official_program
from .xnnpack_linears import is_kept_affine


class OfficialPartitioner(Partitioner):
    """Runs a partitioner of the official package, unmodified.

    Args:
        partitioner: The partitioner, such as `XnnpackPartitioner()`.
        chain: Pipeline of books that runs on each partition in place of the backend's own passes: `xnnpack`, which
            comes with exirkit, or the path of a file. Only XNNPACK's passes can be replaced.
    """

    def __init__(self, partitioner: AnyOfficialPartitioner, *, chain: str | None = None) -> None:
        super().__init__(getattr(partitioner, "spec", None))
        self._partitioner = partitioner
        self._chain = chain

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Let it tag a copy with official operators, and copy all metadata that it sets on the nodes.

        A backend may read more than the tags. XNNPACK's partitioner marks the quantise and dequantise calls that belong
        to an operator; its backend treats an operand as quantised only where it finds such a mark.

        Raises:
            ContractError: EK742, it changed the graph.
            UsageError: EK780, there is a chain, and the backend is not XNNPACK.
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
        if self._chain is not None:
            self._note_chain(mine, specs)
        return PartitionResult(exported_program, specs)

    def _note_chain(self, modules: list[GraphModule], specs: dict[str, DelegationSpec]) -> None:
        """Note the chain on the nodes of partitions, with which it comes to the backend."""
        assert self._chain is not None
        for backend_id in sorted({spec.backend_id for spec in specs.values()}):
            check_chain(backend_id, self._chain)
        for node in (one for module in modules for one in module.graph.nodes):
            if node.meta.get("delegation_tag") in specs:
                node.meta[CHAIN_KEY] = self._chain

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """Return what it returns: it examines ATen operators, which are those of torch."""
        wanted: tuple[list[OpOverload], Callable[[Node], bool] | None] = self._partitioner.ops_to_not_decompose(ep)
        operators, keeps = wanted
        return operators, None if keeps is None else partial(is_kept_affine, keeps=keeps)


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
