"""Programs cut at random for two backends: a compiler for the validation bench."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from typing import Any, cast

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import CompileSpec, called_graphs
from exirkit.passes import (
    DELEGATION_TAG,
    DelegationSpec,
    ExecutorchBackendConfig,
    Partitioner,
    PartitionResult,
    grown_partitions,
    tag_kept_state,
    why_not_delegable,
)
from exirkit.program import EdgeProgramManager, to_edge

from .checking_backend import CheckingBackend, OtherCheckingBackend


class RandomPartitioner(Partitioner):
    """Takes calls at random; what becomes of stored tensors is chosen at random too.

    Args:
        draw: Random numbers.
        backend: Name of the backend.
    """

    def __init__(self, draw: random.Random, backend: str) -> None:
        super().__init__()
        self._draw = draw
        self._backend = backend
        self._share = draw.choice((0.3, 0.6, 0.9, 1.0))
        self._joins = draw.choice(("touching", "readers", "all"))

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag what is drawn, in bodies of control flow as well."""
        specs: dict[str, DelegationSpec] = {}
        for module in called_graphs(exported_program.graph_module):
            calls = [node for node in module.graph.nodes if node.op == "call_function" and self._can_take(node)]
            takers = {node: self._backend for node in calls if self._draw.random() < self._share}
            for nodes in grown_partitions(module.graph, takers, joins=cast(Any, self._joins)):
                if self._draw.random() < 0.1:
                    continue
                tag = f"{self._backend}_{len(specs)}"
                specs[tag] = DelegationSpec(self._backend, [CompileSpec("tag", tag.encode())])
                for node in nodes:
                    node.meta[DELEGATION_TAG] = tag
        keeps = {key: self._draw.random() < 0.6 for key in ("constants", "mutable")}
        tag_kept_state(exported_program, specs, constants=keeps["constants"], mutable=keeps["mutable"])
        return PartitionResult(exported_program, specs)

    def _can_take(self, node: Node) -> bool:
        return "getitem" not in str(node.target) and why_not_delegable(node) is None


def cut_at_random(programs: Mapping[str, ExportedProgram]) -> bytes:
    """Lower programs with parts of them in delegates of two backends, one after the other; the bytes of the file.

    The cut follows from the programs alone, so that a failure can be seen again.
    """
    return bytes(cut_manager(programs).to_executorch(ExecutorchBackendConfig(target=None)).buffer)


def cut_manager(programs: Mapping[str, ExportedProgram], salt: int = 0) -> EdgeProgramManager:
    """Return the Edge programs that `cut_at_random` lowers.

    Args:
        programs: By method.
        salt: Another one cuts in other places.
    """
    text = "".join(f"{name}{program.graph}" for name, program in sorted(programs.items()))
    draw = random.Random(zlib.crc32(text.encode(), salt))
    manager = to_edge(dict(programs))
    backends = [CheckingBackend.__name__, OtherCheckingBackend.__name__]
    draw.shuffle(backends)
    for backend in backends[: draw.choice((1, 2, 2, 2))]:
        names = sorted(manager.methods)
        # A method or two may be left alone.
        manager = manager.to_backend({name: RandomPartitioner(draw, backend) for name in names if draw.random() < 0.9})
    return manager
