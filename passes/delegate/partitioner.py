"""What a partitioner implements: which nodes go to which backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import CompileSpec

TAG = "delegation_tag"
"""Key of `node.meta` under which partitioners write which partition a node belongs to."""


@dataclass(frozen=True)
class DelegationSpec:
    """Where a partition goes.

    Attributes:
        backend_id: Name of the backend.
        compile_specs: What to compile for.
    """

    backend_id: str
    compile_specs: list[CompileSpec] = field(default_factory=list)


@dataclass(frozen=True)
class PartitionResult:
    """What a partitioner found.

    Attributes:
        tagged_exported_program: The program, with `delegation_tag` in the `meta` of the nodes that are taken.
        partition_tags: Where the partition of each tag goes.
    """

    tagged_exported_program: ExportedProgram
    partition_tags: Mapping[str, DelegationSpec]


class Partitioner(ABC):
    """Decides which nodes go to which backend.

    Args:
        spec: Choices of the user, by name.

    Source: `Partitioner` of the ExecuTorch documentation.
    """

    def __init__(self, spec: Mapping[str, Any] | None = None) -> None:
        self._spec = dict(spec or {})

    @property
    def spec(self) -> dict[str, Any]:
        """Choices of the user, by name."""
        return self._spec

    @abstractmethod
    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag nodes; nothing but `meta` may be changed."""

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """Return operators that the backend wants whole, and which of their calls (all of them, if None)."""
        return [], None
