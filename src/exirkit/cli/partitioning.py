"""`exirkit partition`: what a partitioning takes of a model."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from exirkit.passes import PartitionAccount, WhyNot, account_of, load_partitioner
from exirkit.program import to_edge_keeping_whole

from .console import Steps, nbytes_text, output_to_stderr, stdout_console, table
from .failures import WRONG_USAGE, CommandError, printable
from .lowering import exported_methods
from .model_source import ModelSource
from .partition_reports import MethodPartitionReport, PartitionReport, TakenReport, WhyNotReport

_OPERATORS = 4
_CALLS = ("  call", "source", "module")
_GROUPED = (">calls", "operator", "why not", "rule")


@dataclass(frozen=True)
class PartitionOptions:
    """What to show.

    Attributes:
        partitioner: File of the partitioning.
        method: Name of a method; otherwise all.
        node: Name of a call to say all about.
        strict: Whether `torch.export` traces with TorchDynamo.
    """

    partitioner: Path
    method: str | None = None
    node: str | None = None
    strict: bool = False


def partition_source(
    source: ModelSource, options: PartitionOptions, steps: Steps
) -> tuple[PartitionReport, list[str] | None]:
    """Partition the model of a target.

    Returns:
        The report, and the texts about the asked node, if one is asked for.

    Raises:
        CommandError: EK711, there is no such method or call; EK714 to EK718, the target gives no exported program.
        ModelError: The partitioning has errors, or the model cannot be handled.
        OSError: The partitioning cannot be read.
    """
    # Before the model is exported, which may take long.
    partitioner = load_partitioner(options.partitioner)
    with output_to_stderr():
        exported = exported_methods(source, steps, strict=options.strict)
    if options.method is not None and options.method not in exported:
        raise _unknown("method", options.method, list(exported))
    edge = to_edge_keeping_whole(exported, [partitioner], progress=steps)
    names = [options.method] if options.method is not None else sorted(exported)
    steps("partitioning")
    accounts = {name: account_of(edge.exported_program(name), partitioner) for name in names}
    report = PartitionReport(
        target=source.text,
        partitioner=str(options.partitioner),
        methods=[_method(name, account) for name, account in accounts.items()],
    )
    return report, None if options.node is None else _about(options.node, list(accounts.values()))


def print_partitions(report: PartitionReport, texts: Sequence[str] | None, *, lists_all: bool) -> None:
    """Print partitions and reasons; or only what is said of one call."""
    if texts is not None:
        for text in texts:
            typer.echo("\n".join(printable(line) for line in text.splitlines()))
        return
    console = stdout_console()
    for method in report.methods:
        typer.echo(f"{printable(method.name)}: {method.taken_calls} of {method.calls} calls in "
                   f"{len(method.taken)} partitions")  # fmt: skip
        if method.taken:
            columns = ["partition", "backend", ">calls", ">inputs", ">results", ">macs", ">bytes", "operators", "rules"]
            console.print(table(columns, [_taken_row(one) for one in method.taken]))
        if method.not_taken:
            typer.echo("")
            if lists_all:
                _print_groups(method.not_taken)
            else:
                console.print(table(_GROUPED, _grouped_rows(method.not_taken)))


def _method(name: str, account: PartitionAccount) -> MethodPartitionReport:
    return MethodPartitionReport(
        name=name,
        calls=account.taken_calls + len(account.not_taken),
        taken_calls=account.taken_calls,
        taken=[TakenReport(**{**asdict(one), "nodes": list(one.nodes), "rules": list(one.rules)})
               for one in account.taken],
        not_taken=[_why_not(one) for one in account.not_taken],
    )  # fmt: skip


def _why_not(one: WhyNot) -> WhyNotReport:
    return WhyNotReport(
        node=one.node, graph=one.graph, operator=one.operator, kind=one.kind, reason=one.reason, rule=one.rule,
        others=list(one.others), source=one.place.source, module=one.place.module,
    )  # fmt: skip


def _about(name: str, listed: Sequence[PartitionAccount]) -> list[str]:
    name = name.removeprefix("%")
    found = [one.diagnostic().render() for account in listed for one in account.not_taken if one.node == name]
    taken = [one for account in listed for one in account.taken if name in one.nodes]
    found += [f"%{name} is taken: partition {one.tag}, by {' and '.join(one.rules)}" for one in taken]
    if not found:
        known = [one.node for account in listed for one in account.not_taken]
        known += [node for account in listed for one in account.taken for node in one.nodes]
        raise _unknown("call", name, known)
    return found


def _taken_row(one: TakenReport) -> list[object]:
    operators = [f"{count} {name}" for name, count in one.operators.items()]
    more = ["..."] if len(operators) > _OPERATORS else []
    nbytes = "no bound" if one.nbytes is None else nbytes_text(one.nbytes)
    return [
        one.tag, one.backend, len(one.nodes), one.inputs, one.results, f"{one.macs:,}", nbytes,
        ", ".join(operators[:_OPERATORS] + more), ", ".join(one.rules),
    ]  # fmt: skip


def _grouped(not_taken: Sequence[WhyNotReport]) -> list[tuple[tuple[str, str, str], list[WhyNotReport]]]:
    """Return calls by operator, reason and rule, the most frequent first."""
    groups: dict[tuple[str, str, str], list[WhyNotReport]] = {}
    for one in not_taken:
        groups.setdefault((one.operator, one.reason, one.rule or ""), []).append(one)
    return sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def _grouped_rows(not_taken: Sequence[WhyNotReport]) -> list[list[object]]:
    return [[len(calls), *key] for key, calls in _grouped(not_taken)]


def _print_groups(not_taken: Sequence[WhyNotReport]) -> None:
    """Print every call with its source line, under its operator and the reason."""
    console = stdout_console()
    for (operator, reason, rule), calls in _grouped(not_taken):
        count = f"{len(calls)} call{'s' if len(calls) != 1 else ''}"
        typer.echo(printable(f"{operator}, {count}: {reason}" + (f" ({rule})" if rule else "")))
        console.print(table(_CALLS, [[f"  {one.node}", _short(one.source), one.module or ""] for one in calls]))
        typer.echo("")


def _short(source: str | None) -> str:
    """Return a source line without the directories of its file."""
    place, gap, code = (source or "").partition(":  ")
    return place.rpartition("/")[2] + gap + code


def _unknown(what: str, name: str, known: Sequence[str]) -> CommandError:
    close = difflib.get_close_matches(name, known, n=1)
    return CommandError(
        code="EK711",
        message=f"the model has no {what} {name!r}",
        hint=f"did you mean {close[0]!r}?" if close else None,
        exit_code=WRONG_USAGE,
    )
