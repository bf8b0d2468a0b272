"""`python -m exirkit.fuzz.delegation`: partition random graphs, and check that no partition waits for itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from exirkit.fuzz.campaigns import CampaignConfig, Progress, run_here


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options and run; exit code 0 if nothing is found, 1 if anything was."""
    parser = argparse.ArgumentParser(prog="python -m exirkit.fuzz.delegation", description=__doc__)
    parser.add_argument("--instances", type=int, default=10_000, metavar="N", help="how many graphs")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="another one gives other graphs")
    parser.add_argument("--workers", type=int, default=1, metavar="K", help="processes at once")
    given = parser.parse_args(arguments)
    config = CampaignConfig(
        bench="exirkit.fuzz.delegation:DelegationBench", first_seed=given.seed << 40, seeds=given.instances
    )

    def watch(progress: Progress) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{progress.done} graphs, {progress.failed} with findings")

    progress = run_here(config, workers=given.workers, watch=watch)
    counts = progress.counts
    sys.stdout.write(
        f"{progress.done} graphs in {progress.seconds:.0f} s, {progress.failed} with findings\n"
        f"grown: {counts['partitions']} partitions of {counts['calls']} calls; "
        f"{counts['groups given up']} of {counts['groups']} groups given up\n"
        f"random tags: {counts['tag sets taken']} sets taken, {counts['tag sets rejected']} rejected\n"
    )
    for bucket, seed in progress.first_seeds.items():
        sys.stdout.write(f"graph {seed & ((1 << 40) - 1)}: {bucket}\n")
    return 1 if progress.failed else 0


if __name__ == "__main__":
    sys.exit(main())
