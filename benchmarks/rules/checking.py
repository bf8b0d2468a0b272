"""Processor time of `exirkit rule check --strict` over the shipped books, rule by rule.

Usage: python -m benchmarks.rules.checking [BOOK ...] [--trials N] [--slowest N] [--json FILE]

All shipped books when none is named, those of backends included. Everything is searched again: stored witnesses are not
used. Rules that were rejected are listed. What rules of a book do to each other is in the sum, and not in the median.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import time
import warnings
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from exirkit.patterns import backend_books, load_book, shipped_books
from exirkit.patterns.checking.checks import TRIALS, check_one
from exirkit.patterns.checking.relations import relations_of_book


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("books", nargs="*", default=[*shipped_books(), *backend_books()])
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--slowest", type=int, default=20, help="how many to list")
    parser.add_argument("--json", type=Path, help="write seconds by rule to this file, book after book")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    seconds: dict[str, float] = {}
    together: dict[str, float] = {}
    rejected: list[str] = []
    for name in options.books:
        book = load_book(name).require_valid()
        for rule in book.rules:
            started = time.process_time()
            verdict = check_one(book, rule, trials=options.trials, is_strict=True)
            seconds[rule.id] = time.process_time() - started
            if not verdict.is_accepted:
                rejected.append(f"{rule.id}: {next(one for one in verdict.found if one.severity == 'error').message}")
        started = time.process_time()
        rejected += [f"{name}: {one.message}" for one in relations_of_book(book).found]
        together[f"{name}: relations"] = time.process_time() - started
        print(name, f"{sum(seconds[rule.id] for rule in book.rules):.1f} s", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps({**seconds, **together}, indent=1))
    report(seconds, together, rejected, options.slowest)
    return int(bool(rejected))


def report(seconds: dict[str, float], together: dict[str, float], rejected: list[str], slowest: int) -> None:
    """Print the sum, the median of rules, and what is slowest."""
    everything = {**seconds, **together}
    total = sum(everything.values())
    table = Table(title=f"{len(seconds)} rules: {total / 60:.1f} CPU minutes; median {_median(seconds):.2f} s")
    table.add_column("rule")
    table.add_column("s", justify="right")
    for name in sorted(everything, key=lambda one: -everything[one])[:slowest]:
        table.add_row(name, f"{everything[name]:.1f}")
    Console(width=100).print(table)
    for one in rejected:
        print(f"rejected: {one}")


def _median(seconds: dict[str, float]) -> float:
    return statistics.median(seconds.values()) if seconds else 0.0


if __name__ == "__main__":
    raise SystemExit(main())
