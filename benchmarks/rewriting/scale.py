"""Large programs and many rules: what the index of patterns costs to build, and what visiting a node costs.

Usage: python -m benchmarks.rewriting.scale [--sizes N ...] [--rules N ...]

The 120 rules of `benchmarks.rewriting`, and more of the same kinds with three and four calls, whose roots and first
calls they share. Sites of the 120 are planted, a third of all segments. Times are processor seconds of this process.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, product
from typing import TypeVar

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.rewriting.engines import fresh_copy
from benchmarks.rewriting.graphs import plant
from benchmarks.rewriting.rules import ABOVE, BELOW, UNARY, FusionRule, Term, book_text, family
from exirkit.ir import GraphEditor
from exirkit.patterns import LoadedBook, RuleEngine, parse_book

SEED = 20261121
T = TypeVar("T")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000, 100_000], help="nodes of the programs")
    parser.add_argument("--rules", type=int, nargs="*", default=[120, 1_000], help="numbers of rules")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    table = Table("rules", "read, s", "index, s", "nodes", "no sites, us a node", "sites", "us a site")
    for count in options.rules:
        rules = tuple(islice(many(), count))
        book, read = timed(partial(_read, rules))
        engine, index = timed(partial(RuleEngine, book.rules))
        # What is made on first use is not what a node costs.
        rewritten(engine, 300, 0.3)
        for size in options.sizes:
            _, looking = rewritten(engine, size, 0.0)
            found, taken = rewritten(engine, size, 0.3)
            table.add_row(
                f"{count:,}", f"{read:.2f}", f"{index:.3f}", f"{size:,}", f"{looking / size * 1e6:.1f}", f"{found:,}",
                f"{(taken - looking) / max(found, 1) * 1e6:.0f}",
            )  # fmt: skip
            print(f"{count} rules, {size} nodes: {looking:.2f} s, {taken:.2f} s", file=sys.stderr, flush=True)
    Console(width=100).print(table)
    return 0


def _read(rules: tuple[FusionRule, ...]) -> LoadedBook:
    return parse_book(book_text(rules)).require_valid()


def timed(action: Callable[[], T]) -> tuple[T, float]:
    """Return what an action returns, and its processor seconds."""
    start = time.process_time()
    return action(), time.process_time() - start


def rewritten(engine: RuleEngine, size: int, share: float) -> tuple[int, float]:
    """Rewrite a program; return how many rules were applied, and the seconds."""
    program = fresh_copy(plant(size, family(), share, SEED).program, is_eager=False)
    gc.collect()
    report, seconds = timed(lambda: engine.run(GraphEditor(program)))
    return len(report.journal), seconds


def many() -> Iterator[FusionRule]:
    """Yield the 120 rules, and then more, of three and four calls."""
    yield from family()
    terms: Iterator[Term] = (Term(a, (Term(b, (Term(c, ("x",)),)),)) for a, b, c in product(UNARY, UNARY, UNARY))
    for index, term in enumerate([*terms, *_with_two(), *_of_four()], start=len(family())):
        yield FusionRule(f"fused_{index:03d}", term)


def _with_two() -> Iterator[Term]:
    for above, unary, below in product(ABOVE, UNARY, BELOW):
        yield Term(above, (Term(unary, (Term(below, ("x", "y")),)), "z"))
    for unary, below, inner in product(UNARY, BELOW, UNARY):
        yield Term(unary, (Term(below, (Term(inner, ("x",)), "y")),))


def _of_four() -> Iterator[Term]:
    for a, b, c, d in product(UNARY, UNARY, UNARY, UNARY):
        yield Term(a, (Term(b, (Term(c, (Term(d, ("x",)),)),)),))


if __name__ == "__main__":
    sys.exit(main())
