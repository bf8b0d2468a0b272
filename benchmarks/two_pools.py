"""Fill a small fast memory beside a large slow one, by a policy and by subclasses that choose arenas by hand.

Usage: python -m benchmarks.two_pools [MODEL ...] [--kib N] [--without-official] [--json FILE]

A subclass of the planning pass can send what an operator makes, or what is small, to an arena; it knows neither what
else is live nor how large the arena gets. Here it is given a good choice of its kind, found by planning many times:
operators are added one by one, those with most traffic first, as long as the arena stays within the fast memory; and
for `operator, size` what an operator makes up to the largest size that does. Its arenas are planned by `greedy`. The
policy has one line for each memory.

A figure is the share of traffic (bytes written and read, once for each call) that the fast memory serves. `bound` is
what no choice of values can exceed at their lifetimes, without in-place results. Every plan is
verified, and run on our interpreter, which knows what every byte holds, and on the official runtime, where results must
be those of a plan with one arena, bit by bit.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.fx import GraphModule

import exirkit
from benchmarks.models import MODELS, build
from exirkit import ExecutorchBackendConfig, MemoryPlanningPass, TensorSpec, greedy
from exirkit.fuzz.official import OfficialRuntime, missing_reason
from exirkit.passes import (
    MemoryPolicy,
    PlannedValue,
    PlanningProblem,
    Pool,
    PoolRequest,
    ValueUse,
    parse_memory_policy,
    plan_pools,
    value_uses,
)
from exirkit.runtime_ref import Runtime

FAST, SLOW = 1, 2
ALIGNMENT = 16
DEFAULT_MODELS = ("mobilenet_v2", "vit", "bert", "gpt2")
Chooses = Callable[[TensorSpec, ValueUse], bool]


def policy(kib: int, *, in_place: bool) -> MemoryPolicy:
    """Return the policy that is measured."""
    return parse_memory_policy(
        f"""
policy: 1
in_place: {str(in_place).lower()}
pools:
  - {{name: fast, limit: {kib} KiB}}
  - {{name: slow}}
"""
    )


class ByHand(MemoryPlanningPass):
    """Sends to the fast arena what belongs there, and everything else to the slow one."""

    def __init__(self, chooses: Chooses) -> None:
        super().__init__(greedy)
        self.chooses = chooses

    def run(self, graph_module: GraphModule, graph_signature: Any = None) -> Any:
        for spec, use in value_uses(graph_module, graph_signature).items():
            if not spec.const:
                spec.mem_id = FAST if self.chooses(spec, use) else SLOW
        return super().run(graph_module, graph_signature)


def maker(use: ValueUse) -> str:
    """Return the operator that makes a value; inputs have a name of their own, as in the official example."""
    return "placeholder" if use.maker.op == "placeholder" else str(use.maker.target)


def by_operator(operators: Collection[str]) -> Chooses:
    return lambda _, use: maker(use) in operators


def by_size(largest: Mapping[str, int]) -> Chooses:
    return lambda spec, use: spec.nbytes() <= largest.get(maker(use), -1)


class Searching(MemoryPlanningPass):
    """Looks for the best operators and for the best size while one program is lowered, then plans as always."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.operators: set[str] = set()
        self.largest: dict[str, int] = {}
        self.bound: int | None = None

    def run(self, graph_module: GraphModule, graph_signature: Any = None) -> Any:
        result = super().run(graph_module, graph_signature)
        self.bound = bound_of(graph_module, graph_signature, self.limit)
        uses = value_uses(graph_module, graph_signature)
        traffic: dict[str, int] = {}
        sizes: dict[str, set[int]] = {}
        for spec, use in uses.items():
            if spec.mem_offset is not None:
                traffic[maker(use)] = traffic.get(maker(use), 0) + use.traffic
                sizes.setdefault(maker(use), set()).add(spec.nbytes())
        for name in sorted(traffic, key=lambda one: (-traffic[one], one)):
            wider = {*self.operators, name}
            if self._fits(graph_module, graph_signature, by_operator(wider)):
                self.operators = wider
            for size in sorted(sizes[name], reverse=True):
                larger = {**self.largest, name: size}
                if size <= self.limit and self._fits(graph_module, graph_signature, by_size(larger)):
                    self.largest = larger
                    break
        return result

    def _fits(self, graph_module: GraphModule, graph_signature: Any, chooses: Chooses) -> bool:
        ByHand(chooses).run(graph_module, graph_signature)
        return bool(graph_module.meta["non_const_buffer_sizes"][FAST] <= self.limit)


def bound_of(graph_module: GraphModule, graph_signature: Any, limit: int) -> int | None:
    """Return traffic that no choice of values for the fast memory exceeds, or None if it is not known."""
    planned = [
        (spec, use) for spec, use in value_uses(graph_module, graph_signature).items() if spec.mem_offset is not None
    ]
    values = [PlannedValue(spec.nbytes(), spec.lifetime[0] or 0, spec.lifetime[1] or 0) for spec, _ in planned]
    requests = [PoolRequest((FAST, SLOW), use.traffic) for _, use in planned]
    pools = {FAST: Pool(ALIGNMENT, limit), SLOW: Pool(ALIGNMENT)}
    plan = plan_pools(PlanningProblem(values, pools), requests, [FAST, SLOW])
    return plan.most_gain.get(FAST) if plan.spilled else sum(use.traffic for _, use in planned)


def served(manager: Any) -> tuple[int, int]:
    """Return the traffic that the fast arena of a lowered program serves, and all of it."""
    program = manager.exported_program()
    planned = [
        (spec, use.traffic)
        for spec, use in value_uses(program.graph_module, program.graph_signature).items()
        if spec.mem_offset is not None
    ]
    return sum(traffic for spec, traffic in planned if spec.mem_id == FAST), sum(traffic for _, traffic in planned)


def measure(name: str, kib: int, official: OfficialRuntime | None) -> dict[str, Any]:
    """Lower one model in every way; return shares of traffic, sizes of arenas, and whether results agree."""
    limit = kib * 1024
    benchmark = build(name)
    edge = exirkit.to_edge(benchmark.export())
    inputs = list(benchmark.inputs)

    def lowered(planner: MemoryPlanningPass) -> Any:
        return edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planner))

    searching = Searching(limit)
    reference = lowered(searching)
    planners: dict[str, MemoryPlanningPass] = {
        "by operator": ByHand(by_operator(searching.operators)),
        "operator, size": ByHand(by_size(searching.largest)),
        "policy": MemoryPlanningPass(policy=policy(kib, in_place=False)),
        "policy, in place": MemoryPlanningPass(policy=policy(kib, in_place=True)),
    }
    expected = list(run_everywhere(reference.buffer, inputs, official))
    figures: dict[str, Any] = {"model": name, "by hand": [sorted(searching.operators), [*searching.largest.items()]]}
    for title, planner in planners.items():
        manager = lowered(planner)
        fast, whole = served(manager)
        sizes = manager.executorch_program.execution_plan[0].non_const_buffer_sizes
        assert sizes[FAST] <= limit, f"{name}, {title}: {sizes}"
        found = run_everywhere(manager.buffer, inputs, official)
        pairs = ((a, b) for one, other in zip(found, expected, strict=True) for a, b in zip(one, other, strict=True))
        same = all(torch.equal(one, other) for one, other in pairs)
        figures[title] = {"share": fast / whole, "arenas": sizes[1:], "bitwise": same}
    figures["bound"] = None if searching.bound is None else searching.bound / whole
    return figures


def run_everywhere(buffer: bytes, inputs: list[torch.Tensor], official: OfficialRuntime | None) -> Iterator[list[Any]]:
    """Yield the outputs on our interpreter, which fails where bytes are not what they should be, and on the other."""
    yield list(Runtime.get().load_program(buffer, sanitize=True, in_place=True).load_method("forward").execute(inputs))
    if official is not None:
        yield official.run(buffer, [inputs]).unwrap()[0]


def report(measured: list[dict[str, Any]], kib: int, where: str) -> None:
    """Print one row for each model."""
    titles = ("by operator", "operator, size", "policy", "policy, in place")
    table = Table(title=f"share of traffic that {kib} KiB serve; run on {where}")
    for title in ("model", *titles, "bound", "policy / best by hand", "results"):
        table.add_column(title, justify="left" if title == "model" else "right")
    for one in measured:
        by_hand = max(one["by operator"]["share"], one["operator, size"]["share"])
        agree = all(one[title]["bitwise"] for title in titles)
        table.add_row(
            one["model"],
            *(f"{one[title]['share']:.1%}" for title in titles),
            "?" if one["bound"] is None else f"{one['bound']:.1%}",
            f"{one['policy']['share'] / by_hand:.2f}" if by_hand else "-",
            "bit-equal" if agree else "DIFFER",
        )
    Console(width=max(140, Console().width)).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=[[], *MODELS], help="models to plan")
    parser.add_argument("--kib", type=int, default=256, help="size of the fast memory")
    parser.add_argument("--without-official", action="store_true", help="run on our interpreter only")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    official = None if options.without_official or missing_reason() else OfficialRuntime()
    measured = []
    for name in options.models or DEFAULT_MODELS:
        measured.append(measure(name, options.kib, official))
        print(json.dumps(measured[-1]), file=sys.stderr, flush=True)
    if official is not None:
        official.close()
    where = "our interpreter only" if official is None else "our interpreter and the official runtime"
    report(measured, options.kib, where)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    agree = all(each["bitwise"] for one in measured for each in one.values() if isinstance(each, dict))
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
