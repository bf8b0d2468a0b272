"""Apply the same rules to the same programs with five engines, and print times, ratios and the sites that each missed.

Usage: python -m benchmarks.rewriting [--quick] [--engines NAME ...] [--seed N] [--rounds N] [--limit SECONDS]

Engines take turns, each on a fresh copy of the program; times are CPU seconds of this process, the shortest of the
rounds. Ratios are others over ours: above 1 is better for us. Only ours infers the values of new nodes, checks dtype
and shape of every result against what it replaces, and can undo each application; the handlers of Inductor's patterns
and the rewriter of FX edit the graph and nothing else. `fx` has modules as torch.export returns them, whose code is
made again for every rule; `fx-lazy` and all others have modules whose code is made when it is next needed, which
is not counted. `edits alone` is not an engine: it is given the sites and edits the graph, for the part of the cost that
is FX itself.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import math
import sys
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.rewriting.engines import ENGINES, FLOOR, Engine, fresh_copy
from benchmarks.rewriting.graphs import Planted, plant
from benchmarks.rewriting.rules import family

OURS = "exirkit"
SHARES = {"no sites": 0.0, "with sites": 0.3}
REPEATED_BELOW = 4.0


@dataclass
class Cell:
    """What one engine did with one program.

    Attributes:
        engine: Its name.
        rules: How many rules it had.
        planted: `no sites` or `with sites`.
        size: Nodes that the program was asked to have.
        nodes: Nodes that it has.
        seconds: Shortest run.
        sites: Places where a rule must be applied.
        found: How many of them it rewrote.
        missed: The others, by how they are written.
        wrong: Places that it rewrote though a value inside is used elsewhere.
    """

    engine: str
    rules: int
    planted: str
    size: int
    nodes: int
    seconds: float = math.inf
    sites: int = 0
    found: int = 0
    missed: dict[str, int] = field(default_factory=dict)
    wrong: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300 and 1,000 nodes, 1 and 30 rules")
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--rounds", type=int, default=3, help="most runs of an engine on one program")
    parser.add_argument("--limit", type=float, default=180.0, help="leave out runs expected to take more seconds")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    sizes, counts = ((300, 1_000), (1, 30)) if options.quick else ((1_000, 5_000, 20_000), (1, 30, 120))
    engines = [OURS, *(name for name in options.engines if name != OURS)]
    print(f"seed {options.seed}, torch {torch.__version__}, {', '.join(engines)}", flush=True)
    warm_up(engines, options.seed)
    cells: list[Cell] = []
    starts: dict[str, dict[int, float]] = {name: {} for name in engines}
    # The most rules first: what takes long shows early.
    for count in reversed(counts):
        prepared = {}
        for name in engines:
            started = time.process_time()
            prepared[name] = ENGINES[name](family()[:count])
            starts[name][count] = time.process_time() - started
        for size in sizes:
            for title, share in SHARES.items():
                planted = plant(size, family()[:count], share, options.seed)
                expected = {name: _expected(cells, name, count, title, size) for name in engines}
                chosen = {name: one for name, one in prepared.items() if expected[name] <= options.limit}
                cells += measure(planted, chosen, Cell("", count, title, size, _length(planted)), options.rounds)
                if options.json:
                    figures = {"starts": starts, "cells": [asdict(cell) for cell in cells]}
                    options.json.write_text(json.dumps(figures, indent=1))
    report(cells, starts, engines)
    return 0


def warm_up(engines: list[str], seed: int) -> None:
    """Let every engine import, register and remember what they do once in a process."""
    planted = plant(60, family(), 0.5, seed)
    for name in engines:
        engine = ENGINES[name](family())
        program = fresh_copy(planted.program, is_eager=engine.is_eager)
        engine.prepare(program)
        engine.run(program)


def _expected(cells: list[Cell], name: str, rules: int, planted: str, size: int) -> float:
    """Return how long a run may take, judged by the last smaller one; FX grows with the rules, the others do not."""
    known = [cell for cell in cells if (cell.engine, cell.rules, cell.planted) == (name, rules, planted)]
    return known[-1].seconds * size / known[-1].nodes if known else 0.0


def _length(planted: Planted) -> int:
    return len(planted.program.graph.nodes)


def measure(planted: Planted, engines: dict[str, Engine], blank: Cell, rounds: int) -> list[Cell]:
    """Run every engine on copies of one program, in turns, and fill in a cell for each."""
    sites = {(site.rule, site.root): site.spelling for site in planted.sites}
    traps = {(site.rule, site.root) for site in planted.traps}
    cells = {name: replace(blank, engine=name, sites=len(sites)) for name in engines}
    for turn in range(rounds):
        for name, engine in engines.items():
            cell = cells[name]
            if turn and cell.seconds > REPEATED_BELOW:
                continue
            program = fresh_copy(planted.program, is_eager=engine.is_eager)
            engine.prepare(program)
            gc.collect()
            started = time.process_time()
            found = set(engine.run(program))
            cell.seconds = min(cell.seconds, time.process_time() - started)
            cell.found = len(found & sites.keys())
            cell.missed = dict(Counter(spelling for site, spelling in sites.items() if site not in found))
            cell.wrong = len(found & traps)
    shown = "  ".join(f"{cell.engine} {cell.seconds:.3f}" for cell in cells.values())
    print(f"{blank.nodes:6d} nodes, {blank.rules:3d} rules, {blank.planted}: {shown}", file=sys.stderr, flush=True)
    return list(cells.values())


def report(cells: list[Cell], starts: dict[str, dict[int, float]], engines: list[str]) -> None:
    """Print the tables."""
    console = Console(width=max(150, Console().width))
    table = {(cell.engine, cell.rules, cell.planted, cell.size): cell for cell in cells}
    places = sorted({(cell.rules, cell.size) for cell in cells})
    console.print(_per_node(table, places, engines))
    console.print(_per_match(table, places, engines))
    console.print(_whole(table, places, engines))
    console.print(_sites(cells, engines))
    console.print(_start(starts, engines))
    print_growth(cells, engines)


Cells = dict[tuple[str, int, str, int], Cell]
Places = list[tuple[int, int]]


def _table(title: str, engines: list[str], *, has_ratio: bool = True) -> Table:
    made = Table(title=title, title_justify="left")
    for name in ("nodes", "rules", *engines, *(("fastest other / ours",) if has_ratio else ())):
        made.add_column(name, justify="right")
    return made


def _rows(made: Table, values: dict[tuple[int, int], dict[str, float]], form: str) -> Table:
    for (rules, size), row in values.items():
        others = [value for name, value in row.items() if name not in (OURS, FLOOR) and math.isfinite(value)]
        ratio = f"{min(others) / row[OURS]:.1f}" if others and row[OURS] > 0 else "-"
        shown = [format(value, form) if math.isfinite(value) else "-" for value in row.values()]
        made.add_row(f"{size:,}", str(rules), *shown, ratio)
    return made


def _value(table: Cells, engine: str, place: tuple[int, int], planted: str) -> float:
    cell = table.get((engine, place[0], planted, place[1]))
    return math.inf if cell is None else cell.seconds


def _per_node(table: Cells, places: Places, engines: list[str]) -> Table:
    values = {
        place: {name: _value(table, name, place, "no sites") / place[1] * 1e6 for name in engines} for place in places
    }
    return _rows(_table("looking: us per node of a program without sites", engines), values, ".1f")


def _per_match(table: Cells, places: Places, engines: list[str]) -> Table:
    def cost(name: str, place: tuple[int, int]) -> float:
        cell = table.get((name, place[0], "with sites", place[1]))
        looking = _value(table, name, place, "no sites")
        # Below half of the looking, the difference of two programs says nothing about matches.
        if cell is None or not cell.found or not math.isfinite(looking) or cell.seconds - looking < looking / 2:
            return math.inf
        return (cell.seconds - looking) / (cell.found + cell.wrong) * 1e6

    values = {place: {name: cost(name, place) for name in engines} for place in places}
    title = "rewriting: us per match (what a program with sites takes longer; - where that is lost in the looking)"
    return _rows(_table(title, engines), values, ".0f")


def _whole(table: Cells, places: Places, engines: list[str]) -> Table:
    values = {
        place: {name: _value(table, name, place, "with sites") / place[0] * 1e3 for name in engines} for place in places
    }
    return _rows(_table("whole run over a program with sites: ms per rule", engines), values, ".2f")


def _sites(cells: list[Cell], engines: list[str]) -> Table:
    made = _table("sites of all programs together", engines, has_ratio=False)
    made.columns[0].header, made.columns[1].header = "", "sites"
    groups = {name: [cell for cell in cells if cell.engine == name and cell.sites] for name in engines}
    missed = {name: sum((Counter(cell.missed) for cell in group), Counter()) for name, group in groups.items()}
    shared = [
        f"{sum(cell.found for cell in group)} of {sum(cell.sites for cell in group)}" for group in groups.values()
    ]
    made.add_row("found", "", *shared)
    for spelling in sorted({key for counter in missed.values() for key in counter}):
        made.add_row("missed", spelling, *(str(counter[spelling]) for counter in missed.values()))
    wrong = [str(sum(cell.wrong for cell in group)) for group in groups.values()]
    made.add_row("wrong", "used elsewhere", *wrong)
    return made


def _start(starts: dict[str, dict[int, float]], engines: list[str]) -> Table:
    made = _table(
        "start: ms to read and prepare the rules, in a process that has done so before", engines, has_ratio=False
    )
    made.columns[0].header = ""
    for count in sorted(starts[OURS]):
        made.add_row("", str(count), *(f"{starts[name][count] * 1e3:.0f}" for name in engines))
    return made


def print_growth(cells: list[Cell], engines: list[str]) -> None:
    """Print how times grow with nodes and with rules."""
    most, largest = max(cell.rules for cell in cells), max(cell.size for cell in cells)
    for title in SHARES:
        for name in engines:
            line = [cell for cell in cells if (cell.engine, cell.rules, cell.planted) == (name, most, title)]
            by_rules = {
                cell.rules: cell.seconds
                for cell in cells
                if (cell.engine, cell.planted, cell.size) == (name, title, largest)
            }
            if len(line) < 2 or len(by_rules) < 2:
                continue
            logs = np.log([cell.nodes for cell in line]), np.log([cell.seconds for cell in line])
            exponent = float(np.polyfit(*logs, 1)[0])
            growth = by_rules[max(by_rules)] / by_rules[min(by_rules)]
            print(
                f"{title}: {name} grows with the power {exponent:.2f} of the nodes at {most} rules; "
                f"{max(by_rules)} rules take {growth:.1f} times as long as {min(by_rules)}"
            )
