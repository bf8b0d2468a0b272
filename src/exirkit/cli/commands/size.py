"""`exirkit size`: what takes space in a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.choices import planning_pass, rules_of
from exirkit.cli.console import Steps, nbytes_text, print_json, print_line, print_table
from exirkit.cli.model import export_target, parse_source
from exirkit.cli.options import Json, Level, LevelTarget, Libraries, Rules
from exirkit.cli.root import app

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from exirkit.cli.program_file import BytesByKind
    from exirkit.program import ExecutorchProgramManager
    from exirkit.visualization import ProgramSizes, SizeEntry


@dataclass(frozen=True)
class LevelSize:
    """What a model takes at one level of optimization.

    Attributes:
        level: The level.
        nbytes: Bytes of the file.
        bytes_by_kind: Where they are.
        arenas: Bytes of the planned memory, by method.
        instructions: Number of instructions, by method.
    """

    level: int
    nbytes: int
    bytes_by_kind: BytesByKind
    arenas: dict[str, int]
    instructions: dict[str, int]


@dataclass(frozen=True)
class SizeReport:
    """The document of `exirkit size`.

    Attributes:
        target: The file or model.
        nbytes: Bytes of the file.
        bytes_by_kind: Where they are.
        by_operator: Constants by the operator that uses them first, with the number of its calls.
        by_dtype: Constants by dtype.
        by_module: Constants by the module that uses them first; empty for program files, which know no modules.
        levels: The model at all levels of optimization, if that was asked for.
    """

    target: str
    nbytes: int
    bytes_by_kind: BytesByKind
    by_operator: Sequence[SizeEntry]
    by_dtype: Sequence[SizeEntry]
    by_module: Sequence[SizeEntry]
    levels: Sequence[LevelSize]
    ok: bool = True


@app.command()
def size(
    target: Annotated[str, typer.Argument(metavar="MODEL.pte|MODULE:FACTORY|FILE.pt2", show_default=False)],
    depth: Annotated[
        int | None, typer.Option(min=1, help="Parts that paths of modules keep: 1 adds up encoder.0 and encoder.1.")
    ] = None,
    levels: Annotated[bool, typer.Option("--levels", help="Lower a model at -O0, -O1 and -O2 and compare.")] = False,
    optimize: Level = 1,
    lowered_for: LevelTarget = "official_host",
    rules: Rules = None,
    top: Annotated[int, typer.Option(min=0, help="Rows of each table.")] = 12,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Show what takes space in a program: by part of the file, operator, dtype and module.

    A model is lowered first, as `exirkit lower` does. Constants count where they are used first.
    """
    with Steps() as steps:
        report = _report_on_file(target, rules, steps)
        if report is None:
            report = _report_on_model(target, depth, levels, optimize, lowered_for, rules, steps)
    if json:
        print_json(report)
    else:
        print_sizes(report, top)


def _report_on_file(target: str, books: Sequence[str] | None, steps: Steps) -> SizeReport | None:
    if not target.endswith(".pte"):
        return None
    from pathlib import Path

    from exirkit.cli.program_file import bytes_by_kind, register_operators
    from exirkit.emit import open_program
    from exirkit.visualization import program_sizes

    register_operators(books)
    nbytes = Path(target).stat().st_size
    with steps.phase("read", f"reading {target}"), open_program(target) as file:
        return _document(target, nbytes, bytes_by_kind(file, nbytes), program_sizes(file.program), [])


def _report_on_model(
    target: str,
    depth: int | None,
    all_levels: bool,
    level: int,
    lowered_for: str,
    books: Sequence[str] | None,
    steps: Steps,
) -> SizeReport:
    with steps.phase("load", "loading torch"):
        from exirkit.visualization import sizes_of_manager

    exported = export_target(parse_source(target), steps).programs
    managers = {
        each: _lower(exported, each, lowered_for, books, steps)
        for each in sorted({level, *(range(3) if all_levels else ())})
    }
    chosen = _level_size(level, managers[level])
    sizes = sizes_of_manager(managers[level], depth=depth)
    listed = [_level_size(each, manager) for each, manager in managers.items()] if all_levels else []
    return _document(target, chosen.nbytes, chosen.bytes_by_kind, sizes, listed)


def _lower(
    exported: dict[str, ExportedProgram], level: int, lowered_for: str, books: Sequence[str] | None, steps: Steps
) -> ExecutorchProgramManager:
    from exirkit.passes import ApplyRules, ExecutorchBackendConfig
    from exirkit.program import to_edge

    config = ExecutorchBackendConfig(
        memory_planning_pass=planning_pass(None, None, in_place=False, schedule=False),
        optimization_level=level,
        target=lowered_for,
    )
    with steps.phase(f"-O{level}", f"lowering at -O{level}"):
        edge = to_edge(exported)
        if books:
            edge = edge.transform([ApplyRules(rules_of(books))])
        return edge.to_executorch(config)


def _level_size(level: int, manager: ExecutorchProgramManager) -> LevelSize:
    from exirkit.cli.program_file import bytes_by_kind
    from exirkit.emit import read_program

    file = read_program(manager.buffer)
    plans = file.program.execution_plan
    return LevelSize(
        level=level,
        nbytes=len(manager.buffer),
        bytes_by_kind=bytes_by_kind(file, len(manager.buffer)),
        arenas={plan.name: sum(plan.non_const_buffer_sizes[1:]) for plan in plans},
        instructions={plan.name: sum(len(chain.instructions) for chain in plan.chains) for plan in plans},
    )


def _document(
    target: str, nbytes: int, kinds: BytesByKind, sizes: ProgramSizes, levels: Sequence[LevelSize]
) -> SizeReport:
    return SizeReport(target, nbytes, kinds, sizes.by_operator, sizes.by_dtype, sizes.by_module, levels)


def print_sizes(report: SizeReport, top: int) -> None:
    """Print what takes space; at most `top` rows a table."""
    from exirkit.cli.program_file import print_bytes

    print_line(f"{report.target} ({nbytes_text(report.nbytes)} bytes)")
    print_bytes(report.bytes_by_kind)
    for what, entries in (("operator", report.by_operator), ("dtype", report.by_dtype), ("module", report.by_module)):
        _print_entries(what, entries, top)
    if report.levels:
        _print_levels(report.levels)


def _print_levels(levels: Sequence[LevelSize]) -> None:
    parts = [asdict(each.bytes_by_kind) for each in levels]
    figures = {
        "file": [each.nbytes for each in levels],
        **{kind.replace("_", " "): [part[kind] for part in parts] for kind in parts[0]},
        "arenas": [sum(each.arenas.values()) for each in levels],
        "instructions": [sum(each.instructions.values()) for each in levels],
    }
    rows = [[name, *map(nbytes_text, each)] for name, each in figures.items() if any(each)]
    print_line()
    print_table(["", *(f">-O{each.level}" for each in levels)], rows)


def _print_entries(what: str, entries: Sequence[SizeEntry], top: int) -> None:
    if not entries or not top:
        return
    total = sum(each.nbytes for each in entries) or 1

    def row(name: str, of: Sequence[SizeEntry]) -> list[object]:
        nbytes = sum(each.nbytes for each in of)
        counts = (sum(each.constants for each in of), sum(each.calls for each in of) or "")
        return [name, nbytes_text(nbytes), f"{nbytes / total:.1%}", *counts]

    rows = [row(each.name or "(none)", [each]) for each in entries[:top]]
    if entries[top:]:
        rows.append(row(f"{len(entries) - top} others", entries[top:]))
    print_line()
    print_table([what, ">bytes of constants", ">share", ">constants", ">calls"], rows)
