"""Room in the arenas of a graph for the graphs it calls.

The tensors of a branch or loop body are planned by themselves. In the plan of the calling graph they appear as one
block for each arena, needed while the call runs: what outlives it, the result, is the calling graph's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule

from exirkit.ir import TensorSpec

from .control_flow import SubmoduleCall


@dataclass(slots=True)
class SubmodulePlan:
    """The plan of one called graph, relative to its block.

    Attributes:
        nbytes: Bytes needed in each arena, by arena number.
        specs: All that is placed, in called graphs of called graphs as well.
    """

    nbytes: list[int]
    specs: list[TensorSpec]

    def shift(self, offsets: Mapping[int, int]) -> None:
        """Move everything by the offset of the block in each arena."""
        for spec in self.specs:
            if spec.mem_offset is not None and spec.mem_id is not None:
                spec.mem_offset += offsets.get(spec.mem_id, 0)


@dataclass(slots=True)
class ArenaBlock:
    """Room for graphs that never run at the same time.

    Attributes:
        plans: The plans that lie in it.
        specs: A stand-in for the block in each arena that it needs, by arena number: bytes and lifetime, nothing else.
    """

    plans: list[SubmodulePlan]
    specs: dict[int, TensorSpec]

    def settle(self) -> None:
        """Move the plans to where the stand-ins were placed."""
        offsets = {mem_id: spec.mem_offset or 0 for mem_id, spec in self.specs.items()}
        for plan in self.plans:
            plan.shift(offsets)


def make_blocks(
    graph_module: GraphModule, calls: Sequence[SubmoduleCall], plans: Mapping[GraphModule, SubmodulePlan]
) -> list[ArenaBlock]:
    """Return a block for each call, in which its graphs take turns."""
    steps = {node: step for step, node in enumerate(graph_module.graph.nodes)}
    return [_block([plans[submodule] for submodule in call.submodules], steps[call.node]) for call in calls]


def _block(plans: list[SubmodulePlan], step: int) -> ArenaBlock:
    block = ArenaBlock(plans, {})
    for mem_id in range(1, max(len(plan.nbytes) for plan in plans)):
        nbytes = max(plan.nbytes[mem_id] for plan in plans if mem_id < len(plan.nbytes))
        if nbytes:
            spec = TensorSpec(torch.uint8, [nbytes])
            spec.mem_id = mem_id
            spec.lifetime = [step, step]
            block.specs[mem_id] = spec
    return block
