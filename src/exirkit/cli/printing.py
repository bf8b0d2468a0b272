"""`exirkit print`: a program in the notation of rules."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

import typer
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.fuzz import LoweringSteps, lower_in_steps
from exirkit.ir import module_path, source_line
from exirkit.patterns import ProgramNotation, notation_of, surrounding, with_between

from .chosen_lowering import ChosenLowering, choices_of, export_target
from .console import Steps, output_to_stderr
from .failures import WRONG_USAGE, CommandError, printable
from .model_source import ModelSource
from .print_reports import PrintedMethodReport, PrintReport


@dataclass(frozen=True)
class PrintOptions:
    """What to print.

    Attributes:
        lowering: How the model is lowered.
        dialect: `aten`, `edge` or `executorch`.
        after: A pass, after which the program is printed instead.
        method: Name of a method; otherwise all.
        module: Path of a module, whose calls alone are printed.
        around: Name of a node, whose surroundings alone are printed.
        distance: How many steps they reach.
        numbers: Print sizes as numbers instead of names.
    """

    lowering: ChosenLowering = field(default_factory=ChosenLowering)
    dialect: str = "edge"
    after: str | None = None
    method: str | None = None
    module: str | None = None
    around: str | None = None
    distance: int = 2
    numbers: bool = False


def print_source(source: ModelSource, options: PrintOptions, steps: Steps) -> PrintReport:
    """Lower a model as far as is asked for and write it in the notation of rules.

    Raises:
        CommandError: EK711, there is no such method, pass, module or node; EK713 to EK718, the target gives no program.
        DiagnosticError: The program cannot be lowered that far.
        OSError: A file cannot be read.
    """
    choices = choices_of(options.lowering)
    target = export_target(source, steps, strict=options.lowering.strict)
    names = sorted(target.only(options.method).programs)
    with steps.phase("lower", "lowering"), output_to_stderr():
        to_the_end = options.dialect == "executorch" or options.after is not None
        lowered = lower_in_steps(target.programs, choices, to_the_end=to_the_end)
    printed = []
    for name in names:
        stage, program = _chosen(name, lowered, options)
        notation = _notation(program, options)
        printed.append(
            PrintedMethodReport(
                name=name, stage=stage, vars=notation.variables, lines=list(notation.lines), unsaid=notation.unsaid
            )
        )
    return PrintReport(target=source.text, dialect=options.dialect, methods=printed)


def print_printed(report: PrintReport) -> None:
    """Print the keys `vars` and `match` of a rule for each method."""
    for method in report.methods:
        typer.echo(printable(f"# {report.target}, {method.name}, after {method.stage}"))
        notation = ProgramNotation(method.vars, tuple(method.lines), method.unsaid)
        typer.echo("\n".join(printable(line) for line in notation.text().splitlines()) + "\n")


def _chosen(method: str, lowered: LoweringSteps, options: PrintOptions) -> tuple[str, ExportedProgram]:
    path = lowered.snapshots(method)
    if options.after is not None:
        found = [one for one in path if one.stage == options.after]
        if found:
            return found[-1].stage, found[-1].program
        if lowered.failure is not None:
            raise lowered.failure
        raise _unknown("pass that changes it", options.after, [one.stage for one in path])
    if options.dialect == "aten":
        return path[0].stage, path[0].program
    if lowered.failure is not None and (options.dialect == "executorch" or method not in lowered.edge):
        raise lowered.failure
    if options.dialect == "executorch":
        assert lowered.manager is not None, "it did not fail"
        return path[-1].stage, lowered.manager.exported_program(method)
    program = lowered.edge[method]
    stages = [one.stage for one in lowered.edge_snapshots(method)]
    return stages[-1], program


def _notation(program: ExportedProgram, options: PrintOptions) -> ProgramNotation:
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    chosen: Sequence[Node] | None = None
    if options.around is not None:
        name = options.around.removeprefix("%")
        found = next((node for node in calls if node.name == name), None)
        if found is None:
            raise _unknown("call", name, [node.name for node in calls])
        chosen = surrounding(found, options.distance)
    elif options.module is not None:
        wanted = options.module
        chosen = with_between([node for node in calls if _is_in(node, wanted)])
        if not chosen:
            modules = [one for node in calls if (one := module_path(node)) is not None]
            raise _unknown("call in module", wanted, list(dict.fromkeys(modules)))
    return notation_of(program, chosen, comment=_comment, sizes=not options.numbers)


def _is_in(node: Node, module: str) -> bool:
    path = module_path(node) or ""
    return path == module or path.startswith(f"{module}.")


def _comment(node: Node) -> str | None:
    parts = [one for one in (module_path(node), source_line(node)) if one]
    return ", ".join(parts) or None


def _unknown(what: str, name: str, known: Sequence[str]) -> CommandError:
    close = difflib.get_close_matches(name, known, n=1)
    listed = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return CommandError(
        code="EK711",
        message=f"the program has no {what} {name!r}",
        hint=f"did you mean {close[0]!r}?" if close else f"there are {listed}" if known else None,
        exit_code=WRONG_USAGE,
    )
