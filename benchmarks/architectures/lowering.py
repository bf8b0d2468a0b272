"""Lower architectures and note why torch decomposed a whole program again, arenas, and the time at both levels.

Usage: python -m benchmarks.architectures.lowering [NAME ...] [--library NAME] [--most N] [--new] [--failed]

NAME is a part of `library/name`. Each architecture has a process of its own, in which the lowering of three other
models has loaded everything. Answers are kept in `lowering.yaml`, beside those of earlier runs, and
docs/reference/lowering_of_architectures.md is made from them.

Times are CPU time of the one run, with `to_edge` in both.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.architectures.building import Architecture, import_torchvision, read_library
from benchmarks.architectures.measuring import LEVELS, forked_stages
from benchmarks.models import build
from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.passes import noted_fall_backs

RESULTS_FILE = Path(__file__).with_name("lowering.yaml")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "lowering_of_architectures.md"

_HEAD = """# Lowering of architectures

{count} architectures ({libraries}), lowered at `-O1` and `-O2`. torch decomposed **{falling}**
of them as a whole, which takes several times as long as decomposing node by node
([how the chain works](../explanation/how_the_chain_works.md#decomposition)). An arena at `-O2` is at most
**{arena:.2f}** times the one at `-O1`, the median is {median_arena:.2f}. Lowering takes
{per_node:.2f} ms of CPU time per exported node at `-O1`, and {factor:.1f} times that at `-O2` (medians of one run on a
loaded machine with two cores; loading is not counted, first uses are).

`python -m benchmarks.architectures.lowering` makes this page. [Architectures](architectures.md) says what the programs
compute.

| architecture | exported nodes | ms per node `-O1` | time `-O2` / `-O1` | arena `-O1` (KiB) | arena `-O2` / `-O1` |
|---|---|---|---|---|---|
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--library", choices=("transformers", "timm", "torchvision"))
    parser.add_argument("--most", type=int, default=10**6, help="try so many, spread over the library")
    parser.add_argument("--new", action="store_true", help="only those without an answer")
    parser.add_argument("--failed", action="store_true", help="only those with a fall-back, or not lowered")
    parser.add_argument("--seconds", type=int, default=240, help="limit for each architecture")
    options = parser.parse_args()
    library, results = read_library(), read_results()
    chosen = {
        name: one
        for name, one in library.items()
        if (not options.names or any(part in name for part in options.names))
        and options.library in (None, one.library)
        and find_spec(one.library) is not None
        and not (options.new and name in results)
        and not (options.failed and name in results and results[name].get("fall_backs") == [])
    }
    step = max(1, len(chosen) // options.most)
    if chosen:
        _load({one.library for one in chosen.values()})
    for name, one in list(chosen.items())[::step]:
        results[name] = tried(one, options.seconds)
        print(f"{name}: {results[name]}", file=sys.stderr, flush=True)
        results = {name: results[name] for name in library if name in results}
        _save(results)
        PAGE.write_text(page(results))
    lowered = {name: one["fall_backs"] for name, one in results.items() if "fall_backs" in one}
    falling = {name: why for name, why in lowered.items() if why}
    print(f"{len(lowered)} architectures were lowered; torch decomposed {len(falling)} of them as a whole")
    for name, why in falling.items():
        print(f"{name}: {'; '.join(why)}")
    return int(bool(falling))


def read_results() -> dict[str, dict[str, Any]]:
    """Return what became of architectures, by `library/name`: figures of lowering, or `fails` with the error."""
    return yaml.safe_load(RESULTS_FILE.read_text()) or {} if RESULTS_FILE.exists() else {}


def tried(architecture: Architecture, seconds: int) -> dict[str, Any]:
    """Export and lower an architecture in a fork; return figures, or what failed."""
    with tempfile.TemporaryDirectory() as folder:
        steps = forked_stages(lambda: _stages(architecture), Path(folder) / "log.jsonl", seconds)
    found: dict[str, Any] = {}
    for one in steps:
        if "failure" in one:
            return {"fails": f"{one['stage']}: {one['failure'][:150]}"}
        found |= {name: value for name, value in one.items() if name not in ("stage", "figure")}
    return found


def _stages(architecture: Architecture) -> Any:
    made: dict[str, Any] = {}

    def export() -> dict[str, Any]:
        made["program"], _, _ = architecture.export()
        return {"nodes": len(made["program"].graph.nodes)}

    def edge() -> dict[str, Any]:
        started = time.process_time()
        with noted_fall_backs() as noted:
            made["edge"] = to_edge(made["program"])
        made["ms"] = (time.process_time() - started) * 1e3
        return {"fall_backs": list(noted)}

    yield "export", export
    yield "to_edge", edge
    for level in LEVELS:

        def executorch(level: int = level) -> dict[str, Any]:
            started = time.process_time()
            program = made["edge"].to_executorch(ExecutorchBackendConfig(optimization_level=level))
            took = (time.process_time() - started) * 1e3
            (plan,) = program.executorch_program.execution_plan
            return {f"ms_O{level}": round(made["ms"] + took, 1), f"arena_O{level}": sum(plan.non_const_buffer_sizes)}

        yield f"to_executorch -O{level}", executorch


def _load(libraries: set[str]) -> None:
    """Load once what the forks need."""
    if find_spec("torchvision") is not None:
        import_torchvision()
    for library in libraries - {"torchvision"}:
        import_module(library)
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("efficientnet_b0", "swin_tiny", "llama"):
            edge = to_edge(build(name).export())
            for level in LEVELS:
                edge.to_executorch(ExecutorchBackendConfig(optimization_level=level))
    # A collection in a fork would copy every page of what is loaded here.
    gc.collect()
    gc.freeze()


def _save(results: dict[str, dict[str, Any]]) -> None:
    partial = RESULTS_FILE.with_suffix(f".{os.getpid()}")
    partial.write_text("".join(f"{name}: {_flow(one)}\n" for name, one in results.items()))
    partial.replace(RESULTS_FILE)


def _flow(one: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(one, sort_keys=False, width=10**6, default_flow_style=True)
    return text.strip()


def page(results: Mapping[str, dict[str, Any]]) -> str:
    """Return the page in Markdown."""
    whole = {name: one for name, one in results.items() if "arena_O2" in one}
    arenas = {name: one["arena_O2"] / max(1, one["arena_O1"]) for name, one in whole.items()}
    factors = {name: one["ms_O2"] / one["ms_O1"] for name, one in whole.items()}
    costs = {name: one["ms_O1"] / one["nodes"] for name, one in whole.items()}
    if not whole:
        return "# Lowering of architectures\n\nNothing was measured.\n"
    text = _HEAD.format(
        count=len(whole),
        libraries=", ".join(
            f"{count} of {one}" for one, count in Counter(name.partition("/")[0] for name in whole).items()
        ),
        falling=sum(bool(one["fall_backs"]) for one in whole.values()) or "none",
        arena=max(arenas.values()),
        median_arena=statistics.median(arenas.values()),
        per_node=statistics.median(costs.values()),
        factor=statistics.median(factors.values()),
    )
    for name, one in whole.items():
        text += f"| {name} | {one['nodes']} | {costs[name]:.2f} | {factors[name]:.1f} "
        text += f"| {one['arena_O1'] / 1024:.0f} | {arenas[name]:.2f} |\n"
    rest = {name: one["fails"] for name, one in results.items() if name not in whole and "fails" in one}
    if rest:
        text += "\n## Not lowered\n\n| architecture | why |\n|---|---|\n"
        text += "".join(f"| {name} | {why.replace('|', chr(92) + '|')} |\n" for name, why in rest.items())
    return text


if __name__ == "__main__":
    sys.exit(main())
