"""`exirkit partition`: what a partitioning takes of a model, and why not the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exirkit.cli.console import (
    Steps,
    counted,
    nbytes_text,
    print_json,
    print_line,
    print_table,
    print_text,
    source_text,
)
from exirkit.cli.errors import unknown_name
from exirkit.cli.model import export_target, parse_source
from exirkit.cli.options import Json, Libraries, MethodName, ModelTarget, Strict
from exirkit.cli.root import app

if TYPE_CHECKING:
    from exirkit.passes import PartitionAccount, WhyNot

_OPERATORS = 4


@dataclass(frozen=True)
class NotTakenReport:
    """Why a call is not taken.

    Attributes:
        node: Name of the call.
        graph: Path of the subgraph of control flow that it is in.
        operator: Its operator.
        kind: The kind of reason; see `exirkit.WhyNot`.
        reason: The reason in words.
        rule: Title of the rule that came nearest.
        others: What other rules ask for.
        source: The line of the model that it comes from.
        module: Path of the module that it comes from.
    """

    node: str
    graph: str
    operator: str
    kind: str
    reason: str
    rule: str | None
    others: Sequence[str]
    source: str | None
    module: str | None

    @classmethod
    def of(cls, one: WhyNot) -> NotTakenReport:
        """Return the document of a call."""
        return cls(
            one.node, one.graph, one.operator, one.kind, one.reason, one.rule, one.others,
            one.place.source, one.place.module,
        )  # fmt: skip


@dataclass(frozen=True)
class MethodPartition:
    """What is taken of one method.

    Attributes:
        name: Its name.
        calls: How many calls it has.
        taken_calls: How many of them are taken.
        taken: Partitions, with `tag`, `graph`, `backend`, `nodes`, `operators`, `rules`, the numbers of `inputs` and
            `results`, and the `elements`, `macs` and `nbytes` that its calls compute.
        not_taken: The other calls.
    """

    name: str
    calls: int
    taken_calls: int
    taken: Sequence[Any]
    not_taken: list[NotTakenReport]


@dataclass(frozen=True)
class PartitionReport:
    """The document of `exirkit partition`.

    Attributes:
        target: The model.
        partitioner: The partitioning file.
        methods: Its methods.
    """

    target: str
    partitioner: str
    methods: list[MethodPartition]
    ok: bool = True


@app.command()
def partition(
    target: ModelTarget,
    partitioner: Annotated[Path, typer.Option("--partitioner", metavar="FILE.yaml", help="Partitioner: a YAML file.")],
    method: MethodName = None,
    why_not: Annotated[
        bool, typer.Option("--why-not", help="List the calls that are not taken, by operator and reason.")
    ] = False,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Report everything about one call.", show_default=False)
    ] = None,
    strict: Strict = False,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Show which calls of a model a partitioner takes, and why not the others.

    No backend is needed: nothing is compiled. The model is lowered to Edge, without decomposing the operators that the
    partitioning wants to keep.
    """
    source = parse_source(target)
    with Steps() as steps:
        with steps.phase("load", "loading torch"):
            from exirkit.passes import account_of, load_partitioner
            from exirkit.program import to_edge_keeping_whole

        # Read before the model is exported, which may take long.
        rules = load_partitioner(partitioner)
        exported = export_target(source, steps, strict=strict)
        names = sorted(exported.only(method).programs)
        edge = to_edge_keeping_whole(exported.programs, [rules], progress=steps)
        steps("partitioning")
        accounts = {name: account_of(edge.exported_program(name), rules) for name in names}
    texts = [] if node is None else _about(node.removeprefix("%"), list(accounts.values()))
    report = PartitionReport(
        target=target,
        partitioner=str(partitioner),
        methods=[
            MethodPartition(
                name=name,
                calls=account.taken_calls + len(account.not_taken),
                taken_calls=account.taken_calls,
                taken=account.taken,
                not_taken=[NotTakenReport.of(one) for one in account.not_taken],
            )
            for name, account in accounts.items()
        ],
    )
    if json:
        print_json(report)
    elif node is not None:
        for text in texts:
            print_text(text)
    else:
        _print_partitions(report, lists_all=why_not)


def _about(name: str, accounts: Sequence[PartitionAccount]) -> list[str]:
    """Return what is known of one call.

    Raises:
        CommandError: EK711, there is no such call.
    """
    found = [one.diagnostic().render() for account in accounts for one in account.not_taken if one.node == name]
    taken = [one for account in accounts for one in account.taken if name in one.nodes]
    found += [f"%{name} is taken: partition {one.tag}, by {' and '.join(one.rules)}" for one in taken]
    if not found:
        known = [one.node for account in accounts for one in account.not_taken]
        known += [node for account in accounts for one in account.taken for node in one.nodes]
        raise unknown_name("the model has no call", name, known)
    return found


def _print_partitions(report: PartitionReport, *, lists_all: bool) -> None:
    for method in report.methods:
        print_line(f"{method.name}: {method.taken_calls} of {method.calls} calls in {len(method.taken)} partitions")
        if method.taken:
            columns = ["partition", "backend", ">calls", ">inputs", ">results", ">macs", ">bytes", "operators", "rules"]
            print_table(columns, [_taken_row(one) for one in method.taken])
        if method.not_taken:
            print_line()
            groups = list(_groups(method.not_taken))
            if not lists_all:
                rows = [[len(calls), *key] for key, calls in groups]
                print_table([">calls", "operator", "why not", "rule"], rows)
            for (operator, reason, rule), calls in groups if lists_all else ():
                print_line(f"{operator}, {counted(len(calls), 'call')}: {reason}" + (f" ({rule})" if rule else ""))
                listed = [[f"  {one.node}", source_text(one.source, None), one.module or ""] for one in calls]
                print_table(["  call", "source", "module"], listed)
                print_line()


def _taken_row(one: Any) -> list[object]:
    operators = [f"{count} {name}" for name, count in one.operators.items()]
    more = ["..."] if len(operators) > _OPERATORS else []
    nbytes = "no bound" if one.nbytes is None else nbytes_text(one.nbytes)
    return [
        one.tag, one.backend, len(one.nodes), one.inputs, one.results, f"{one.macs:,}", nbytes,
        ", ".join(operators[:_OPERATORS] + more), ", ".join(one.rules),
    ]  # fmt: skip


def _groups(not_taken: Sequence[NotTakenReport]) -> Iterator[tuple[tuple[str, str, str], list[NotTakenReport]]]:
    """Yield calls by operator, reason and rule, the most frequent first."""
    groups: dict[tuple[str, str, str], list[NotTakenReport]] = {}
    for one in not_taken:
        groups.setdefault((one.operator, one.reason, one.rule or ""), []).append(one)
    yield from sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))
