"""`python -m exirkit.fuzz.delegation`: partition random graphs, and check that no partition waits for itself."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from .campaign import Tally, run_campaign


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options and run; exit code 0 if nothing is found, 1 if anything was."""
    parser = argparse.ArgumentParser(prog="python -m exirkit.fuzz.delegation", description=__doc__)
    parser.add_argument("--instances", type=int, default=10_000, metavar="N", help="how many graphs")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="another one gives other graphs")
    parser.add_argument("--workers", type=int, default=1, metavar="K", help="processes at once")
    given = parser.parse_args(arguments)
    start = time.perf_counter()

    def say(tally: Tally) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{tally.instances} graphs, {len(tally.findings)} findings")

    total = run_campaign(given.instances, given.seed, given.workers, say)
    sys.stdout.write(report(total, time.perf_counter() - start))
    return 1 if total.findings else 0


def report(tally: Tally, seconds: float) -> str:
    """Return the sums and the findings as text."""
    lines = [
        f"{tally.instances} graphs in {seconds:.0f} s, {len(tally.findings)} findings",
        f"grown: {tally.partitions} partitions of {tally.calls} calls; "
        f"{tally.groups_given_up} of {tally.groups} groups given up",
        f"random tags: {tally.tag_sets_taken} sets taken, {tally.tag_sets_refused} refused",
        *tally.findings[:20],
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
