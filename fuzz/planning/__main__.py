"""`python -m exirkit.fuzz.planning --instances N --seed S`: planners on generated problems, every plan checked."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .campaign import FAST_PLANNERS, GAPS, Tally, run_campaign

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
    start = time.perf_counter()
    tally = run_campaign(
        options.instances, options.seed, options.planners, exact_every=options.exact_every, workers=options.workers
    )
    show(tally, time.perf_counter() - start, Console())
    if options.json:
        options.json.write_text(json.dumps(as_json(tally), indent=1))
    return int(bool(tally.findings))


def show(tally: Tally, seconds: float, console: Console) -> None:
    """Print the counts as two tables."""
    drawn = ", ".join(f"{count} {what}" for what, count in tally.instances.items())
    console.print(f"{drawn}; {seconds:.1f} s, {tally.instances['all'] / seconds:.0f} problems per second")
    table = Table(title="plans, and what is wrong with them")
    for title in ("planner", "plans", *_KINDS, "at the lower bound", "planning s", "per second"):
        table.add_column(title, justify="left" if title == "planner" else "right")
    for planner, plans in tally.plans.items():
        spent = tally.seconds[planner]
        table.add_row(
            planner,
            str(plans),
            *(str(tally.findings[planner, kind]) for kind in _KINDS),
            f"{tally.at_bound[planner] / plans:.2%}",
            f"{spent:.1f}",
            f"{plans / spent:.0f}" if spent else "",
        )
    console.print(table)
    parts = ", ".join(f"{part} {tally.seconds[part]:.1f} s" for part in ("drawing", "checking", "solving"))
    console.print(parts)
    _show_gaps(tally, console)
    for number, planner, text in tally.examples:
        console.print(f"problem {number}, {planner}: {text}")


def _show_gaps(tally: Tally, console: Console) -> None:
    if not tally.solved:
        return
    title = f"larger than the smallest plan by at most ({tally.solved} problems solved, {tally.unsolved} not)"
    table = Table(title=title)
    for heading in ("planner", *(f"{gap:.1%}" if gap < 1e9 else "more" for gap in GAPS), "within 1 %"):
        table.add_column(heading, justify="left" if heading == "planner" else "right")
    for planner, gaps in tally.gaps.items():
        within = sum(gaps[place] for place, gap in enumerate(GAPS) if gap <= 0.01) / tally.solved
        table.add_row(planner, *(str(gaps[place]) for place in range(len(GAPS))), f"{within:.3%}")
    console.print(table)


def as_json(tally: Tally) -> dict[str, object]:
    """Return the counts as JSON can hold them."""
    return {
        "instances": dict(tally.instances),
        "plans": dict(tally.plans),
        "findings": {f"{planner} {kind}": count for (planner, kind), count in tally.findings.items()},
        "examples": tally.examples,
        "at_bound": dict(tally.at_bound),
        "gaps": {
            planner: {str(GAPS[place]): gaps[place] for place in range(len(GAPS))}
            for planner, gaps in tally.gaps.items()
        },
        "solved": tally.solved,
        "unsolved": tally.unsolved,
        "seconds": {part: round(spent, 2) for part, spent in tally.seconds.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
