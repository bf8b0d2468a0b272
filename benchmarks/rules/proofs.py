"""How many rules are proved for all sizes, and that no wrong one is.

    python -m benchmarks.rules.proofs [--catalogue] [--seconds N]

Tries to prove the known-bad rules of the tests and the mutants of `mutants.yaml`; the exit code is 0 if none is
proved. With `--catalogue` also what the certificates of the shipped books say, without proving anything.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.rules.mutants import mutants, mutated_book
from exirkit.patterns import (
    LoadedBook,
    backend_books,
    load_book,
    named_books,
    parse_book,
    prove_rules,
    shipped_books,
    shipped_certificates,
    valid_certificates,
)

WRONG = ("known_bad_rules", "unsound_rules", "unsound_rules_2", "unsound_quantized_rules")
TESTS = Path(__file__).parents[2] / "tests" / "patterns"


def wrong_books() -> Iterator[tuple[str, LoadedBook]]:
    """Yield books of which no rule is right: those of the tests, and one for each mutant."""
    for name in WRONG:
        yield name, load_book(TESTS / f"{name}.yaml")
    for mutant in mutants():
        text, name = mutated_book(mutant)
        yield "mutants", parse_book(text, f"{name}.yaml")


def catalogue() -> None:
    """Print what certificates say of the shipped books."""
    total: Counter[str] = Counter()
    for name in (*shipped_books(), *named_books(), *backend_books()):
        book = load_book(name)
        found = valid_certificates(book, shipped_certificates(name)).values()
        statuses = Counter(one.status for one in found)
        total += Counter(
            rules=len(book.rules),
            proved=statuses["proved"],
            of_all_ranks=sum(one.is_of_all_ranks for one in found),
            over_reals=sum(one.is_proved and one.arithmetic == "reals" for one in found),
        )
        print(f"{name:24} {len(book.rules):4} rules  {dict(statuses)}")
    share = total["proved"] / total["rules"]
    print(f"{total['proved']} of {total['rules']} rules are proved for all sizes ({share:.0%}),")
    print(f"{total['of_all_ranks']} of them for all ranks, {total['over_reals']} over real numbers")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how many wrong rules are refuted, open, and proved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalogue", action="store_true")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="N")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.catalogue:
        catalogue()
    statuses: Counter[tuple[str, str]] = Counter()
    start = time.process_time()
    for kind, book in wrong_books():
        for one in prove_rules(book, seconds=options.seconds):
            statuses[kind, one.status] += 1
            if one.status in ("proved", "bounded"):
                print(f"PROVED: {kind} {one.rule}")
    for (kind, status), count in sorted(statuses.items()):
        print(f"{kind:24} {status:8} {count}")
    proved = sum(count for (_, status), count in statuses.items() if status in ("proved", "bounded"))
    print(f"{proved} wrong rules are proved; {time.process_time() - start:.0f} CPU seconds")
    return 1 if proved else 0


if __name__ == "__main__":
    sys.exit(main())
