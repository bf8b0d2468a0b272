"""Whether the tensors of a planned program lie where their specs say, inside of their arenas and bases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from exirkit.ir import TensorSpec


def first_misplaced(program: ExportedProgram) -> str | None:
    """Return what is wrong with the place of the first tensor that lies otherwise; None if all are right."""
    sizes = program.graph_module.meta.get("non_const_buffer_sizes") or [0]
    return next(filter(None, (_misplaced(spec, sizes) for spec in _specs(program))), None)


def fits(spec: TensorSpec) -> bool:
    """Whether a spec is that of a view which its base holds, or of no view."""
    base = spec.storage_base
    return base is None or 0 <= spec.storage_offset_bytes <= base.nbytes() - spec.nbytes()


def _specs(program: ExportedProgram) -> Iterator[TensorSpec]:
    graphs = [one.graph for one in program.graph_module.modules() if isinstance(one, GraphModule)]
    seen: dict[TensorSpec, None] = {}
    for node in (node for graph in graphs for node in graph.nodes):
        given = node.meta.get("spec")
        listed: Iterable[object] = given if isinstance(given, list | tuple) else (given,)
        seen.update(dict.fromkeys(one for one in listed if isinstance(one, TensorSpec)))
    return iter(seen)


def _misplaced(spec: TensorSpec, sizes: Sequence[int]) -> str | None:
    if spec.mem_offset is None or spec.mem_id is None or not all(type(one) is int for one in spec.shape):
        return None
    base = spec.storage_base
    if base is not None and (base.mem_id, base.mem_offset) != (None, None):
        wanted = (base.mem_id, (base.mem_offset or 0) + spec.storage_offset_bytes)
        if (spec.mem_id, spec.mem_offset) != wanted:
            return f"a view lies at {spec.mem_id}:{spec.mem_offset} instead of {wanted[0]}:{wanted[1]}, in its base"
    element_nbytes = torch.empty(1, dtype=spec.dtype).element_size()
    end = spec.mem_offset + math.prod(int(one) for one in spec.shape) * element_nbytes
    size = sizes[spec.mem_id] if spec.mem_id < len(sizes) else 0
    return f"a tensor ends at byte {end} of arena {spec.mem_id}, which has {size}" if end > size else None
