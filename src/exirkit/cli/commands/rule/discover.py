"""`exirkit rule discover`: rules from enumerated graphs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import Steps, output_to_stderr, print_json, print_line, print_table
from exirkit.cli.errors import usage_error
from exirkit.cli.files import check_writable, write_text
from exirkit.cli.options import Json, Libraries, Seed

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from exirkit.fuzz import OfficialRuntime
    from exirkit.patterns import Discovered, Discovery

_ROUNDS = 3
_REPEATS = 200


@dataclass(frozen=True)
class DiscoveredRule:
    """One rule.

    Attributes:
        rule: Its id.
        match: The graph that it replaces.
        replace: What takes its place.
        estimated: How many times as long the first one takes, by the target description; None: the other one is free.
        measured: The same on the official runtime; None if that was not asked.
        proof: What the solver shows: `proved`, `bounded` or `open`; None if it was not asked.
    """

    rule: str
    match: str
    replace: str
    estimated: float | None
    measured: float | None
    proof: str | None


@dataclass(frozen=True)
class DiscoveryReport:
    """The document of `exirkit rule discover`.

    Attributes:
        ok: At least one rule was found.
        file: Where the book was written, if it was.
        rules: The rules.
        graphs: How many graphs were compared.
        pairs: How many pairs of them seemed to compute the same at different cost, instances of others aside.
        known: Pairs that shipped rules rewrite already.
        undone: Pairs whose cheaper graph a shipped rule rewrites to a more expensive one.
        rejected: Pairs that trials or the solver tell apart.
        slower: Rules that gain too little, and were left out.
        seed: Of samples and trials.
    """

    ok: bool
    file: str | None
    rules: list[DiscoveredRule]
    graphs: int
    pairs: int
    known: int
    undone: int
    rejected: int
    slower: int
    seed: int


def discover(
    vocabularies: Annotated[
        list[str] | None, typer.Argument(metavar="[VOCABULARY|FILE.yaml]...", show_default=False)
    ] = None,
    calls: Annotated[int, typer.Option(min=1, max=4, help="Calls of the largest graphs.")] = 2,
    target: Annotated[str, typer.Option(metavar="NAME|FILE", help="Whose costs decide.")] = "official_host",
    prove: Annotated[
        bool, typer.Option("--prove", help="Ask the solver of each rule, and drop what it refutes.")
    ] = False,
    measure: Annotated[bool, typer.Option("--measure", help="Measure each rule on the official runtime.")] = False,
    gain: Annotated[
        float, typer.Option(min=1, help="Drop what gains less: by measurement, or without it by the target's costs.")
    ] = 1.05,
    seed: Seed = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="BOOK.yaml")] = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Find rules by enumeration: exit code 1 if there is none.

    A vocabulary names variables and operators. All graphs of a few calls are made of them; where two compute the same
    and one costs less, and no shipped rule knows it, a rule is written. Trials check it as they check any rule.
    """
    check_writable(output, ".yaml")
    with Steps() as steps:
        steps("loading torch")
        from exirkit.patterns import (
            Discovery,
            discovered_book_text,
            read_target,
            read_vocabulary,
            shipped_vocabularies,
        )

        read = [read_vocabulary(name) for name in vocabularies or shipped_vocabularies()]
        if len({one.name for one in read}) < len(read):
            raise usage_error("two vocabularies have one name, by which their rules are called")
        costs = read_target(target)
        found: dict[tuple[str, ...], tuple[Discovered, float | None]] = {}
        tallies = []
        with output_to_stderr():
            for vocabulary in read:
                discovery = Discovery(vocabulary, costs, seed=seed, proves=prove)
                # Vocabularies have operators in common.
                rules = [
                    one for one in discovery.run(calls, partial(_tell, steps, vocabulary.name)) if one.key not in found
                ]
                tallies.append(discovery.tally)
                gains = _measured(discovery, rules, steps) if measure else [None] * len(rules)
                found |= {one.key: (one, gain) for one, gain in zip(rules, gains, strict=True)}
    kept = [(rule, more) for rule, more in found.values() if (rule.gain if more is None else more) >= gain]
    if output is not None and kept:
        said = [rule if more is None else rule.with_doc(_said(more)) for rule, more in kept]
        write_text(output, discovered_book_text(read, said))
    report = DiscoveryReport(
        bool(kept),
        os.fspath(output) if output is not None and kept else None,
        [_row(rule, more) for rule, more in kept],
        sum(one.graphs for one in tallies),
        sum(one.pairs for one in tallies),
        sum(one.known for one in tallies),
        sum(one.undone for one in tallies),
        sum(one.rejected for one in tallies),
        len(found) - len(kept),
        seed,
    )
    if json:
        print_json(report)
    else:
        _print(report)
    raise typer.Exit(0 if report.ok else 1)


def _tell(steps: Steps, vocabulary: str, what: str) -> None:
    steps(f"{vocabulary}: {what}")


def _row(one: Discovered, gain: float | None) -> DiscoveredRule:
    slow, fast = one.candidate.pattern.text, one.candidate.replacement.text
    estimated = one.gain if one.candidate.replacement_ns else None
    return DiscoveredRule(
        one.rule.id, slow, fast, estimated, gain, None if one.certificate is None else one.certificate.status
    )


def _said(gain: float) -> str:
    return f"Measured on the official runtime: {gain:.2f} times as fast."


def _measured(discovery: Discovery, rules: list[Discovered], steps: Steps) -> list[float | None]:
    """Return how many times as fast each rule makes its graph on the official runtime."""
    from exirkit.fuzz import OfficialRuntime, require_official

    require_official()
    gains: list[float | None] = []
    with OfficialRuntime() as official:
        for number, one in enumerate(rules, 1):
            steps(f"measuring rule {number} of {len(rules)}")
            gains.append(_gain(discovery.programs(one), official))
    return gains


def _gain(programs: list[tuple[ExportedProgram, tuple[torch.Tensor, ...]]], official: OfficialRuntime) -> float:
    from exirkit.passes import ExecutorchBackendConfig
    from exirkit.program import to_edge

    config = ExecutorchBackendConfig(optimization_level=0)
    files = [(to_edge(program).to_executorch(config).buffer, inputs) for program, inputs in programs]
    times: list[list[int]] = [[] for _ in files]
    # In turns, so that a machine that is slow at times is so for both.
    for _ in range(_ROUNDS):
        for known, (file, inputs) in zip(times, files, strict=True):
            known.append(min(official.measure_latency_ns(file, inputs, repeats=_REPEATS)))
    slow, fast = map(min, times)
    return slow / fast


def _print(report: DiscoveryReport) -> None:
    rows = []
    for one in report.rules:
        estimated = "free" if one.estimated is None else f"{one.estimated:.2f}"
        measured = "" if one.measured is None else f"{one.measured:.2f}"
        rows.append([one.rule, estimated, measured, one.proof or ""])
    if rows:
        print_table(["rule", "estimated gain", "measured", "proof"], rows)
        print_line()
    print_line(
        f"{len(report.rules)} rules of {report.graphs:,} graphs and {report.pairs:,} pairs: {report.known:,} known, "
        f"{report.undone:,} undone, {report.rejected:,} rejected, {report.slower:,} of too little gain"
    )
    if report.file is not None:
        print_line(report.file)
