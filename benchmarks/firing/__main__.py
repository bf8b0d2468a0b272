"""Write docs/reference/firing_table.md: sites of building blocks in real models, and those that the shipped rules find.

Usage: python -m benchmarks.firing [--models TEXT ...] [--output FILE] [--verbose]
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
from .measure import Row, measure
from .models import catalogue
from .report import general, page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[], help="only models whose name contains one of these")
    parser.add_argument("--output", type=Path, help="write the page to this file")
    parser.add_argument("--verbose", action="store_true", help="print every site that is missed")
    parser.add_argument("--without-inductor", action="store_true", help="leave out the counts of Inductor's patterns")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    finder = Finder()
    rows: list[Row] = []
    inductor: dict[str, int | str] = {}
    for name, make in catalogue().items():
        if options.models and not any(part in name for part in options.models):
            continue
        started = time.perf_counter()
        rows.append(measure(name, make, finder))
        _print(rows[-1], time.perf_counter() - started, options.verbose)
        if not options.without_inductor and any(site.concept.startswith("attention") for site in rows[-1].sites):
            inductor[name] = attention_found_by_inductor(make)
    if options.output:
        options.output.write_text(page(rows, inductor))
    return 0


def _print(row: Row, seconds: float, verbose: bool) -> None:
    total = sum(row.sites.values())
    cells = ", ".join(f"{column} {total - sum(left.values())}" for column, left in row.missed.items())
    print(f"{row.model}: {total} sites; {cells}; {seconds:.1f} s", flush=True)
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
