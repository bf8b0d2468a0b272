"""The memory of several methods: what one keeps from call to call, another one leaves alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import Diagnostic, Location, ProgramInterface, called_graphs, locate

from .live_ranges import specs_of


@dataclass(frozen=True, slots=True)
class _Held:
    """Bytes that a method uses.

    Attributes:
        node: A node whose value lies there.
        arena: Number of the arena.
        start: First byte.
        end: Byte after the last one.
        buffer: Name of the buffer in which they lie, one that the method writes to; None for what no later call needs.
    """

    node: Node
    arena: int
    start: int
    end: int
    buffer: str | None

    def overlaps(self, other: _Held) -> bool:
        return self.arena == other.arena and self.start < other.end and other.start < self.end

    def holds(self, other: _Held) -> bool:
        return self.arena == other.arena and self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class _Method:
    """What a method uses.

    Attributes:
        name: Its name.
        buffers: What outlives a call.
        others: All else.
    """

    name: str
    buffers: list[_Held]
    others: list[_Held]

    def arenas(self) -> set[int]:
        return {one.arena for one in self.others}


def check_method_memory(programs: Mapping[str, ExportedProgram], separate: Collection[str] = ()) -> list[Diagnostic]:
    """Check that planned methods may be called in any order where one set of arenas is there for all of them.

    Args:
        programs: Planned programs by the names of their methods.
        separate: Names of methods that use no arena that another one uses, so that results of several of them may
            wait in their arenas at once.

    Returns:
        EK355, for every value over a buffer that another method keeps from call to call, and for every arena of a
        separate method that another one uses too. Buffers of one name at one place are one buffer that methods share.
    """
    methods = [_method(name, program) for name, program in programs.items()]
    findings = []
    for one in methods:
        for other in methods:
            if other is not one:
                findings += [_over_buffer(one, kept, other, new) for kept, new in _lost(one, other)]
                if one.name in separate:
                    findings += list(_in_one_arena(one, other))
    return findings


def _method(name: str, program: ExportedProgram) -> _Method:
    interface = ProgramInterface.of(program)
    buffers = {node: interface.inputs[node].target for node in interface.written}
    found = _Method(name, [], [])
    seen: set[object] = set()
    for module in called_graphs(program.graph_module):
        for node in module.graph.nodes:
            for spec in specs_of(node) if node.op != "output" else ():
                if spec in seen or spec.mem_id is None or spec.mem_offset is None or not spec.nbytes():
                    continue
                seen.add(spec)
                end = spec.mem_offset + spec.nbytes()
                held = _Held(node, spec.mem_id, spec.mem_offset, end, buffers.get(node))
                (found.buffers if held.buffer is not None else found.others).append(held)
    # Views lie in the buffers that they show.
    found.others[:] = [one for one in found.others if not any(buffer.holds(one) for buffer in found.buffers)]
    return found


def _lost(one: _Method, other: _Method) -> Iterator[tuple[_Held, _Held]]:
    """Yield what one method keeps with what the other one puts over it."""
    for kept in one.buffers:
        for new in (*other.buffers, *other.others):
            same = (kept.buffer, kept.start, kept.end) == (new.buffer, new.start, new.end)
            if kept.overlaps(new) and not same:
                yield kept, new


def _over_buffer(one: _Method, kept: _Held, other: _Method, new: _Held) -> Diagnostic:
    return Diagnostic.of(
        "EK355",
        f"%{new.node.name} of {other.name} lies over the buffer {kept.buffer!r} that {one.name} keeps",
        location=locate(new.node).model_copy(update={"method": other.name}),
        notes=(
            f"{one.name}: arena {kept.arena}, bytes {kept.start} to {kept.end}",
            f"{other.name}: arena {new.arena}, bytes {new.start} to {new.end}",
        ),
        hint="a buffer that is pinned to an offset needs an arena that no other method uses; "
        "report EK355 if nothing is pinned",
    )


def _in_one_arena(one: _Method, other: _Method) -> Iterator[Diagnostic]:
    for arena in sorted(one.arenas() & (other.arenas() | {held.arena for held in other.buffers})):
        yield Diagnostic.of(
            "EK355",
            f"{one.name} has arena {arena} to itself, and {other.name} uses it",
            location=Location(method=other.name),
            expected="no arena that two methods use, where `methods` is `separate`",
        )
