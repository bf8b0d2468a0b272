"""Tensor specs of ours as those of the official package, and the reverse."""

from __future__ import annotations

from typing import Any

from executorch.exir.schema import TensorShapeDynamism as OfficialDynamism
from executorch.exir.tensor import TensorSpec as OfficialSpec
from torch.fx import Node

from exirkit.ir import ProgramInterface, TensorShapeDynamism, TensorSpec, pytree


def our_spec(theirs: OfficialSpec) -> TensorSpec:
    """Return what an official spec says, apart from lifetimes and from whose memory it shares."""
    made = TensorSpec(theirs.dtype, theirs.shape, theirs.layout, theirs.is_sparse, theirs.const, theirs.requires_grad)
    made.dim_order = [int(dim) for dim in theirs.dim_order]
    made.stride = list(theirs.stride)
    made.storage = theirs.storage
    made.shape_dynamism = TensorShapeDynamism(int(theirs.shape_dynamism))
    made.mem_id, made.mem_offset = theirs.mem_id, theirs.mem_offset
    return made


class OfficialSpecs:
    """Makes official specs of ours: one object of one object, since planners tell them by identity."""

    def __init__(self) -> None:
        # The specs of ours are kept as well, or another one might get the identity of one that is gone.
        self._made: dict[int, tuple[TensorSpec, OfficialSpec]] = {}

    def of_node(self, node: Node, interface: ProgramInterface) -> Any:
        """Return the official specs of a node of ours, or None; those of an output are those of what the user gets.

        Args:
            node: The node.
            interface: That of its graph. New values of buffers lie where the buffers do, so that no output has their
                specs.
        """
        if node.op != "output":
            return self.of(node.meta.get("spec"))
        found = [one.meta.get("spec") for one in interface.user_results if isinstance(one, Node)]
        return self.of(found) if any(found) else None

    def of(self, specs: Any) -> Any:
        """Return the specs of a node: one, a list of them, or what is not a spec."""
        return pytree.tree_map_only(TensorSpec, self._one, specs)

    def _one(self, ours: TensorSpec) -> OfficialSpec:
        if id(ours) not in self._made:
            made = OfficialSpec(ours.dtype, ours.shape, ours.layout, ours.is_sparse, ours.const, ours.requires_grad)
            self._made[id(ours)] = ours, made
            made.dim_order, made.stride, made.storage = tuple(ours.dim_order), tuple(ours.stride), ours.storage
            made.shape_dynamism = OfficialDynamism(int(ours.shape_dynamism))
            made.alignment, made.lifetime = ours.alignment, list(ours.lifetime)
            made.mem_id, made.mem_obj_id, made.mem_offset = ours.mem_id, ours.mem_obj_id, ours.mem_offset
            if ours.storage_base is not None:
                made.storage_base = self._one(ours.storage_base)
                made.storage_base_offset = ours.storage_offset_bytes
        return self._made[id(ours)][1]
