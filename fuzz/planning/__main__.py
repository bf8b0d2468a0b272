"""`python -m exirkit.fuzz.planning --instances N --seed S`: planners on generated problems, every plan checked."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from exirkit.fuzz.campaigns import CampaignConfig, Progress, run_here

from .bench import FAST_PLANNERS, GAPS

_KINDS = ("overlap", "misaligned", "outside", "limit", "moved", "bound")


def main() -> int:
    """Run a campaign, print what it counted, and return 1 if a plan was wrong."""
    parser = argparse.ArgumentParser(prog="python -m exirkit.fuzz.planning", description=__doc__)
    parser.add_argument("--instances", type=int, default=10_000, help="how many problems")
    parser.add_argument("--seed", type=int, default=0, help="which problems")
    parser.add_argument("--planners", nargs="+", default=list(FAST_PLANNERS), help="planners to run")
    parser.add_argument("--exact-every", type=int, default=1, help="solve every n-th small problem; 0 for none")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    options = parser.parse_args()
    config = CampaignConfig(
        bench="exirkit.fuzz.planning:PlanningBench",
        first_seed=options.seed << 40,
        seeds=options.instances,
        policy={"planners": options.planners, "exact_every": options.exact_every},
    )
    progress = run_here(config, workers=options.workers)
    show(progress, options.planners, Console())
    if options.json:
        seconds = {part: round(spent, 2) for part, spent in progress.oracle_seconds.items()}
        document = {"problems": progress.done, "counts": progress.counts, "failures": progress.buckets}
        options.json.write_text(json.dumps({**document, "seconds": seconds}, indent=1))
    return int(bool(progress.failed))


def show(progress: Progress, planners: list[str], console: Console) -> None:
    """Print the counts as two tables, and the first problem of each kind of failure."""
    counts, seconds = progress.counts, progress.oracle_seconds
    drawn = ", ".join(f"{counts[what]} {what}" for what in ("aliases", "bodies", "aliases or bodies"))
    rate = progress.done / max(progress.seconds, 1e-9)
    console.print(f"{progress.done} problems, {drawn}; {progress.seconds:.1f} s, {rate:.0f} problems per second")
    table = Table(title="plans, and what is wrong with them")
    for title in ("planner", "plans", *_KINDS, "at the lower bound", "planning s"):
        table.add_column(title, justify="left" if title == "planner" else "right")
    for planner in planners:
        wrong = [str(progress.buckets[f"{planner} | {kind}"]) for kind in _KINDS]
        plans = counts[f"plans {planner}"]
        at_bound = f"{counts[f'at bound {planner}'] / max(plans, 1):.2%}"
        table.add_row(planner, str(plans), *wrong, at_bound, f"{seconds[planner]:.1f}")
    console.print(table)
    if counts["solved"]:
        title = f"larger than the smallest plan by at most ({counts['solved']} solved, {counts['unsolved']} not)"
        table = Table(title=title)
        for heading in ("planner", *(f"{gap:.1%}" if gap < 1e9 else "more" for gap in GAPS)):
            table.add_column(heading, justify="left" if heading == "planner" else "right")
        for planner in planners:
            table.add_row(planner, *(str(counts[f"gap {planner} {place}"]) for place in range(len(GAPS))))
        console.print(table)
    for bucket, seed in progress.first_seeds.items():
        console.print(f"problem {seed & ((1 << 40) - 1)}: {bucket}")


if __name__ == "__main__":
    sys.exit(main())
