"""`exirkit memory`: from a file or model to the picture of its memory, its report, and the report as text."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from exirkit.passes import ApplyRules, ExecutorchBackendConfig, MemoryPlanningPass, MemoryPolicy, load_memory_policy
from exirkit.patterns import load_book, read_target
from exirkit.pictures import MemoryPicture, MethodPicture, PicturedArena, PicturedValue, picture_file, picture_manager
from exirkit.program import to_edge

from .book_operators import register_operators
from .console import Steps, nbytes_text, output_to_stderr, stdout_console, table
from .failures import WRONG_USAGE, CommandError, printable
from .lowering import PLANNERS, exported_methods
from .memory_reports import ArenaReport, LargeValueReport, MemoryReport, MethodMemoryReport, PoolReport
from .model_source import parse_source

# A source line of a table; the document of --json has all of it.
_SOURCE_LETTERS = 100


@dataclass(frozen=True)
class MemoryOptions:
    """Choices of `exirkit memory`; all but the first are for models that are not lowered yet.

    Attributes:
        method: Only this method.
        planner: `portfolio`, `greedy`, `naive` or `exact`; what the policy says, or `portfolio`, when absent.
        in_place: Let results take the place of arguments that nothing needs any more.
        schedule: Put independent instructions into an order in which less is live at once.
        optimize: Level of optimization.
        policy: Which memories there are and what lies in which; of a program file, their names and limits only.
        rules: Books that define operators of the file, or whose rules rewrite the model.
    """

    method: str | None = None
    planner: str | None = None
    in_place: bool = False
    schedule: bool = False
    optimize: int = 1
    policy: MemoryPolicy | None = None
    rules: tuple[str, ...] = ()


def picture_of(target: str, options: MemoryOptions, steps: Steps) -> MemoryPicture:
    """Return the picture of a program file, or of a model, which is lowered first.

    Raises:
        CommandError: EK713 to EK718, the target gives no program; EK723, there is no such method.
        DiagnosticError: The file is wrong, or the model cannot be lowered.
        OSError: The file cannot be read.
    """
    if target.endswith(".pte"):
        register_operators(options.rules)
        with steps.phase("read", f"reading {target}"):
            picture = picture_file(target, limits=_limits(options.policy))
    else:
        picture = _lowered_picture(target, options, steps)
    chosen = [method for method in picture.methods if options.method in (None, method.name)]
    if options.method is not None and not chosen:
        names = ", ".join(method.name for method in picture.methods) or "none"
        raise CommandError(
            code="EK723",
            message=f"no method {options.method!r} with planned memory",
            hint=f"methods: {names}",
            exit_code=WRONG_USAGE,
        )
    return picture.model_copy(update={"methods": tuple(chosen)})


def memory_report(
    picture: MemoryPicture,
    top: int,
    *,
    pools: MemoryPolicy | None = None,
    svg: Path | None = None,
    html: Path | None = None,
    trace: Path | None = None,
) -> MemoryReport:
    """Return the report of a picture.

    Args:
        picture: The picture.
        top: How many of the largest values to list of each method.
        pools: The policy that names the arenas.
        svg: Where the drawing will be.
        html: Where the page will be.
        trace: Where the trace will be.
    """
    methods = [_method(one, top, pools) for one in picture.methods]
    return MemoryReport(
        target=picture.title,
        methods=methods,
        together=_together(methods) if len(methods) > 1 else [],
        svg=None if svg is None else os.fspath(svg),
        html=None if html is None else os.fspath(html),
        trace=None if trace is None else os.fspath(trace),
    )


def print_memory(report: MemoryReport) -> None:
    """Print the report as tables."""
    console = stdout_console()
    if not report.methods:
        console.print(f"{printable(report.target)}: no planned memory", soft_wrap=True)
    for method in report.methods:
        console.print(
            f"{printable(report.target)}, method {printable(method.name)}: {method.instructions} instructions",
            soft_wrap=True,
        )
        console.print()
        console.print(table(_POOL_COLUMNS, [_pool_row(pool) for pool in method.pools]))
        if method.largest:
            console.print()
            rows = [_value_row(value) for value in method.largest]
            console.print(table(_VALUE_COLUMNS, rows, title="largest values; * where most is needed"))
        console.print()
    if report.together:
        rows = [_together_row(arena) for arena in report.together]
        total = nbytes_text(sum(arena.nbytes for arena in report.together))
        console.print(f"one set of arenas for all methods: {total} bytes", soft_wrap=True)
        console.print()
        console.print(table(_TOGETHER_COLUMNS, rows))
        console.print()
    for path in (report.svg, report.html, report.trace):
        if path is not None:
            console.print(f"written: {printable(path)}", soft_wrap=True)


_POOL_COLUMNS = [
    *(">arena", ">bytes", ">live at most", ">lower bound", ">waste", ">limit", ">without reuse", ">values"),
    "most is needed at",
]
_TOGETHER_COLUMNS = [">arena", ">bytes", "of these"]
_VALUE_COLUMNS = [">bytes", "", "value", "type", "kind", ">arena", ">at", "needed", "source"]


def _lowered_picture(target: str, options: MemoryOptions, steps: Steps) -> MemoryPicture:
    source = parse_source(target)
    with output_to_stderr():
        exported = exported_methods(source, steps)
    planning = MemoryPlanningPass(
        None if options.planner is None else PLANNERS[options.planner],
        in_place=options.in_place,
        schedule=options.schedule,
        policy=options.policy,
    )
    config = ExecutorchBackendConfig(
        memory_planning_pass=planning,
        optimization_level=options.optimize,
        target=read_target("official_host").without_registry(),
    )
    with steps.phase("to_edge"):
        edge = to_edge(exported, progress=steps)
        if options.rules:
            rules = [rule for name in options.rules for rule in load_book(name).require_valid().rules]
            edge = edge.transform([ApplyRules(rules)])
    with steps.phase("to_executorch"):
        manager = edge.to_executorch(config, progress=steps)
    return picture_manager(manager, title=target, limits=_limits(options.policy))


def pools_of(path: Path | None) -> MemoryPolicy | None:
    """Return the memory policy in a file, or None if there is no file.

    Raises:
        ModelError: EK480 and others, it is no policy.
        OSError: It cannot be read.
    """
    return None if path is None else load_memory_policy(path)


def _limits(policy: MemoryPolicy | None) -> dict[int, int]:
    pools = () if policy is None else policy.numbered_pools()
    return {number: pool.limit for number, pool in pools if pool.limit is not None}


def _method(method: MethodPicture, top: int, policy: MemoryPolicy | None) -> MethodMemoryReport:
    names = {} if policy is None else {number: pool.name for number, pool in policy.numbered_pools()}
    pools = [_pool(method, arena, names.get(arena.pool or arena.number)) for arena in method.arenas]
    at = {arena.number: arena.at for arena in method.arenas}
    largest = sorted(method.values, key=lambda value: (-value.nbytes, value.spans[0][0], value.value))[:top]
    return MethodMemoryReport(
        name=method.name,
        instructions=len(method.steps),
        pools=pools,
        largest=[_large_value(method, value, at.get(value.arena, -1)) for value in largest],
    )


def _pool(method: MethodPicture, arena: PicturedArena, name: str | None) -> PoolReport:
    step = method.steps[arena.at] if method.steps else None
    return PoolReport(
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
    )


def _together(methods: list[MethodMemoryReport]) -> list[ArenaReport]:
    needs: dict[int, dict[str, int]] = {}
    names: dict[int, str | None] = {}
    for method in methods:
        for pool in method.pools:
            names.setdefault(pool.arena, pool.name)
            if pool.nbytes:
                needs.setdefault(pool.arena, {})[method.name] = pool.nbytes
    return [
        ArenaReport(arena=arena, name=names[arena], nbytes=max(needs[arena].values()), methods=needs[arena])
        for arena in sorted(needs)
    ]


def _together_row(arena: ArenaReport) -> list[object]:
    of_methods = ", ".join(f"{printable(name)} {nbytes_text(nbytes)}" for name, nbytes in arena.methods.items())
    title = f"{arena.arena} {arena.name}" if arena.name else arena.arena
    return [title, nbytes_text(arena.nbytes), of_methods]


def _large_value(method: MethodPicture, value: PicturedValue, peak: int) -> LargeValueReport:
    return LargeValueReport(
        name=value.name,
        type=value.type,
        kind=value.kind,
        arena=value.arena,
        offset=value.offset,
        nbytes=value.nbytes,
        spans=list(value.spans),
        at_peak=any(first <= peak <= last for first, last in value.spans),
        operator=None if value.producer is None else method.steps[value.producer].text,
        source=method.source_of(value),
    )


def _pool_row(pool: PoolReport) -> list[object]:
    place = f"{pool.at}: {pool.instruction or 'no instruction'}" + (f"  {_short(pool.source)}" if pool.source else "")
    limit = "" if pool.limit is None else nbytes_text(pool.limit)
    sizes = (pool.nbytes, pool.live_nbytes, pool.lower_bound, pool.waste)
    arena = f"{pool.arena} {pool.name}" if pool.name else pool.arena
    return [
        arena, *(nbytes_text(size) for size in sizes), limit, nbytes_text(pool.total_nbytes), pool.values, place
    ]  # fmt: skip


def _value_row(value: LargeValueReport) -> list[object]:
    needed = ", ".join(f"{first}-{last}" for first, last in value.spans[:3]) + (", ..." if len(value.spans) > 3 else "")
    return [
        nbytes_text(value.nbytes), "*" if value.at_peak else "", value.name, value.type, value.kind, value.arena,
        nbytes_text(value.offset), needed, _short(value.source or value.operator or ""),
    ]  # fmt: skip


def _short(source: str) -> str:
    """Return a source line without the directories of its file, and not longer than a table can bear."""
    place, gap, code = source.partition(":  ")
    line = place.rpartition("/")[2] + gap + code
    return line if len(line) <= _SOURCE_LETTERS else line[: _SOURCE_LETTERS - 3] + "..."
