"""Operators that a backend wants whole: calls that decomposition leaves alone."""

from __future__ import annotations

from collections.abc import Sequence

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import called_graphs, copy_program

from .backend import Partitioner

_WHOLE = "kept_whole"
# What is in this dictionary goes with a node when torch traces a program again.
_CUSTOM = "custom"


def keep_whole(
    program: ExportedProgram, partitioners: Sequence[Partitioner]
) -> tuple[ExportedProgram, list[OpOverload]]:
    """Mark the calls that partitioners want whole.

    Args:
        program: As torch.export made it; it is not changed.
        partitioners: Those that will be asked for the method, in order.

    Returns:
        A marked copy, or the program itself if there is nothing to mark, and the operators of the marked calls.
    """
    wanted = [partitioner.ops_to_not_decompose(program) for partitioner in partitioners]
    if not any(ops for ops, _ in wanted):
        return program, []
    copied = copy_program(program)
    kept: dict[OpOverload, None] = {}
    for module in called_graphs(copied.graph_module):
        for node in module.graph.nodes:
            op = node.target
            if isinstance(op, OpOverload) and any(op in ops and (ask is None or ask(node)) for ops, ask in wanted):
                node.meta[_CUSTOM] = {**(node.meta.get(_CUSTOM) or {}), _WHOLE: True}
                kept[op] = None
    return copied, list(kept)


def is_kept_whole(node: Node) -> bool:
    """Return whether a call is not to be decomposed, whatever its operator is."""
    return bool((node.meta.get(_CUSTOM) or {}).get(_WHOLE))
