"""Write docs/reference/firing_table.md: sites of building blocks in real models, and those that the shipped rules find.

Usage: python -m benchmarks.firing [--models TEXT ...] [--output FILE] [--state FOLDER] [--verbose]

With `--state` what was measured of each model is kept in a folder, and a run that was interrupted goes on where it
ended. What was measured with other rules, another matcher or another version of this script is measured again.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import torch

from .columns import Finder
from .inductor import attention_found_by_inductor
from .kept_rows import KeptRows
from .measure import Row, measure
from .models import catalogue
from .report import general, page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[], help="only models whose name contains one of these")
    parser.add_argument("--output", type=Path, help="write the page to this file")
    parser.add_argument("--verbose", action="store_true", help="print every site that is missed")
    parser.add_argument("--without-inductor", action="store_true", help="leave out the counts of Inductor's patterns")
    parser.add_argument(
        "--state", type=Path, help="keep the results of every model in this folder, and go on from there"
    )
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    finder = Finder()
    rows: list[Row] = []
    inductor: dict[str, int | str] = {}
    chosen = {
        name: make for name, make in catalogue().items()
        if not options.models or any(part in name for part in options.models)
    }  # fmt: skip
    kept = KeptRows(options.state) if options.state else None
    for number, (name, make) in enumerate(chosen.items(), 1):
        started = time.perf_counter()
        row = kept.row(name) if kept else None
        is_kept = row is not None
        if row is None:
            row = measure(name, make, finder)
        rows.append(row)
        counts = kept.inductor(name) if kept and is_kept else None
        if counts is None and not options.without_inductor and _has_attention(row):
            counts = attention_found_by_inductor(make)
        if counts is not None:
            inductor[name] = counts
        if kept and not is_kept:
            kept.keep(row, counts)
        _print(row, f"{number}/{len(chosen)}", "kept" if is_kept else time.perf_counter() - started, options.verbose)
    if options.output:
        options.output.write_text(page(rows, inductor))
    return 0


def _has_attention(row: Row) -> bool:
    return any(site.concept.startswith("attention") for site in row.sites)


def _print(row: Row, place: str, seconds: float | str, verbose: bool) -> None:
    total = sum(row.sites.values())
    cells = ", ".join(f"{column} {total - sum(left.values())}" for column, left in row.missed.items())
    took = seconds if isinstance(seconds, str) else f"{seconds:.1f} s"
    print(f"{place} {row.model}: {total} sites; {cells}; {took}", flush=True)
    for column, found in row.found.items():
        if found.error:
            print(f"    {column}: {found.error}")
        kinds: Counter[tuple[str, str]] = Counter()
        for site, count in row.missed[column].items() if verbose else ():
            kinds[site.concept, general(site.path)] += count
        for (concept, path), count in sorted(kinds.items()):
            print(f"    {column}: {count} {concept} at {path or '(model)'}")


if __name__ == "__main__":
    sys.exit(main())
