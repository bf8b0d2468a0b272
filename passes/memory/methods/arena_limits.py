"""Arenas that are larger than the memory they are for, and what fills them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.fx import GraphModule, Node

from exirkit.ir import Diagnostic, Location, ModelError, TensorSpec, UsageError, alloc, locate
from exirkit.passes.memory.graph.specs import node_specs

# So many of the values that are live when most is are named.
_NAMED = 5
_WOULD_FIT = "another planner may do: what is live at once would fit"
_TOO_MUCH = (
    "plan with in_place=True, give values another arena (`mem_id`), or let the caller provide inputs and outputs"
)


def check_limits(limits: Mapping[int, int]) -> None:
    """Raise UsageError EK467 unless limits are numbers of bytes by number of arena, from 1."""
    for arena, limit in limits.items():
        if type(arena) is not int or arena < 1 or type(limit) is not int or limit < 0:
            raise UsageError(
                Diagnostic(
                    code="EK467",
                    message=f"{limit!r} is no limit of arena {arena!r}",
                    expected="a number of bytes for the number of an arena, which is counted from 1",
                )
            )


def left_of(limits: Mapping[int, int], taken: Mapping[int, Mapping[str, int]]) -> dict[int, int]:
    """Return the limits without what methods have taken of them, by number of the arena."""
    return {arena: max(0, limit - sum(taken.get(arena, {}).values())) for arena, limit in limits.items()}


def taken_note(limit: int, taken: Mapping[str, int]) -> str:
    """Return what to say about methods that have taken a part of a limit."""
    listed = ", ".join(f"{method} has {nbytes}" for method, nbytes in taken.items())
    return f"of {limit} bytes, {sum(taken.values())} are other methods': {listed}"


def refuse_overflow(
    graph_module: GraphModule,
    sizes: Sequence[int],
    limits: Mapping[int, int],
    taken: Mapping[int, Mapping[str, int]],
) -> None:
    """Raise ModelError EK466 if a planned graph needs more of an arena than there is.

    Args:
        graph_module: A planned graph.
        sizes: Bytes of each arena by number.
        limits: Bytes that there are, by number of the arena.
        taken: Bytes of these that other methods have, by number of the arena and method.
    """
    findings = []
    for arena, limit in sorted(left_of(limits, taken).items()):
        if arena < len(sizes) and sizes[arena] > limit:
            finding = _arena_overflow(graph_module, arena, sizes[arena], limit)
            extra = (taken_note(limits[arena], taken[arena]),) if arena in taken else ()
            findings.append(finding.model_copy(update={"notes": (*finding.notes, *extra)}))
    if findings:
        raise ModelError(findings)


def _arena_overflow(graph_module: GraphModule, arena: int, size: int, limit: int) -> Diagnostic:
    owners = _owners(graph_module, arena)
    step, live = _fullest_step(owners)
    largest = sorted(live, key=lambda spec: (-spec.nbytes(), spec.mem_offset or 0))[:_NAMED]
    needed = sum(spec.nbytes() for spec in live)
    notes = [f"{needed} bytes are live at step {step}, the fullest one, in {len(live)} values; the largest are:"]
    notes.extend(f"%{owners[spec].name}: {spec!r}" for spec in largest)
    return Diagnostic(
        code="EK466",
        message=f"arena {arena} needs {size} bytes, {size - limit} more than the {limit} there are",
        location=locate(owners[largest[0]]) if largest else Location(),
        notes=tuple(notes),
        hint=_WOULD_FIT if needed <= limit else _TOO_MUCH,
    )


def _owners(graph_module: GraphModule, arena: int) -> dict[TensorSpec, Node]:
    """Return the specs of the outermost graph that own bytes of an arena, each with the node that fills it."""
    owners: dict[TensorSpec, Node] = {}
    for node in graph_module.graph.nodes:
        for spec in node_specs(node) if node.op != "output" else ():
            placed = spec.mem_id == arena and spec.mem_offset is not None and spec.storage_base is None
            if placed and (spec not in owners or owners[spec].target is alloc):
                owners[spec] = node
    return owners


def _fullest_step(owners: Mapping[TensorSpec, Node]) -> tuple[int, list[TensorSpec]]:
    changes: dict[int, int] = {}
    for spec in owners:
        first, last = spec.lifetime[0] or 0, spec.lifetime[1] or 0
        changes[first] = changes.get(first, 0) + spec.nbytes()
        changes[last + 1] = changes.get(last + 1, 0) - spec.nbytes()
    step = most = live = 0
    for at in sorted(changes):
        live += changes[at]
        if live > most:
            step, most = at, live
    return step, [spec for spec in owners if (spec.lifetime[0] or 0) <= step <= (spec.lifetime[1] or 0)]
