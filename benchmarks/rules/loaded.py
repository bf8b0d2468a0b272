"""What it costs to have rules loaded that match nothing: 120 rules against all shipped ones, on the same programs.

Usage: python -m benchmarks.rules.loaded [MODEL ...] [--rounds N] [--nodes N] [--json FILE]

Of all shipped rules, those of backends included, those stay that do not match in the program, so that both sets rewrite
it in the same way; that they do is checked. Times are CPU seconds of this process, the shortest of the rounds, with the
sets taking turns. Calls of functions, counted by the profiler in one more run, are the same on a busy machine.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import logging
import math
import pstats
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.export import ExportedProgram

from benchmarks.models import build
from benchmarks.rewriting.engines import fresh_copy
from benchmarks.rewriting.graphs import plant
from benchmarks.rewriting.rules import family
from exirkit import to_edge
from exirkit.ir import GraphEditor
from exirkit.patterns import (
    CompiledRule,
    RewriteOptions,
    RewriteReport,
    RuleEngine,
    backend_books,
    load_book,
    shipped_books,
)

MODELS = ("mobilenet_v2", "gpt2", "bert")
FEW = ("canonicalize", "algebra", "fold", "copies", "ranges", "finite", "host", "fuse")
"""Books with the rules that are always loaded."""


@dataclass(frozen=True)
class Row:
    """What the two sets of rules cost in one program.

    Attributes:
        program: Its name.
        nodes: Nodes that it has.
        rules: How many rules there are in each set.
        applied: Applications, the same ones with both.
        seconds: Shortest run with each.
        calls: Calls of functions in one run with each.
    """

    program: str
    nodes: int
    rules: tuple[int, int]
    applied: int
    seconds: tuple[float, float]
    calls: tuple[int, int]

    @property
    def ratio(self) -> float:
        """Time with many rules over time with few."""
        return self.seconds[1] / self.seconds[0]


def rule_sets(program: ExportedProgram) -> tuple[list[CompiledRule], list[CompiledRule]]:
    """Return the rules that are always loaded, and these with all others that match nothing in a program."""
    few = _rules(FEW)
    known = {rule.id for rule in few}
    others = {rule.id: rule for rule in _rules((*shipped_books(), *backend_books())) if rule.id not in known}
    # Some of all rules undo each other. Once none of the others match, there are as many applications as with few.
    most = RewriteOptions(limit=len(_rewritten(RuleEngine(few), program).journal) + 1)
    while True:
        report = _rewritten(RuleEngine([*few, *others.values()]), program, most)
        matched = {name for name, one in report.statistics.items() if one.matched and name in others}
        if not matched:
            return few, [*few, *others.values()]
        others = {name: rule for name, rule in others.items() if name not in matched}


def _rules(books: Sequence[str]) -> list[CompiledRule]:
    return [rule for name in books for rule in load_book(name).require_valid().rules]


def _rewritten(engine: RuleEngine, program: ExportedProgram, options: RewriteOptions | None = None) -> RewriteReport:
    return engine.run(GraphEditor(fresh_copy(program, is_eager=False)), options)


def measure(name: str, program: ExportedProgram, rounds: int) -> Row:
    """Rewrite copies of a program with few and with many rules, in turns.

    Raises:
        AssertionError: The sets do not apply the same rules at the same nodes.
    """
    sets = rule_sets(program)
    engines = [RuleEngine(rules) for rules in sets]
    journals = [[(one.rule, one.root) for one in _rewritten(engine, program).journal] for engine in engines]
    assert journals[0] == journals[1], f"loaded rules change what is done to {name}"
    shortest = [math.inf, math.inf]
    for _ in range(rounds):
        for index, engine in enumerate(engines):
            editor = GraphEditor(fresh_copy(program, is_eager=False))
            gc.collect()
            started = time.process_time()
            engine.run(editor)
            shortest[index] = min(shortest[index], time.process_time() - started)
    few, many = (_calls(engine, program) for engine in engines)
    nodes = len(program.graph.nodes)
    rules = len(sets[0]), len(sets[1])
    return Row(name, nodes, rules, len(journals[0]), (shortest[0], shortest[1]), (few, many))


def _calls(engine: RuleEngine, program: ExportedProgram) -> int:
    editor = GraphEditor(fresh_copy(program, is_eager=False))
    profile = cProfile.Profile()
    profile.runcall(engine.run, editor)
    return sum(one[1] for one in pstats.Stats(profile).stats.values())  # type: ignore[attr-defined]


def report(rows: Sequence[Row]) -> None:
    """Print the table."""
    table = Table(title="rewriting with few rules and with many that match nothing", title_justify="left")
    for title in ("program", "nodes", "rules", "applied", "ms", "ratio", "calls", "ratio of calls"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row.program, f"{row.nodes:,}", f"{row.rules[0]} / {row.rules[1]}", str(row.applied),
            " / ".join(f"{one * 1e3:.1f}" for one in row.seconds), f"{row.ratio:.2f}",
            " / ".join(f"{one:,}" for one in row.calls), f"{row.calls[1] / row.calls[0]:.2f}",
        )  # fmt: skip
    Console(width=130).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=10_000, help="of a generated program; 0: none")
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    print(f"seed {options.seed}, torch {torch.__version__}", flush=True)
    programs: dict[str, Callable[[], ExportedProgram]] = {
        name: lambda name=name: to_edge(build(name).export()).exported_program()  # type: ignore[misc]
        for name in options.models
    }
    if options.nodes:
        programs["generated"] = lambda: plant(options.nodes, family(), 0.3, options.seed).program
    rows = []
    for name, make in programs.items():
        rows.append(measure(name, make(), options.rounds))
        print(rows[-1], flush=True)
    report(rows)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
