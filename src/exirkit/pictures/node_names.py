"""Names, modules and source lines of instructions and inputs, from the graph that a plan was emitted from."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import TensorSpec, alloc, called_graphs, module_path, out_operator_name, source_line
from exirkit.passes import pool_of_arenas

Handle = int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """What a node tells about the instruction that it became."""

    name: str
    source: str | None
    module: str | None


class Remaining:
    """Origins that no instruction has taken yet; several nodes of one operator share a debug handle."""

    def __init__(self, handles: Mapping[int, Handle], origins: Mapping[tuple[Handle, str], list[Origin]]) -> None:
        self._handles = handles
        self._origins = {key: deque(found) for key, found in origins.items()}
        self._any = {handle: found[0] for (handle, _), found in origins.items()}

    def take(self, instruction: int, operator: str) -> Origin | None:
        """Return the next node that has the debug handle and the operator of an instruction.

        Control flow becomes operators that are in no graph; for these it is a node with the same debug handle.
        """
        handle = self._handles.get(instruction)
        if handle is None:
            return None
        found = self._origins.get((handle, operator))
        return found.popleft() if found else self._any.get(handle)


@dataclass(frozen=True)
class MethodNames:
    """What a graph tells about a plan.

    Attributes:
        handles: Debug handle, or handles, of instructions by index.
        origins: Nodes by debug handle and operator, in order.
        places: Names of the placeholders with planned memory, by arena and offset.
        pools: Numbers of the pools that arenas are parts of, by number of the arena.
    """

    handles: Mapping[int, Handle] = field(default_factory=dict)
    origins: Mapping[tuple[Handle, str], list[Origin]] = field(default_factory=dict)
    places: Mapping[tuple[int, int], str] = field(default_factory=dict)
    pools: Mapping[int, int] = field(default_factory=dict)

    def remaining(self) -> Remaining:
        """Return the origins, to be taken one after another in the order of instructions."""
        return Remaining(self.handles, self.origins)


def method_names(program: ExportedProgram, handles: Mapping[int, Handle]) -> MethodNames:
    """Return what the planned graph of a method tells.

    Args:
        program: A program of the ExecuTorch dialect.
        handles: Debug handle, or handles, of instructions by index.
    """
    origins: dict[tuple[Handle, str], list[Origin]] = {}
    for module in called_graphs(program.graph_module):
        for node in module.graph.nodes:
            handle = node.meta.get("debug_handle")
            if node.op == "call_function" and node.target is not alloc and handle is not None:
                operator = out_operator_name(node.target).removesuffix(".")
                origins.setdefault((handle, operator), []).append(origin_of(node))
    return MethodNames(handles, origins, _places(program), pool_of_arenas(program))


def origin_of(node: Node) -> Origin:
    """Return what a node tells about itself."""
    return Origin(node.name, source_line(node), module_path(node))


def _places(program: ExportedProgram) -> dict[tuple[int, int], str]:
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    found = {}
    for node in program.graph.find_nodes(op="placeholder"):
        spec = node.meta.get("spec")
        if isinstance(spec, TensorSpec) and spec.mem_id is not None and spec.mem_offset is not None:
            found[spec.mem_id, spec.mem_offset] = targets.get(node.name) or node.name
    return found
