"""A partitioner that leaves outside of delegates what kernels compute faster than a delegate does."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import (
    Diagnostic,
    OpOverload,
    UsageError,
    called_graphs,
    is_buffer,
    is_lifted_tensor_constant,
    is_param,
)
from exirkit.passes.delegate.backend import DELEGATION_TAG, DelegationSpec, Partitioner, PartitionResult
from exirkit.patterns import LEAST_SHARE, Target, read_target

LEFT_OUTSIDE = "left_outside"
"""Key in `meta` of calls that a partitioner would have taken, and that stay outside on purpose."""


@dataclass(frozen=True)
class LeftOutside:
    """A partition that is left to the kernels.

    Attributes:
        tag: Its tag.
        nodes: Names of its calls.
        inside_ns: What a delegate would take, in nanoseconds, by its description.
        outside_ns: What the kernels take.
    """

    tag: str
    nodes: tuple[str, ...]
    inside_ns: float
    outside_ns: float


class WorthwhilePartitioner(Partitioner):
    """Asks a partitioner, and gives back each of its partitions that kernels compute faster than a delegate.

    What a delegate takes is `delegate_ns` of its description, the costs of the calls in it, and `shared_weight_ns` for
    weights that other partitions use as well. A partition with a call that either description does not have, such as a
    quantization, or whose sizes are not known, stays as it is.

    Args:
        partitioner: Any partitioner; an official one has to be wrapped first.
        inside: Description of the backend, or the name or path of one: `xnnpack`.
        outside: Description of the runtime's kernels: `official_host`.

    Attributes:
        left: What the last call of `partition` left outside.

    Raises:
        UsageError: EK209, a description is not one; EK448, `inside` has no `delegate_ns`.
    """

    def __init__(
        self,
        partitioner: Partitioner,
        *,
        inside: Target | str | Path,
        outside: Target | str | Path = "official_host",
    ) -> None:
        super().__init__(partitioner.spec)
        self._partitioner = partitioner
        self._inside = inside if isinstance(inside, Target) else read_target(inside)
        self._outside = outside if isinstance(outside, Target) else read_target(outside)
        if self._inside.delegate_ns is None:
            raise UsageError(
                Diagnostic.of(
                    "EK448", f"the target description {self._inside.name!r} does not say what a delegate costs"
                )
            )
        self._delegate_ns = self._inside.delegate_ns
        self.left: tuple[LeftOutside, ...] = ()

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Let the partitioner tag the calls, and take the tags of what is faster outside away again."""
        result = self._partitioner.partition(exported_program)
        program = result.tagged_exported_program
        nodes: dict[str, list[Node]] = defaultdict(list)
        for module in called_graphs(program.graph_module):
            for node in module.graph.nodes:
                if node.meta.get(DELEGATION_TAG) in result.partition_tags:
                    nodes[node.meta[DELEGATION_TAG]].append(node)
        shared = _shared_weights(program, nodes)
        left = [
            found
            for tag, tagged in nodes.items()
            if (found := self._faster_outside(tag, tagged, shared[tag])) is not None
        ]
        for one in left:
            for node in nodes[one.tag]:
                del node.meta[DELEGATION_TAG]
                node.meta[LEFT_OUTSIDE] = True
        self.left = tuple(left)
        gone = {one.tag for one in left}
        tags: dict[str, DelegationSpec] = {k: spec for k, spec in result.partition_tags.items() if k not in gone}
        return PartitionResult(program, tags)

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """Return what the partitioner wants whole; what of it is left outside stays whole for the kernels."""
        return self._partitioner.ops_to_not_decompose(ep)

    def _faster_outside(self, tag: str, tagged: Iterable[Node], shared: int) -> LeftOutside | None:
        calls = [node for node in tagged if node.op == "call_function"]
        copied_ns = self._inside.shared_weight_ns * shared
        inside_ns = self._delegate_ns + copied_ns + sum(map(self._inside.cost_of, calls))
        outside_ns = sum(map(self._outside.cost_of, calls))
        if not math.isfinite(inside_ns + outside_ns) or outside_ns > (1 - LEAST_SHARE) * inside_ns:
            return None
        return LeftOutside(tag, tuple(node.name for node in calls), inside_ns, outside_ns)


def _shared_weights(program: ExportedProgram, partitions: Mapping[str, Sequence[Node]]) -> dict[str, int]:
    """Return by partition how many elements there are in weights that other partitions use as well."""
    users: dict[Node, set[str]] = defaultdict(set)
    for tag, tagged in partitions.items():
        for node in tagged:
            for source in node.all_input_nodes:
                if (
                    is_param(program, source)
                    or is_buffer(program, source)
                    or is_lifted_tensor_constant(program, source)
                ):
                    users[source].add(tag)
    found = dict.fromkeys(partitions, 0)
    for weight, tags in users.items():
        for tag in tags if len(tags) > 1 else ():
            found[tag] += weight.meta["val"].numel()
    return found
