"""`python -m exirkit.fuzz.generation --seeds N`: print what generated programs contain, or one of them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from exirkit.fuzz.programs import program_text

from .features import measure
from .generating import generate


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a feature is below its floor."""
    parser = argparse.ArgumentParser(prog="python -m exirkit.fuzz.generation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many programs to make")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="first seed")
    parser.add_argument("--show", type=int, metavar="SEED", help="print the program of a seed instead")
    given = parser.parse_args(arguments)
    if given.show is not None:
        sys.stdout.write(program_text(generate(given.show)))
        return 0
    start = time.process_time()
    found = measure(range(given.first, given.first + given.seeds))
    spent = (time.process_time() - start) * 1000 / max(given.seeds, 1)
    sys.stdout.write(f"{found.table()}\n{spent:.2f} ms for each program\n")
    return 1 if found.missing else 0


if __name__ == "__main__":
    sys.exit(main())
