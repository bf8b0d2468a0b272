"""Arenas: their limits, and one set of them for several methods, with the buffers that these share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

from exirkit.ir import (
    ContractError,
    Diagnostic,
    Location,
    ModelError,
    ProgramInterface,
    TensorSpec,
    UsageError,
    alloc,
    called_graphs,
    locate,
)
from exirkit.verifiers import check_method_memory

from .graph.specs import node_specs, padding_of, spec_roles
from .planners import storage_root, write_view
from .problem import fullest_step

if TYPE_CHECKING:
    from .planning_pass import MemoryPlanningPass

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
                code="EK467",
                message=f"{limit!r} is not a limit of arena {arena!r}",
            )


def left_of(limits: Mapping[int, int], taken: Mapping[int, Mapping[str, int]]) -> dict[int, int]:
    """Return the limits without what methods have taken of them, by number of the arena."""
    return {arena: max(0, limit - sum(taken.get(arena, {}).values())) for arena, limit in limits.items()}


def taken_note(limit: int, taken: Mapping[str, int]) -> str:
    """Return what to say about methods that have taken a part of a limit."""
    listed = ", ".join(f"{method} has {nbytes}" for method, nbytes in taken.items())
    return f"of {limit} bytes, {sum(taken.values())} are other methods': {listed}"


def reject_overflow(
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
    lives = {spec: (spec.lifetime[0] or 0, spec.lifetime[1] or 0) for spec in owners}
    step, needed = fullest_step((*life, spec.nbytes()) for spec, life in lives.items())
    live = [spec for spec, (first, last) in lives.items() if first <= step <= last]
    largest = sorted(live, key=lambda spec: (-spec.nbytes(), spec.mem_offset or 0))[:_NAMED]
    notes = [f"{needed} bytes are live at step {step}, the fullest one, in {len(live)} values; the largest are:"]
    notes.extend(f"%{owners[spec].name}: {spec!r}" for spec in largest)
    return Diagnostic.of(
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


POOLS_KEY = "arena_pools"
"""Entry of a graph's `meta`: by number of an arena, the number of the pool that it is a part of."""


@dataclass(frozen=True, slots=True)
class _State:
    """A buffer that outlives the calls of its method.

    Attributes:
        start: First byte in the arena in which it was planned.
        end: Byte after the last one.
        room: Byte after the last one that only alignment keeps from other values.
        offset: First byte in the arena of its own.
    """

    start: int
    end: int
    room: int
    offset: int


def arrange_arenas(
    programs: Mapping[str, ExportedProgram], separate: Collection[str], pools: int, requested: Collection[str] = ()
) -> None:
    """Let no method overwrite what another one needs, where one set of arenas is there for all of them.

    Methods that take turns use arenas of the same numbers, each of which is as large as the method needs that needs
    most of it. What outlives a call, the buffers that a method writes to, moves out of arenas that others use to one of
    its own, or if a user has requested that arena, to its end, behind the buffers of other methods.

    Methods that are separate have numbers that no other method has: with n pools, the first of them those of the pools,
    the next one these plus n, and so on. (If there are others as well, these come first.)

    Args:
        programs: Planned programs of all methods by name. Places and sizes are written, and `POOLS_KEY`.
        separate: Names of those that are separate.
        pools: The highest number of a pool that a policy of theirs has.
        requested: Names of methods of which nothing lies in an arena from 2 unless a user has requested that.
    """
    if len(programs) < 2:
        return
    sizes = {name: sizes_of(program) for name, program in programs.items()}
    width = max(pools, *(len(one) - 1 for one in sizes.values()))
    together = [name for name in programs if name not in separate]
    block = 1 if together else 0
    for name, program in programs.items():
        if name in separate:
            _renumber(program, block * width)
            block += 1
        else:
            program.graph_module.meta[POOLS_KEY] = {number: number for number in range(1, len(sizes[name]))}
    free = block * width + 1
    for arena in range(1, width + 1):
        using = [name for name in together if arena < len(sizes[name]) and sizes[name][arena]]
        if len(using) < 2:
            continue
        moved = {}
        for name in using:
            if _move_state_out(programs[name], arena, free):
                moved[name] = free
                free += 1
        if arena > 1 and any(name in requested for name in using):
            _line_up(programs, arena, using, moved)
            free -= len(moved)


def sizes_of(program: ExportedProgram) -> list[int]:
    """Return the bytes of each arena of a planned program by number."""
    return list(program.graph_module.meta["non_const_buffer_sizes"])


def pool_of_arenas(program: ExportedProgram) -> Mapping[int, int]:
    """Return the number of the pool that each arena is a part of; shared buffers are in none."""
    known = program.graph_module.meta.get(POOLS_KEY)
    return known if known is not None else {number: number for number in range(1, len(sizes_of(program)))}


def state_nbytes(program: ExportedProgram) -> dict[int, int]:
    """Return how many bytes a planned program needs in each arena for what outlives a call, by number.

    What is pinned to an offset counts for nothing: it stays where it is.
    """
    arenas = {spec.mem_id for spec in _state_of(program) if spec.mem_id is not None}
    return {arena: sum(one.room - one.start for one in _ranges(program, arena)) for arena in sorted(arenas)}


def _renumber(program: ExportedProgram, shift: int) -> None:
    module = program.graph_module
    sizes = sizes_of(program)
    module.meta[POOLS_KEY] = {number + shift: number for number in range(1, len(sizes))}
    for spec in _placed(module):
        spec.mem_id = (spec.mem_id or 0) + shift
    module.meta["non_const_buffer_sizes"] = [0] * (shift + 1) + sizes[1:]
    devices = module.meta.get("non_const_buffer_device")
    if devices:
        module.meta["non_const_buffer_device"] = {number + shift: device for number, device in devices.items()}


def _move_state_out(program: ExportedProgram, arena: int, free: int) -> bool:
    """Move the state of a method out of an arena, close the gaps, and return whether there is any."""
    module = program.graph_module
    states = _ranges(program, arena)
    if not states:
        return False
    inside = [spec for spec in _placed(module) if spec.mem_id == arena]
    closes = _may_close_gaps(inside, states)
    for spec in inside:
        offset = spec.mem_offset or 0
        home = next((one for one in states if one.start <= offset < one.end and spec.nbytes()), None)
        if home is not None:
            spec.mem_id, spec.mem_offset = free, home.offset + offset - home.start
        elif closes:
            spec.mem_offset = offset - sum(min(one.room, offset) - one.start for one in states if one.start < offset)
    sizes = sizes_of(program)
    gone = sum(min(one.room, sizes[arena]) - one.start for one in states) if closes else 0
    sizes += [0] * (free + 1 - len(sizes))
    sizes[arena] -= gone
    sizes[free] = states[-1].offset + states[-1].room - states[-1].start + padding_of(module)
    module.meta["non_const_buffer_sizes"] = sizes
    module.meta[POOLS_KEY][free] = arena
    devices = module.meta.get("non_const_buffer_device") or {}
    if arena in devices:
        module.meta["non_const_buffer_device"] = {**devices, free: devices[arena]}
    return True


def _line_up(
    programs: Mapping[str, ExportedProgram], arena: int, using: Sequence[str], moved: Mapping[str, int]
) -> None:
    """Move the state of methods back into an arena, behind everything that any of them has there."""
    end = max(sizes_of(programs[name])[arena] for name in using)
    for name, free in moved.items():
        module = programs[name].graph_module
        sizes = sizes_of(programs[name])
        inside = [spec for spec in _placed(module) if spec.mem_id == free]
        end += -end % max(spec.alignment for spec in inside)
        for spec in inside:
            spec.mem_id, spec.mem_offset = arena, (spec.mem_offset or 0) + end
        end += sizes[free]
        sizes[arena], sizes[free] = end, 0
        del module.meta[POOLS_KEY][free]
        used = max(number for number, size in enumerate(sizes) if size)
        module.meta["non_const_buffer_sizes"] = sizes[: used + 1]


def _ranges(program: ExportedProgram, arena: int) -> list[_State]:
    """Return the state of a method in an arena, by place."""
    found: list[_State] = []
    listed = [spec for spec in _state_of(program) if spec.mem_id == arena and spec.nbytes()]
    for spec in sorted(listed, key=lambda one: one.mem_offset or 0):
        start = spec.mem_offset or 0
        end = start + spec.nbytes()
        offset = found[-1].offset + found[-1].room - found[-1].start if found else 0
        found.append(_State(start, end, end + -end % spec.alignment, offset))
    return found


def _may_close_gaps(specs: Sequence[TensorSpec], states: Sequence[_State]) -> bool:
    """Return whether values may move to where state was: none is pinned, and none reaches into it."""
    for spec in specs:
        if not spec.nbytes():
            continue
        start = spec.mem_offset or 0
        end = start + spec.nbytes()
        if any(one.start <= start and end <= one.end for one in states):
            continue
        if spec.mem_obj_id is None or any(start < one.room and one.start < end for one in states):
            return False
    return True


def _state_of(program: ExportedProgram) -> list[TensorSpec]:
    roles = spec_roles(program.graph_module.graph, program.graph_signature)
    # Who pins a buffer has said where it lies; pinned alike in several methods it is one that they share.
    return [
        spec
        for spec in roles.owners
        if spec in roles.state and spec.mem_offset is not None and spec.mem_obj_id is not None
    ]


def _placed(module: GraphModule) -> Iterator[TensorSpec]:
    """Yield every spec with a place, once, those of called graphs as well."""
    seen: set[TensorSpec] = set()
    for graph_module in called_graphs(module):
        for node in graph_module.graph.nodes:
            for spec in node_specs(node) if node.op != "output" else ():
                if spec not in seen and spec.mem_id is not None and spec.mem_offset is not None:
                    seen.add(spec)
                    yield spec


@dataclass(slots=True)
class _SharedBuffer:
    """A buffer of one name.

    Attributes:
        specs: Its spec in each method that has it.
        form: What all of them must agree in.
        first: The method and node that has it first.
    """

    specs: list[TensorSpec]
    form: tuple[object, ...]
    first: tuple[str, Node] = field(compare=False)


def reject_readers_of_shared_buffers(programs: Mapping[str, ExportedProgram]) -> None:
    """Reject methods that only read what another one writes: what they read may have become a constant in them.

    Args:
        programs: Programs of all methods by name, before they are lowered.

    Raises:
        ModelError: EK488, for every such buffer of every such method.
    """
    writers: dict[str, str] = {}
    for method, program in programs.items():
        for _, target in _stored(program, is_written=True):
            writers.setdefault(target, method)
    findings = [
        Diagnostic.of(
            code="EK488",
            message=f"the buffer {target!r} is only read here, and {writers[target]} writes to it",
            location=locate(node).model_copy(update={"method": method}),
            expected="a method that writes to every shared buffer that it reads",
            hint=f"write it back in {method} as well (`self.{target}.copy_(self.{target})`), or do not share buffers",
        )
        for method, program in programs.items()
        for node, target in _stored(program, is_written=False)
        if target in writers and node.users
    ]
    if findings:
        raise ModelError(findings)


def share_buffers(programs: Mapping[str, ExportedProgram], alignment: int, arena: int) -> None:
    """Give mutable buffers of one name one place in all methods, in an arena that nothing else uses.

    Args:
        programs: Planned programs of all methods by name, whose mutable buffers have no place yet.
        alignment: Every offset in the arena is a multiple of this many bytes.
        arena: Number of the arena.

    Raises:
        ModelError: EK489, buffers of one name have different types or sizes.
    """
    buffers: dict[str, _SharedBuffer] = {}
    findings: list[Diagnostic] = []
    for method, program in programs.items():
        for node, target in _stored(program, is_written=True):
            findings += _note(buffers, method, node, target)
    if findings:
        raise ModelError(findings)
    end = 0
    for number, buffer in enumerate(buffers.values()):
        for spec in buffer.specs:
            spec.mem_id, spec.mem_obj_id, spec.mem_offset, spec.alignment = arena, number, end, alignment
        end += buffer.specs[0].allocated_memory
    for program in programs.values():
        _place_views(program)
        sizes: list[int] = program.graph_module.meta["non_const_buffer_sizes"]
        padding = padding_of(program.graph_module) if end else 0
        sizes = [*sizes, *[0] * (arena + 1 - len(sizes))]
        sizes[arena] = end + padding
        program.graph_module.meta["non_const_buffer_sizes"] = sizes


def _stored(program: ExportedProgram, *, is_written: bool) -> Iterator[tuple[Node, str]]:
    """Yield the placeholders of buffers and parameters, written or only read, with their names in the model."""
    interface = ProgramInterface.of(program)
    for node, entry in interface.inputs.items():
        is_named = entry.kind in (InputKind.BUFFER, InputKind.PARAMETER) and entry.target is not None
        if is_named and interface.is_written(node) == is_written:
            yield node, str(entry.target)


def _note(buffers: dict[str, _SharedBuffer], method: str, node: Node, target: str) -> Sequence[Diagnostic]:
    (spec,) = node_specs(node)
    form = (spec.dtype, tuple(spec.shape), tuple(spec.dim_order))
    known = buffers.get(target)
    if known is None:
        buffers[target] = _SharedBuffer([spec], form, (method, node))
    elif known.form == form:
        known.specs.append(spec)
    else:
        return [
            Diagnostic.of(
                code="EK489",
                message=f"the shared buffer {target!r} is another tensor here than in {known.first[0]}",
                location=Location(method=method, node=f"%{node.name}"),
                notes=(f"here: {spec!r}", f"there: {known.specs[0]!r}"),
            )
        ]
    return []


def _place_views(program: ExportedProgram) -> None:
    roles = spec_roles(program.graph_module.graph, program.graph_signature)
    specs = [
        spec
        for module in called_graphs(program.graph_module)
        for node in module.graph.nodes
        for spec in node_specs(node)
    ]
    for view in (spec for spec in specs if spec.storage_base is not None):
        if storage_root(view)[0] in roles.state:
            write_view(view)


# A method that is planned again may leave less to those before it, as its state may have moved.
_ROUNDS = 4


def finalize_methods(programs: Mapping[str, ExportedProgram], planners: Mapping[str, MemoryPlanningPass]) -> None:
    """Arrange the arenas of all methods so that all may run in one set of them, and check the plans again.

    Args:
        programs: Planned programs by the names of their methods, which are in the order in which arenas are numbered.
        planners: The object that planned each of them; one object for all methods that follow one policy.

    Raises:
        ModelError: EK466, EK484, what other methods leave of a pool is too little for one; EK468, methods need more of
            a pool together than there is; EK489, shared buffers of one name have different types or sizes.
        ContractError: EK341 to EK349, EK355, a plan does not hold.
    """
    groups: dict[MemoryPlanningPass, dict[str, ExportedProgram]] = {}
    for name, program in programs.items():
        groups.setdefault(planners[name], {})[name] = program
    for planner, group in groups.items():
        if planner.limits and len(group) > 1:
            _fit_together(planner, group)
    policies = [planner.policy for planner in groups if planner.policy is not None]
    pools = max((number for policy in policies for number, _ in policy.numbered_pools()), default=0)
    separate = {name for name in programs if planners[name].separate_methods}
    arrange_arenas(programs, separate, pools, [name for name in programs if planners[name].policy is None])
    findings = [finding for planner, group in groups.items() for finding in _overflows(planner, group)]
    if findings:
        raise ModelError(findings)
    sharing = [planner for planner in groups if planner.share_mutable_buffers]
    for planner in sharing:
        of_policies = {number for policy in policies for number, _ in policy.numbered_pools()}
        taken = set(of_policies)
        for program in programs.values():
            taken |= {number for number, size in enumerate(sizes_of(program)) if size}
            # A separate method has arenas for the pools that are its own, also where it leaves them empty.
            taken |= {number for number, pool in pool_of_arenas(program).items() if pool in of_policies}
        # What methods of the official C++ `Module` may share are the arenas 1 and 2.
        arena = next(number for number in range(2, max(taken, default=1) + 3) if number not in taken)
        share_buffers(groups[planner], planner.alignment, arena)
    if len(programs) > 1 or sharing:
        _check(programs, planners, separate)


def _fit_together(planner: MemoryPlanningPass, programs: Mapping[str, ExportedProgram]) -> None:
    """Plan those methods again that use more of a pool than the others leave, until none does."""
    for _ in range(_ROUNDS):
        if not _plan_again(planner, programs):
            break


def _plan_again(planner: MemoryPlanningPass, programs: Mapping[str, ExportedProgram]) -> bool:
    """Plan those methods again that use more of a pool than the others leave, and return whether there were any."""
    found = False
    for name, program in programs.items():
        taken: dict[int, dict[str, int]] = {}
        for other, planned in programs.items():
            if other == name and planner.separate_methods:
                # What comes later has to do with what is left.
                break
            needs = dict(enumerate(sizes_of(planned))) if planner.separate_methods else state_nbytes(planned)
            for arena, nbytes in needs.items() if other != name else ():
                if nbytes and arena in planner.limits:
                    taken.setdefault(arena, {})[other] = nbytes
        left = left_of(planner.limits, taken)
        if any(arena in taken and size > left[arena] for arena, size in enumerate(sizes_of(program))):
            planner.beside(taken).run(program.graph_module, program.graph_signature)
            found = True
    return found


def _check(
    programs: Mapping[str, ExportedProgram], planners: Mapping[str, MemoryPlanningPass], separate: set[str]
) -> None:
    for name, program in programs.items():
        planners[name].check(program)
    trusted = {name for name in programs if planners[name].allow_lifetime_and_storage_overlap}
    findings = check_method_memory({name: one for name, one in programs.items() if name not in trusted}, separate)
    if findings:
        raise ContractError(findings)


def _overflows(planner: MemoryPlanningPass, programs: Mapping[str, ExportedProgram]) -> list[Diagnostic]:
    """Return EK468 for each pool that does not hold what the methods of a planner need together."""
    findings = []
    for pool, limit in sorted(planner.limits.items()):
        needs: dict[int, dict[str, int]] = {}
        for name, program in programs.items():
            sizes = sizes_of(program)
            for arena, number in pool_of_arenas(program).items():
                if number == pool and sizes[arena]:
                    needs.setdefault(arena, {})[name] = sizes[arena]
        needed = sum(max(of_methods.values()) for of_methods in needs.values())
        # A method by itself has been checked when it was planned.
        if needed > limit and len({name for of_methods in needs.values() for name in of_methods}) > 1:
            findings.append(_overflow(planner, pool, limit, needed, needs))
    return findings


def _overflow(
    planner: MemoryPlanningPass, pool: int, limit: int, needed: int, needs: Mapping[int, Mapping[str, int]]
) -> Diagnostic:
    named = {} if planner.policy is None else {number: one.name for number, one in planner.policy.numbered_pools()}
    title = f"the pool {named[pool]!r}" if pool in named else f"arena {pool}"
    notes = tuple(
        f"arena {arena}: " + ", ".join(f"{name} needs {nbytes}" for name, nbytes in of_methods.items())
        for arena, of_methods in sorted(needs.items())
    )
    methods = list(dict.fromkeys(name for of_methods in needs.values() for name in of_methods))
    more = f"{needed - limit} more than the {limit} there are"
    return Diagnostic.of(
        code="EK468",
        message=f"{len(methods)} methods need {needed} bytes of {title}, {more}",
        location=Location(method=methods[-1]),
        notes=notes,
        hint="let the methods take turns (`methods: shared`)"
        if planner.separate_methods
        else "let the buffers that the methods write to lie in another pool, or share them (`buffers: shared`)",
    )
