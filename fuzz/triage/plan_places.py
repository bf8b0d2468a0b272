"""A look of its own at the places in a memory plan: neither the checker of plans nor the specs are asked for sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from exirkit.ir import TensorSpec


def misplaced(programs: Mapping[str, ExportedProgram]) -> str | None:
    """Return what is wrong with the place of a tensor in planned programs, or None.

    Whether two tensors share bytes at the wrong time is not looked at: other plans show that.

    Args:
        programs: Planned programs by method name.
    """
    for program in programs.values():
        sizes = program.graph_module.meta.get("non_const_buffer_sizes") or [0]
        for spec in _specs(program):
            found = _fault(spec, sizes)
            if found is not None:
                return found
    return None


def _specs(program: ExportedProgram) -> Iterator[TensorSpec]:
    graphs = [one.graph for one in program.graph_module.modules() if isinstance(one, GraphModule)]
    seen: dict[TensorSpec, None] = {}
    for node in (node for graph in graphs for node in graph.nodes):
        given = node.meta.get("spec")
        listed: Iterable[object] = given if isinstance(given, list | tuple) else (given,)
        seen.update(dict.fromkeys(one for one in listed if isinstance(one, TensorSpec)))
    return iter(seen)


def _fault(spec: TensorSpec, sizes: list[int]) -> str | None:
    if spec.mem_offset is None or spec.mem_id is None or not all(type(one) is int for one in spec.shape):
        return None
    base = spec.storage_base
    if base is not None and (base.mem_id, base.mem_offset) != (None, None):
        wanted = (base.mem_id, (base.mem_offset or 0) + spec.storage_offset_bytes)
        if (spec.mem_id, spec.mem_offset) != wanted:
            return f"a view lies at {spec.mem_id}:{spec.mem_offset} instead of {wanted[0]}:{wanted[1]}, in its base"
    end = spec.mem_offset + math.prod(int(one) for one in spec.shape) * _element_nbytes(spec.dtype)
    size = sizes[spec.mem_id] if spec.mem_id < len(sizes) else 0
    return f"a tensor ends at byte {end} of arena {spec.mem_id}, which has {size}" if end > size else None


def _element_nbytes(dtype: torch.dtype) -> int:
    return torch.empty(1, dtype=dtype).element_size()
