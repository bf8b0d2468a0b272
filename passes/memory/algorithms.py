"""What every planning algorithm takes and gives, and the suite that runs several and keeps the best.

An algorithm is a callable `(alignment, specs, graph_module, graph_signature, extra_padding=0) ->
MemoryAlgoResult`. It reads sizes, lifetimes and wishes from the specs and changes nothing: the planning pass
writes the result of the winner into them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.export import ExportGraphSignature

from exirkit.ir import ContractError, Diagnostic, Location, ModelError, TensorSpec, UsageError

DEFAULT_ARENA = 1


@dataclass(slots=True)
class SpecAllocResult:
    """The place of one tensor.

    Attributes:
        mem_id: Arena, counted from 1.
        mem_obj_id: Number of the group of tensors in this arena that share bytes; None for a tensor pinned by
            the user.
        mem_offset: First byte in the arena.
    """

    mem_id: int
    mem_obj_id: int | None
    mem_offset: int


@dataclass(slots=True)
class MemoryAlgoResult:
    """A plan.

    Attributes:
        spec_dict: The place of each spec.
        bufsizes: Bytes of each arena by its number; entry 0 stands for constants and is 0.
    """

    spec_dict: dict[TensorSpec, SpecAllocResult]
    bufsizes: list[int]


MemoryAlgorithm: TypeAlias = Callable[..., Any]
"""Returns a `MemoryAlgoResult`, or writes into the specs itself and returns the buffer sizes as a list."""


@dataclass(slots=True)
class ArenaPlan:
    """Places in one arena: offset and group number of each spec in order, and the bytes used."""

    offsets: list[int]
    groups: list[int]
    nbytes: int


def plan_by_arena(
    alignment: int,
    specs: Iterable[TensorSpec],
    extra_padding: int,
    plan_arena: Callable[[Sequence[TensorSpec], int], ArenaPlan],
) -> MemoryAlgoResult:
    """Plan each arena by itself, then put views where their bases lie.

    Args:
        alignment: Every offset and size is a multiple of this many bytes.
        specs: What to plan, each once. A spec with `storage_base` takes its base's memory, which must be
            planned as well.
        extra_padding: Bytes added to each arena that is used.
        plan_arena: Plans the specs of one arena, none of them a view.

    Raises:
        UsageError: EK453, EK459, EK463 for an arena number, an alignment or a lifetime that cannot be planned
            with.
        ModelError: EK451, if a shape is not bounded yet.
        ContractError: EK462, if the base of a view is not among the specs; EK458, if bases form a circle.
    """
    check_alignment(alignment)
    listed = list(dict.fromkeys(specs))
    roots = [spec for spec in listed if spec.storage_base is None]
    arenas: dict[int, list[TensorSpec]] = {}
    for spec in roots:
        _check_plannable(spec)
        arenas.setdefault(arena_of(spec), []).append(spec)
    result = MemoryAlgoResult({}, [0] * (max(arenas, default=DEFAULT_ARENA) + 1))
    for mem_id, members in sorted(arenas.items()):
        plan = plan_arena(members, alignment)
        result.bufsizes[mem_id] = plan.nbytes + extra_padding
        for spec, offset, group in zip(members, plan.offsets, plan.groups, strict=True):
            result.spec_dict[spec] = SpecAllocResult(mem_id, None if pinned_offset(spec) is not None else group, offset)
    for spec in listed:
        if spec.storage_base is not None:
            result.spec_dict[spec] = place_view(spec, result.spec_dict)
    return result


def arena_of(spec: TensorSpec) -> int:
    """Return the arena that a spec wishes for, 1 if it has no wish."""
    mem_id = DEFAULT_ARENA if spec.mem_id is None else spec.mem_id
    if type(mem_id) is not int or mem_id < 1:
        raise UsageError(
            Diagnostic(
                code="EK453",
                message=f"arena {mem_id!r} cannot be planned",
                location=Location(text=repr(spec)),
                expected="`mem_id` None or an integer from 1; arena 0 stands for constants",
            )
        )
    return mem_id


def pinned_offset(spec: TensorSpec) -> int | None:
    """Return the offset in bytes that the user fixed for a spec, or None.

    A spec is pinned by setting `mem_offset` and leaving `mem_obj_id` at None; planning always sets both, so
    that the result of an earlier run is not mistaken for a wish.
    """
    return spec.mem_offset if spec.mem_obj_id is None else None


def aligned_nbytes(spec: TensorSpec, alignment: int) -> int:
    """Return the size of a spec in bytes, rounded up to the alignment."""
    return -(-spec.nbytes() // alignment) * alignment


def storage_root(spec: TensorSpec) -> tuple[TensorSpec, int]:
    """Return the spec that owns the memory of a view, and the view's first byte in it.

    Raises:
        ContractError: EK458, if the chain of bases is circular.
    """
    root, offset_bytes, seen = spec, 0, {spec}
    while root.storage_base is not None:
        offset_bytes += root.storage_offset_bytes
        root = root.storage_base
        if root in seen:
            raise ContractError(
                Diagnostic(
                    code="EK458",
                    message="a chain of `storage_base` leads back to its start",
                    location=Location(text=repr(spec)),
                    hint="let each view name the tensor whose memory it uses, which owns its memory itself",
                )
            )
        seen.add(root)
    return root, offset_bytes


def place_view(spec: TensorSpec, places: Mapping[TensorSpec, SpecAllocResult]) -> SpecAllocResult:
    """Return the place of a view, from that of the spec which owns its memory."""
    root, offset_bytes = storage_root(spec)
    place = places.get(root)
    if place is None:
        raise ContractError(
            Diagnostic(
                code="EK462",
                message="the base of a view is not planned",
                location=Location(text=repr(spec)),
                notes=(f"its base is {root!r}",),
            )
        )
    return SpecAllocResult(place.mem_id, place.mem_obj_id, place.mem_offset + offset_bytes)


def check_alignment(alignment: int) -> None:
    """Raise UsageError EK459 unless the alignment is a positive number of bytes."""
    if type(alignment) is not int or alignment < 1:
        raise UsageError(
            Diagnostic(
                code="EK459",
                message=f"alignment {alignment!r} is not a positive number of bytes",
                expected="an integer from 1, such as 16",
            )
        )


def algorithm_name(algorithm: MemoryAlgorithm) -> str:
    """Return the name under which an algorithm is reported."""
    if isinstance(algorithm, functools.partial):
        return algorithm_name(algorithm.func)
    return getattr(algorithm, "__name__", None) or type(algorithm).__name__


class MemoryPlanningAlgorithmSuite:
    """Runs several algorithms and keeps the plan with the smallest sum of arenas; of equal ones the first listed.

    Algorithms do not see each other's results, so the order of the list decides ties and nothing else.
    """

    def __init__(self, algo_list: Sequence[MemoryAlgorithm]) -> None:
        self.algo_list = list(algo_list)
        if not self.algo_list:
            raise UsageError(
                Diagnostic(
                    code="EK461",
                    message="a suite of planning algorithms is empty",
                    expected="at least one algorithm, such as `greedy`",
                )
            )

    @property
    def __name__(self) -> str:
        return f"suite[{', '.join(algorithm_name(algorithm) for algorithm in self.algo_list)}]"

    def __call__(
        self,
        alignment: int,
        specs: Iterable[TensorSpec],
        graph_module: torch.fx.GraphModule,
        graph_signature: ExportGraphSignature | None,
        extra_padding: int = 0,
    ) -> MemoryAlgoResult:
        """Return the smallest plan."""
        listed = list(specs)
        plans: list[MemoryAlgoResult] = [
            algorithm(alignment, listed, graph_module, graph_signature, extra_padding) for algorithm in self.algo_list
        ]
        return min(plans, key=lambda plan: sum(plan.bufsizes))


def has_integer_sizes(spec: TensorSpec) -> bool:
    """Return whether all sizes are numbers, as planning needs them."""
    return all(isinstance(dim, int) for dim in spec.shape)


def still_symbolic(spec: TensorSpec, location: Location) -> Diagnostic:
    """Return EK451 for a spec whose sizes are not all numbers."""
    return Diagnostic(
        code="EK451",
        message="a tensor is to be planned whose shape is still symbolic",
        location=location,
        notes=(f"its spec is {spec!r}",),
        hint="evaluate the upper bounds of the shapes before planning memory",
    )


def _check_plannable(spec: TensorSpec) -> None:
    if not has_integer_sizes(spec):
        raise ModelError(still_symbolic(spec, Location()))
    if spec.lifetime[0] is None or spec.lifetime[1] is None:
        raise UsageError(
            Diagnostic(
                code="EK463",
                message="a tensor is to be planned whose lifetime is not known",
                location=Location(text=repr(spec)),
                hint="call `update_lifetimes(graph_module, graph_signature)` before an algorithm",
            )
        )
