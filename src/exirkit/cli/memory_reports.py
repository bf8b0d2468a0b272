"""The document of `exirkit memory --json`."""

from __future__ import annotations

from .reports import Report


class PoolReport(Report):
    """One arena of a method; sizes in bytes.

    Attributes:
        arena: Its number.
        name: What the memory policy calls it, if there is one.
        nbytes: Its size.
        live_nbytes: The most bytes that hold something at one instruction.
        lower_bound: The same with values rounded up to the alignment: no smaller arena would do in this order.
        waste: Bytes above the lower bound.
        limit: Bytes that there are for it, if somebody said so.
        total_nbytes: Sum of all its values: what it would be without reuse.
        values: How many they are.
        at: The first instruction at which most is needed.
        instruction: What that instruction is.
        source: The line of the model that it comes from.
    """

    arena: int
    name: str | None
    nbytes: int
    live_nbytes: int
    lower_bound: int
    waste: int
    limit: int | None
    total_nbytes: int
    values: int
    at: int
    instruction: str | None
    source: str | None


class LargeValueReport(Report):
    """One of the largest values of a method.

    Attributes:
        name: Name of its node, input or buffer; else its number, `%12`.
        type: Dtype and sizes.
        kind: `input`, `output`, `state` or `activation`.
        arena: Number of its arena.
        offset: Its first byte there.
        nbytes: Its size in bytes.
        spans: First and last instruction of each time that it is needed.
        at_peak: Whether it is needed where its arena needs most.
        operator: The operator that makes it.
        source: The line of the model that it comes from.
    """

    name: str
    type: str
    kind: str
    arena: int
    offset: int
    nbytes: int
    spans: list[tuple[int, int]]
    at_peak: bool
    operator: str | None
    source: str | None


class MethodMemoryReport(Report):
    """The memory of one method."""

    name: str
    instructions: int
    pools: list[PoolReport]
    largest: list[LargeValueReport]


class ArenaReport(Report):
    """One arena that serves all methods, on runtimes with one set of arenas for them.

    Attributes:
        arena: Its number.
        name: What the memory policy calls the pool that it is a part of, if there is one.
        nbytes: Bytes that the method needs that needs most of it.
        methods: Bytes that each method needs of it, by name; only those that need any.
    """

    arena: int
    name: str | None
    nbytes: int
    methods: dict[str, int]


class MemoryReport(Report):
    """What `exirkit memory` shows.

    Attributes:
        target: The file or model.
        methods: Its methods with planned memory.
        together: The arenas of all methods, if there are several.
        svg: Where the drawing is, if one was asked for.
        html: Where the page is.
        trace: Where the trace is.
    """

    ok: bool = True
    target: str
    methods: list[MethodMemoryReport]
    together: list[ArenaReport]
    svg: str | None = None
    html: str | None = None
    trace: str | None = None
