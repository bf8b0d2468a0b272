"""Plan the memory of the benchmark models with every planner, and print arenas over the lower bound.

Usage: python -m benchmarks.planning [MODEL ...] [--json FILE] [--without-exact]

`scheduled` plans have their instructions in another order, where that helps; their models are followed by a few small
ones that branch. `scheduling` is the time that finding the order takes beyond planning.

The lower bound is the largest sum of live bytes, with and without in-place results. Models are lowered
at the default level of optimization. `planning` is the time of the default planner in milliseconds, and its share of
lowering.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import exirkit
from benchmarks.branching_models import BRANCHING_MODELS, build_branching
from benchmarks.models import MODELS, build
from exirkit import ExecutorchBackendConfig, MemoryPlanningPass, TensorSpec, exact, greedy, naive, portfolio
from exirkit.passes import MemoryAlgoResult, PlannedValue, PlanningProblem, solve_planning_problem

PLANNERS: dict[str, tuple[Any, bool]] = {
    "naive": (naive, False),
    "greedy": (greedy, False),
    "portfolio": (portfolio, False),
    "exact": (exact, False),
    "in place": (portfolio, True),
}
SCHEDULED = {"scheduled": False, "scheduled in place": True}


class Comparing(MemoryPlanningPass):
    """Plans every graph with all planners, notes the sizes of the last one, and ends with the default plan."""

    def __init__(self, planners: Sequence[str]) -> None:
        super().__init__()
        self.planners = planners
        self.figures: dict[str, float] = {}
        self.seconds = 0.0

    def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
        started = time.perf_counter()
        for name in self.planners:
            algorithm, in_place = PLANNERS[name]
            bounds: list[float] = []
            noting = _noting(algorithm, bounds)
            before = time.perf_counter()
            MemoryPlanningPass(noting, in_place=in_place).run(graph_module, graph_signature)
            self.figures[f"{name} seconds"] = time.perf_counter() - before
            self.figures[name] = sum(graph_module.meta["non_const_buffer_sizes"])
            self.figures["bound in place" if in_place else "bound"] = min(bounds)
        for name, in_place in SCHEDULED.items():
            order = [node for node in graph_module.graph.nodes if node.op not in ("placeholder", "output")]
            before = time.perf_counter()
            MemoryPlanningPass(in_place=in_place, schedule=True).run(graph_module, graph_signature)
            self.figures[f"{name} seconds"] = time.perf_counter() - before
            self.figures[name] = sum(graph_module.meta["non_const_buffer_sizes"])
            for node in order:
                graph_module.graph.output_node().prepend(node)
        self.seconds += time.perf_counter() - started
        before = time.perf_counter()
        result = super().run(graph_module, graph_signature)
        self.figures["planning"] = time.perf_counter() - before
        return result


def _noting(algorithm: Any, bounds: list[float]) -> Any:
    """Return the algorithm, noting the lower bound of what it is asked to plan; a bound for graphs without bodies."""

    def plan(alignment: int, specs: Iterable[TensorSpec], *rest: Any) -> MemoryAlgoResult:
        listed = list(specs)
        values = [
            PlannedValue(-(-spec.nbytes() // alignment) * alignment, spec.lifetime[0] or 0, spec.lifetime[1] or 0)
            for spec in listed
        ]
        bounds.append(sum(solve_planning_problem(PlanningProblem(values), "naive").lower_bounds.values()))
        result: MemoryAlgoResult = algorithm(alignment, listed, *rest)
        return result

    return plan


def measure(name: str, planners: Sequence[str]) -> dict[str, float]:
    """Lower one model and return the figures of its plans, in bytes and seconds."""
    program = (build(name) if name in MODELS else build_branching(name)).export()
    comparing = Comparing(planners)
    started = time.perf_counter()
    exirkit.to_edge(program).to_executorch(ExecutorchBackendConfig(memory_planning_pass=comparing))
    comparing.figures["lowering"] = time.perf_counter() - started - comparing.seconds
    return comparing.figures


def report(figures: dict[str, dict[str, float]], planners: Sequence[str]) -> None:
    """Print one row for each model; geometric means at the end."""
    table = Table(title="arena / lower bound; in place: arena / greedy's arena")
    ratio_titles = (*planners, "in place / greedy", "bound in place / greedy", "scheduled", "scheduled in place")
    for title in ("model", "bound", *ratio_titles, "planning", "scheduling"):
        table.add_column(title, justify="left" if title == "model" else "right")
    ratios: list[list[float]] = []
    for name, one in figures.items():
        row = [one[planner] / one["bound in place" if planner == "in place" else "bound"] for planner in planners]
        row += [one["in place"] / one["greedy"], one["bound in place"] / one["greedy"]]
        # A plan in another order, over the one of the same kind in the given order.
        row += [one["scheduled"] / one["portfolio"], one["scheduled in place"] / one["in place"]]
        ratios.append(row)
        share = f"{one['planning'] * 1e3:.1f} ms, {one['planning'] / one['lowering']:.1%}"
        table.add_row(name, f"{one['bound'] / 1024:.0f}K", *(f"{ratio:.3f}" for ratio in row), share, _scheduling(one))
    means = [f"{math.exp(sum(map(math.log, column)) / len(column)):.3f}" for column in zip(*ratios, strict=True)]
    table.add_section()
    table.add_row("geometric mean", "", *means, "", "")
    Console(width=max(160, Console().width)).print(table)


def _scheduling(one: dict[str, float]) -> str:
    return f"{max(one['scheduled seconds'] - one['planning'], 0) * 1e3:.0f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "models", nargs="*", choices=[[], *MODELS, *BRANCHING_MODELS], help="models to plan; all when absent"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--without-exact", action="store_true", help="do without OR-tools")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    planners = [name for name in PLANNERS if name != "exact" or not options.without_exact]
    figures = {}
    for name in options.models or [*MODELS, *BRANCHING_MODELS]:
        figures[name] = measure(name, planners)
        print(f"{name}: {figures[name]}", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1))
    report(figures, planners)
    return 0


if __name__ == "__main__":
    sys.exit(main())
