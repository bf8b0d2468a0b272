"""Measure what each kernel of the runtime at hand costs, and write that as a target description.

Usage: python -m tools.kernels.costs [--output FILE.yaml] [--rounds N] [--only OPERATOR ...]

Every kernel runs in small programs of several sizes; the runtime itself states how long each call took. The costs in
the file are the ones that explain those times best: so much for a call, for an element, a multiplication, a run of
memory. They are not exact and need not be: rules compare them with each other.
"""

from __future__ import annotations

import argparse
import logging
import platform
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console
from rich.progress import Progress

import exirkit
from exirkit.ir import find_out_variant, underlying
from exirkit.patterns import Target, Work, name_of, work_of
from tools.kernels.experiments import Experiment, experiments

FEATURES = ("call_ns", "element_ns", "broadcast_ns", "dim_broadcast_ns", "mac_ns", "weight_ns", "run_ns")
# Edge has copies of its own, which the runtime makes in the same way.
DIM_ORDER = {
    "dim_order_ops._to_dim_order_copy.default": "aten._to_copy.default",
    "dim_order_ops._clone_dim_order.default": "aten.clone.default",
    "dim_order_ops._empty_dim_order.default": "aten.empty.memory_format",
}
UNMEASURED = {"call_ns": 1000.0, "element_ns": 5.0, "note": "not measured: costs of a plain loop are assumed"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="write the description to this file; standard output when absent")
    parser.add_argument("--rounds", type=int, default=9, help="calls of each program; the fastest counts")
    parser.add_argument("--only", nargs="*", default=[], help="measure these operators only")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    chosen = [one for one in experiments() if not options.only or name_of(one.operator) in options.only]
    times: dict[str, list[tuple[Work, float]]] = defaultdict(list)
    with Progress(console=Console(stderr=True)) as progress:
        for one in progress.track(chosen, description="kernels"):
            for name, work, nanoseconds in measure(one, options.rounds):
                times[name].append((work, nanoseconds))
    kernels: dict[str, dict[str, Any]] = {name: dict(UNMEASURED) for name in available()} if not options.only else {}
    kernels |= {name: fitted(found) for name, found in times.items()}
    kernels["aten.view_copy.default"] = {
        "call_ns": 0.0,
        "note": "memory planning lets it share the memory of its source",
    }
    for name, other in DIM_ORDER.items():
        if other in kernels:
            kernels[name] = dict(kernels[other])
    description = {
        "target": 1,
        "name": "official_host",
        "doc": f"Official runtime on a host, its portable and optimized kernels, float32; {platform.machine()}.",
        # Written by tools/kernels/conditions.py.
        "registry": {"base": ["official_host", "quantized"]},
        "kernels": dict(sorted(kernels.items())),
    }
    Target.model_validate(description)
    text = "# Written by tools/kernels/costs.py from measurements.\n" + yaml.safe_dump(description, sort_keys=False)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


class _Called(torch.nn.Module):
    def __init__(self, experiment: Experiment) -> None:
        super().__init__()
        self.function = experiment.function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def measure(experiment: Experiment, rounds: int) -> Iterable[tuple[str, Work, float]]:
    """Lower one experiment, run it, and return the work of the calls of its operator and the time they took."""
    program = torch.export.export(_Called(experiment), experiment.inputs, strict=False)
    config = exirkit.EdgeCompileConfig(
        preserve_ops=[experiment.operator], _check_ir_validity=False, _skip_dim_order=True
    )
    edge = exirkit.to_edge(program, compile_config=config)
    calls = [
        node
        for node in edge.exported_program().graph.nodes
        if node.op == "call_function" and underlying(node.target) is experiment.operator
    ]
    executorch = exirkit.ExecutorchBackendConfig(remove_view_copy=False, target=None, optimization_level=0)
    nanoseconds = kernel_times(edge.to_executorch(executorch).buffer, experiment, rounds)
    if len(calls) != 1:
        raise SystemExit(f"{name_of(experiment.operator)}: {len(calls)} calls in its program")
    work = work_of(calls[0])
    if work is None:
        raise SystemExit(f"{name_of(experiment.operator)}: its work is not known")
    return [(name_of(experiment.operator), work, nanoseconds)]


def kernel_times(buffer: bytes, experiment: Experiment, rounds: int) -> float:
    """Return the shortest time of the kernel of an experiment in nanoseconds, as the runtime measures it."""
    from executorch.devtools import Inspector
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    module = _load_for_executorch_from_buffer(buffer, enable_etdump=True)
    for _ in range(rounds):
        module.forward(list(experiment.inputs))
    kernel = experiment.operator._schema.name.partition("::")[2]
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/trace.etdump"
        module.write_etdump_result_to_file(file)
        events = [event for block in Inspector(etdump_path=file).event_blocks for event in block.events]
    found = [
        min(event.perf_data.raw) * 1e6
        for event in events
        if event.perf_data is not None and event.name.removeprefix("native_call_").partition(".")[0] == kernel
    ]
    if not found:
        raise SystemExit(f"{name_of(experiment.operator)}: the runtime did not run it")
    return float(sum(found))


def fitted(times: Sequence[tuple[Work, float]]) -> dict[str, Any]:
    """Return costs of at least zero that explain times, with the least relative error."""
    rows = torch.tensor([_counts(work) for work, _ in times], dtype=torch.float64)
    seconds = torch.tensor([time for _, time in times], dtype=torch.float64)
    rows = rows / seconds[:, None]
    used = [index for index in range(len(FEATURES)) if bool(rows[:, index].any())]
    while True:
        solution = torch.linalg.lstsq(
            rows[:, used], torch.ones(len(times), dtype=torch.float64), driver="gelsd"
        ).solution
        worst = int(solution.argmin())
        if solution[worst] >= 0:
            break
        del used[worst]
    costs = {FEATURES[index]: float(f"{float(value):.3g}") for index, value in zip(used, solution, strict=True)}
    kept = ("broadcast_ns", "dim_broadcast_ns")
    return {key: value for key, value in costs.items() if value or key in kept} or {"call_ns": 0.0}


def _counts(work: Work) -> list[float]:
    """Return how often each of `FEATURES` counts."""
    elements = dict.fromkeys([None, "any", "dim"], 0) | {work.broadcast: work.elements}
    return [1.0, *map(float, elements.values()), work.macs, work.weights, work.runs]


def available() -> list[str]:
    """Return the operators of which the runtime has the out variant."""
    from executorch.extension.pybindings.portable_lib import _get_operator_names

    kernels = set(_get_operator_names())
    found = []
    for packet_name in sorted(
        {name.partition("::")[2].partition(".")[0] for name in kernels if name.startswith("aten::")}
    ):
        packet = getattr(torch.ops.aten, packet_name, None)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            out = None if op._schema.is_mutable else find_out_variant(op)
            if out is not None and out.name() in kernels:
                found.append(name_of(op))
    return found


if __name__ == "__main__":
    sys.exit(main())
