"""What concerns several methods, once each of them is planned: arenas, limits, and buffers that they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from exirkit.ir import ContractError, Diagnostic, Location, ModelError, TensorSpec, called_graphs, locate
from exirkit.verifiers import check_method_memory

from .algorithms import storage_root, write_view
from .arenas import arrange_arenas, left_of, pool_of_arenas, sizes_of, state_nbytes
from .graph.specs import mutated_placeholders, node_specs, padding_of, spec_roles
from .planning_pass import MemoryPlanningPass

_STORED = frozenset({InputKind.BUFFER, InputKind.PARAMETER})


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


def reject_readers(programs: Mapping[str, ExportedProgram]) -> None:
    """Reject methods that only read what another one writes: what they read may have become a constant in them.

    Args:
        programs: Programs of all methods by name, before they are lowered.

    Raises:
        ModelError: EK488, for every such buffer of every such method.
    """
    writers: dict[str, str] = {}
    for method, program in programs.items():
        for node, target in _stored(program):
            if node.name in mutated_placeholders(program.graph_signature):
                writers.setdefault(target, method)
    findings = [
        Diagnostic(
            code="EK488",
            message=f"the buffer {target!r} is only read here, and {writers[target]} writes to it",
            location=locate(node).model_copy(update={"method": method}),
            expected="a method that writes to every shared buffer that it reads",
            hint=f"write it back in {method} as well (`self.{target}.copy_(self.{target})`), or do not share buffers",
        )
        for method, program in programs.items()
        for node, target in _stored(program)
        if target in writers and node.users and node.name not in mutated_placeholders(program.graph_signature)
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
        for node, target in _stored(program):
            if node.name in mutated_placeholders(program.graph_signature):
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


def _stored(program: ExportedProgram) -> Iterator[tuple[Node, str]]:
    """Yield the placeholders of buffers and parameters with their names in the model."""
    names = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in program.graph_module.graph.find_nodes(op="placeholder"):
        entry = names.get(node.name)
        if entry is not None and entry.kind in _STORED and entry.target is not None:
            yield node, entry.target


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
            Diagnostic(
                code="EK489",
                message=f"the shared buffer {target!r} is another tensor here than in {known.first[0]}",
                location=Location(method=method, node=f"%{node.name}"),
                notes=(f"here: {spec!r}", f"there: {known.specs[0]!r}"),
                hint="let buffers that are not the same have different names",
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
    return Diagnostic(
        code="EK468",
        message=f"{len(methods)} methods need {needed} bytes of {title}, {more}",
        location=Location(method=methods[-1]),
        notes=notes,
        hint="let the methods take turns (`methods: shared`)"
        if planner.separate_methods
        else "let the buffers that the methods write to lie in another pool, or share them (`buffers: shared`)",
    )
