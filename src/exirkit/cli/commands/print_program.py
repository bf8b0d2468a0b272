"""`exirkit print`: a program in the notation of rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.choices import Lowering
from exirkit.cli.console import Steps, output_to_stderr, print_json, print_line, print_text
from exirkit.cli.errors import unknown_name, usage_error
from exirkit.cli.files import write_text
from exirkit.cli.model import ModelSource, export_target, parse_source
from exirkit.cli.options import (
    Json,
    Level,
    LevelTarget,
    Libraries,
    MethodName,
    ModelTarget,
    Passes,
    Pipelines,
    Rules,
    Strict,
)
from exirkit.cli.root import app

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

    from exirkit.fuzz import LoweringSteps
    from exirkit.patterns import ProgramNotation


class PrintedDialect(StrEnum):
    """Dialects that a program can be printed in."""

    ATEN = "aten"
    EDGE = "edge"
    EXECUTORCH = "executorch"


@dataclass(frozen=True)
class PrintedMethod:
    """One method.

    Attributes:
        name: Its name.
        stage: The pass after which it was printed; `export` for the exported program.
        vars: Types of what comes from outside, by name.
        lines: The program in the notation of patterns, `return` last.
        unsaid: Nodes that rules cannot name, with the reason.
    """

    name: str
    stage: str
    vars: dict[str, str]
    lines: Sequence[str]
    unsaid: dict[str, str]


@dataclass(frozen=True)
class PrintReport:
    """The document of `exirkit print`.

    Attributes:
        target: The model.
        dialect: `aten`, `edge` or `executorch`.
        methods: Its methods.
        files: With `--each`, what was written instead.
    """

    target: str
    dialect: str
    methods: list[PrintedMethod]
    files: Sequence[str] = ()
    ok: bool = True


@app.command("print")
def print_program(
    target: ModelTarget,
    dialect: Annotated[PrintedDialect, typer.Option(help="Dialect to lower to.")] = PrintedDialect.EDGE,
    after: Annotated[
        str | None, typer.Option(metavar="PASS", help="Print the program after this pass.", show_default=False)
    ] = None,
    method: MethodName = None,
    module: Annotated[
        str | None, typer.Option(metavar="PATH", help="Only calls of this module: features.3.", show_default=False)
    ] = None,
    around: Annotated[
        str | None,
        typer.Option(metavar="NODE", help="Only this call and those near it, with debug handles.", show_default=False),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            metavar="NODE", help="Everything that is known of this node, instead of the program.", show_default=False
        ),
    ] = None,
    each: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the program after every pass that changes it to a file there.",
            show_default=False,
        ),
    ] = None,
    distance: Annotated[int, typer.Option(min=0, help="Number of steps from that call.")] = 2,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="Print sizes of `vars` as numbers instead of names.")
    ] = False,
    rules: Rules = None,
    pipeline: Pipelines = None,
    passes: Passes = None,
    optimize: Level = 1,
    runtime: LevelTarget = "official_host",
    strict: Strict = False,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Print a program in the notation of rules: what is printed can be copied into `vars` and `match` of a rule.

    Every call has its type, and its module and source line above it. With --module or --around, what the calls use from
    elsewhere is listed under `vars`, and what is used elsewhere is returned.
    """
    source = parse_source(target)
    lowering = Lowering(optimize, rules, pipeline, passes, runtime)
    with Steps() as steps:
        with steps.phase("torch", "loading torch"):
            import exirkit.fuzz  # noqa: F401 - its import is the phase
        if each is not None:
            _reject_unless_new(each, (after, node, around, module))
            lowered = _steps_of(source, lowering, steps, strict, method, to_the_end=True)
            files = _write_each(target, lowered, each, sizes=not numbers)
            _print_files(PrintReport(target, PrintedDialect.EXECUTORCH.value, [], files), json)
            return
        programs = _lowered(source, lowering, steps, strict, method, dialect, after)
        if node is not None:
            methods = [_described(name, stage, program, node) for name, stage, program in programs]
            if json:
                print_json(PrintReport(target, dialect.value, methods))
                return
            for one in methods:
                print_line(f"# {target}, {one.name}, after {one.stage}")
                print_text("\n".join(one.lines))
            return
        printed = [
            (stage, name, _notation(program, module, around, distance, sizes=not numbers))
            for name, stage, program in programs
        ]
    if json:
        methods = [PrintedMethod(name, stage, one.variables, one.lines, one.unsaid) for stage, name, one in printed]
        print_json(PrintReport(target, dialect.value, methods))
        return
    for stage, name, notation in printed:
        print_line(f"# {target}, {name}, after {stage}")
        print_text(notation.text())
        print_line()


def _reject_unless_new(folder: Path, others: Sequence[str | None]) -> None:
    """Raise the error of `--each` with options that choose a part, or with a directory that has something in it."""
    if any(one is not None for one in others):
        raise usage_error("--each writes whole programs: not with --after, --node, --around or --module")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise usage_error(f"{folder} is there already; --each writes to a directory that is new or empty")


def _print_files(report: PrintReport, json: bool) -> None:
    if json:
        print_json(report)
    else:
        print_text("\n".join(report.files))


def _write_each(target: str, lowered: Mapping[str, LoweringSteps], folder: Path, *, sizes: bool) -> list[str]:
    """Write the program of each method after every pass that changed it, in their order: `METHOD/02_PASS.txt`.

    Raises:
        DiagnosticError: The lowering failed; what there is until then has been written.
        OSError: A file cannot be written.
    """
    files = []
    for name, steps in lowered.items():
        for number, one in enumerate(steps.snapshots(name)):
            text = _notation(one.program, None, None, 0, sizes=sizes).text()
            file = folder / _plain(name) / f"{number:02d}_{_plain(one.stage)}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, f"# {target}, {name}, after {one.stage}\n{text}\n")
            files.append(str(file))
    failure = next((one.failure for one in lowered.values() if one.failure is not None), None)
    if failure is not None:
        raise failure
    return files


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name) or "-"


def _described(method: str, stage: str, program: ExportedProgram, wanted: str) -> PrintedMethod:
    """Return what is known of a node.

    Raises:
        CommandError: EK711, there is no such node.
    """
    from exirkit.devtools import describe_node, nodes_named
    from exirkit.ir import called_graphs

    name = wanted.removeprefix("%")
    found = nodes_named(program, name)
    if not found:
        known = [node.name for module in called_graphs(program.graph_module) for node in module.graph.nodes]
        raise unknown_name("the program has no node", name, list(dict.fromkeys(known)))
    lines = "\n\n".join(describe_node(node, program) for node in found).splitlines()
    return PrintedMethod(method, stage, {}, lines, {})


def _lowered(
    source: ModelSource,
    lowering: Lowering,
    steps: Steps,
    strict: bool,
    method: str | None,
    dialect: PrintedDialect,
    after: str | None,
) -> list[tuple[str, str, ExportedProgram]]:
    """Lower a model as far as is asked for; return the name of each method, the last pass, and the program.

    Raises:
        CommandError: EK711, there is no such method or pass; EK713 to EK718, the target gives no program.
        DiagnosticError: The program cannot be lowered that far.
        OSError: A file cannot be read.
    """
    to_the_end = dialect is PrintedDialect.EXECUTORCH or after is not None
    lowered = _steps_of(source, lowering, steps, strict, method, to_the_end=to_the_end)
    return [(name, *_chosen(name, one, dialect, after)) for name, one in lowered.items()]


def _steps_of(
    source: ModelSource, lowering: Lowering, steps: Steps, strict: bool, method: str | None, *, to_the_end: bool
) -> dict[str, LoweringSteps]:
    """Lower a model in steps; return these for each method that is asked for."""
    from exirkit.fuzz import lower_in_steps

    choices = lowering.choices()
    target = export_target(source, steps, strict=strict)
    names = sorted(target.only(method).programs)
    with steps.phase("lower", "lowering"), output_to_stderr():
        lowered = lower_in_steps(target.programs, choices, to_the_end=to_the_end)
    return dict.fromkeys(names, lowered)


def _chosen(
    method: str, lowered: LoweringSteps, dialect: PrintedDialect, after: str | None
) -> tuple[str, ExportedProgram]:
    path = lowered.snapshots(method)
    if after is not None:
        found = [one for one in path if one.stage == after]
        if found:
            return found[-1].stage, found[-1].program
        if lowered.failure is not None:
            raise lowered.failure
        raise unknown_name("no pass of this name changes the program:", after, [one.stage for one in path])
    if dialect is PrintedDialect.ATEN:
        return path[0].stage, path[0].program
    if lowered.failure is not None and (dialect is PrintedDialect.EXECUTORCH or method not in lowered.edge):
        raise lowered.failure
    if dialect is PrintedDialect.EXECUTORCH:
        assert lowered.manager is not None, "it did not fail"
        return path[-1].stage, lowered.manager.exported_program(method)
    return lowered.edge_snapshots(method)[-1].stage, lowered.edge[method]


def _notation(
    program: ExportedProgram, module: str | None, around: str | None, distance: int, *, sizes: bool
) -> ProgramNotation:
    """Return a program, or the calls that are asked for, in the notation of rules.

    Raises:
        CommandError: EK711, there is no such module or node.
    """
    from exirkit.ir import module_path, source_line
    from exirkit.patterns import notation_of, surrounding, with_between

    def comment(node: Node) -> str | None:
        handle = node.meta.get("debug_handle") if around is not None else None
        said = (module_path(node), source_line(node), None if handle is None else f"debug handle {handle}")
        return ", ".join(one for one in said if one) or None

    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    chosen: Sequence[Node] | None = None
    if around is not None:
        name = around.removeprefix("%")
        found = next((node for node in calls if node.name == name), None)
        if found is None:
            raise unknown_name("the program has no call", name, [node.name for node in calls])
        chosen = surrounding(found, distance)
    elif module is not None:
        paths = {node: module_path(node) or "" for node in calls}
        chosen = with_between([node for node in calls if f"{paths[node]}.".startswith(f"{module}.")])
        if not chosen:
            raise unknown_name(
                "the program has no call in module", module, list(dict.fromkeys(filter(None, paths.values())))
            )
    return notation_of(program, chosen, comment=comment, sizes=sizes)
