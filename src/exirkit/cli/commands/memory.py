"""`exirkit memory`: where the tensors of a program lie, and how much of its memory is needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.choices import planning_pass, rules_of
from exirkit.cli.console import Steps, counted, nbytes_text, print_json, print_line, print_table, source_text
from exirkit.cli.errors import WRONG_USAGE, CommandError
from exirkit.cli.files import check_writable, write_text
from exirkit.cli.model import export_target, parse_source
from exirkit.cli.options import Json, Libraries, MethodName, Planner
from exirkit.cli.root import app

if TYPE_CHECKING:
    from exirkit.passes import MemoryPlanningPass, MemoryPolicy
    from exirkit.visualization import ArenaMap, MappedValue, MemoryMap, MethodMap


@dataclass(frozen=True)
class PoolReport:
    """One arena of a method; sizes in bytes.

    Attributes:
        arena: Its number.
        name: What the memory policy calls it, if there is one.
        nbytes: Its size.
        live_nbytes: The most bytes that hold something at one instruction.
        lower_bound: The same with values rounded up to the alignment: no smaller arena would do in this order.
        waste: Bytes above the lower bound.
        limit: Bytes that there are for it, if a policy sets a limit.
        total_nbytes: Sum of all its values: what it would be without reuse.
        values: How many they are.
        at: The first instruction at which most is needed.
        instruction: What that instruction is.
        source: The line of the model that it comes from.
        module: Path of the module that it comes from.
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
    module: str | None

    @classmethod
    def of(cls, method: MethodMap, arena: ArenaMap, name: str | None) -> PoolReport:
        """Return the document of an arena, which a policy may have given a name."""
        step = method.steps[arena.at] if method.steps else None
        return cls(
            arena=arena.number,
            name=name,
            nbytes=arena.nbytes,
            live_nbytes=arena.live_nbytes,
            lower_bound=arena.lower_bound,
            waste=arena.waste,
            limit=arena.limit,
            total_nbytes=arena.total_nbytes,
            values=len(method.values_of(arena.number)),
            at=arena.at,
            instruction=step.text if step else None,
            source=step.source if step else None,
            module=step.module if step else None,
        )

    def row(self) -> list[object]:
        """Return the row of a table."""
        source = f"  {source_text(self.source)}" if self.source else ""
        source += f", in module {self.module}" if self.module else ""
        sizes = (self.nbytes, self.live_nbytes, self.lower_bound, self.waste)
        return [
            f"{self.arena} {self.name}" if self.name else self.arena,
            *(nbytes_text(size) for size in sizes),
            "" if self.limit is None else nbytes_text(self.limit),
            nbytes_text(self.total_nbytes),
            self.values,
            f"{self.at}: {self.instruction or 'no instruction'}{source}",
        ]


@dataclass(frozen=True)
class LargeValueReport:
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
        module: Path of the module that it comes from.
    """

    name: str
    type: str
    kind: str
    arena: int
    offset: int
    nbytes: int
    spans: Sequence[tuple[int, int]]
    at_peak: bool
    operator: str | None
    source: str | None
    module: str | None

    @classmethod
    def of(cls, method: MethodMap, value: MappedValue, peak: int) -> LargeValueReport:
        """Return the document of a value; `peak` is where its arena needs most."""
        made = method.producer_of(value)
        return cls(
            name=value.name,
            type=value.type,
            kind=value.kind,
            arena=value.arena,
            offset=value.offset,
            nbytes=value.nbytes,
            spans=value.spans,
            at_peak=any(first <= peak <= last for first, last in value.spans),
            operator=made.text if made else None,
            source=made.source if made else None,
            module=made.module if made else None,
        )

    def row(self) -> list[object]:
        """Return the row of a table."""
        spans = ", ".join(f"{first}-{last}" for first, last in self.spans[:3])
        return [
            nbytes_text(self.nbytes), "*" if self.at_peak else "", self.name, self.type, self.kind, self.arena,
            nbytes_text(self.offset), spans + (", ..." if len(self.spans) > 3 else ""),
            source_text(self.source or self.operator), self.module or "",
        ]  # fmt: skip


@dataclass(frozen=True)
class MethodMemory:
    """The memory of one method."""

    name: str
    instructions: int
    pools: list[PoolReport]
    largest: list[LargeValueReport]


@dataclass(frozen=True)
class SharedArena:
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


@dataclass(frozen=True)
class MemoryReport:
    """The document of `exirkit memory`.

    Attributes:
        target: The file or model.
        methods: Its methods with planned memory.
        together: The arenas of all methods, if there are several.
        svg: Where the drawing is, if one was asked for.
        html: Where the page is.
        trace: Where the trace is.
    """

    target: str
    methods: list[MethodMemory]
    together: list[SharedArena]
    svg: str | None
    html: str | None
    trace: str | None
    ok: bool = True


@app.command()
def memory(
    target: Annotated[str, typer.Argument(metavar="MODEL.pte|FILE.pt2|MODULE:FACTORY", show_default=False)],
    method: MethodName = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            metavar="FILE.yaml",
            help="Memory policy to plan a model with; for a program file, its limits are checked.",
        ),
    ] = None,
    planner: Annotated[
        Planner | None,
        typer.Option(help="Memory planning algorithm for a model; default: that of the policy, or portfolio."),
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Plan a model so that results reuse the memory of dead arguments.")
    ] = False,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Reorder independent instructions of a model to reduce peak memory.")
    ] = False,
    optimize: Annotated[int, typer.Option("-O", min=0, max=2, help="Optimization level to lower a model with.")] = 1,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rules", metavar="BOOK", help="Rule book: operators of the file, or rules for the model."),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Number of largest values to list.")] = 10,
    svg: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw the arenas over time.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="The same as a page to explore; it needs no network.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="The same as a trace for Perfetto or chrome://tracing.")
    ] = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Show the memory plan of a program, and how much of its memory is in use over time.

    Of a program file, lifetimes follow from its instructions. A model is lowered first, and its values have the names
    and source lines of its graph.
    """
    check_writable(svg, ".svg")
    check_writable(html, ".html")
    check_writable(trace, ".json")
    with Steps() as steps:
        with steps.phase("load", "loading torch"):
            from exirkit.passes import load_memory_policy
            from exirkit.visualization import memory_map_page, memory_map_svg, memory_map_trace

        pools = None if policy is None else load_memory_policy(policy)
        numbered = () if pools is None else pools.numbered_pools()
        limits = {number: pool.limit for number, pool in numbered if pool.limit is not None}
        if target.endswith(".pte"):
            memory_map = _memory_map_of_file(target, rules, limits, steps)
        else:
            planning = planning_pass(planner, pools, in_place=in_place, schedule=schedule)
            memory_map = _memory_map_of_model(target, planning, optimize, rules, limits, steps)
        memory_map = _only(memory_map, method)
    for path, draw in ((svg, memory_map_svg), (html, memory_map_page), (trace, memory_map_trace)):
        if path is not None:
            write_text(path, draw(memory_map))
    methods = [_method(one, top, pools) for one in memory_map.methods]
    report = MemoryReport(
        target=memory_map.title,
        methods=methods,
        together=_together(methods) if len(methods) > 1 else [],
        svg=None if svg is None else os.fspath(svg),
        html=None if html is None else os.fspath(html),
        trace=None if trace is None else os.fspath(trace),
    )
    if json:
        print_json(report)
    else:
        print_memory(report)


def _only(memory_map: MemoryMap, method: str | None) -> MemoryMap:
    """Return the memory map of one method, or of all.

    Raises:
        CommandError: EK723, there is no such method.
    """
    chosen = tuple(one for one in memory_map.methods if method in (None, one.name))
    if method is not None and not chosen:
        names = ", ".join(one.name for one in memory_map.methods) or "none"
        message = f"no method {method!r} with planned memory"
        raise CommandError(code="EK723", message=message, hint=f"methods: {names}", exit_code=WRONG_USAGE)
    return memory_map.model_copy(update={"methods": chosen})


def _memory_map_of_file(target: str, books: Sequence[str] | None, limits: dict[int, int], steps: Steps) -> MemoryMap:
    from exirkit.cli.program_file import register_operators
    from exirkit.visualization import memory_map_of_file

    register_operators(books)
    with steps.phase("read", f"reading {target}"):
        return memory_map_of_file(target, limits=limits)


def _memory_map_of_model(
    target: str,
    planning: MemoryPlanningPass,
    level: int,
    books: Sequence[str] | None,
    limits: dict[int, int],
    steps: Steps,
) -> MemoryMap:
    from exirkit.passes import ApplyRules, ExecutorchBackendConfig
    from exirkit.patterns import read_target
    from exirkit.program import to_edge
    from exirkit.visualization import memory_map_of_manager

    exported = export_target(parse_source(target), steps).programs
    config = ExecutorchBackendConfig(
        memory_planning_pass=planning,
        optimization_level=level,
        target=read_target("official_host").without_registry(),
    )
    with steps.phase("to_edge"):
        edge = to_edge(exported, progress=steps)
        if books:
            edge = edge.transform([ApplyRules(rules_of(books))])
    with steps.phase("to_executorch"):
        manager = edge.to_executorch(config, progress=steps)
    return memory_map_of_manager(manager, title=target, limits=limits)


def _method(method: MethodMap, top: int, policy: MemoryPolicy | None) -> MethodMemory:
    names = {} if policy is None else {number: pool.name for number, pool in policy.numbered_pools()}
    at = {arena.number: arena.at for arena in method.arenas}
    largest = sorted(method.values, key=lambda value: (-value.nbytes, value.spans[0][0], value.value))[:top]
    return MethodMemory(
        name=method.name,
        instructions=len(method.steps),
        pools=[PoolReport.of(method, arena, names.get(arena.pool or arena.number)) for arena in method.arenas],
        largest=[LargeValueReport.of(method, value, at.get(value.arena, -1)) for value in largest],
    )


def _together(methods: list[MethodMemory]) -> list[SharedArena]:
    needs: dict[int, dict[str, int]] = {}
    names: dict[int, str | None] = {}
    for method in methods:
        for pool in method.pools:
            names.setdefault(pool.arena, pool.name)
            if pool.nbytes:
                needs.setdefault(pool.arena, {})[method.name] = pool.nbytes
    return [SharedArena(arena, names[arena], max(needs[arena].values()), needs[arena]) for arena in sorted(needs)]


_POOL_COLUMNS = [
    *(">arena", ">bytes", ">live at most", ">lower bound", ">waste", ">limit", ">without reuse", ">values"),
    "most is needed at",
]
_VALUE_COLUMNS = [">bytes", "", "value", "type", "kind", ">arena", ">at", "needed", "source", "module"]


def print_memory(report: MemoryReport) -> None:
    """Print the arenas and the largest values of every method."""
    if not report.methods:
        print_line(f"{report.target}: no planned memory")
    for method in report.methods:
        print_line(f"{report.target}, method {method.name}: {counted(method.instructions, 'instruction')}")
        print_line()
        print_table(_POOL_COLUMNS, [pool.row() for pool in method.pools])
        if method.largest:
            print_line()
            rows = [value.row() for value in method.largest]
            print_table(_VALUE_COLUMNS, rows, title="largest values; * where most is needed")
        print_line()
    if report.together:
        print_line(
            f"one set of arenas for all methods: {nbytes_text(sum(one.nbytes for one in report.together))} bytes"
        )
        print_line()
        shared = [
            [
                f"{one.arena} {one.name}" if one.name else one.arena,
                nbytes_text(one.nbytes),
                ", ".join(f"{name} {nbytes_text(nbytes)}" for name, nbytes in one.methods.items()),
            ]
            for one in report.together
        ]
        print_table([">arena", ">bytes", "of these"], shared)
        print_line()
    for path in (report.svg, report.html, report.trace):
        if path is not None:
            print_line(f"written: {path}")
