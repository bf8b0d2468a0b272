"""Measure what operators cost in delegates of XNNPACK, and write that as a target description.

Usage: python -m tools.kernels.delegates [--output FILE.yaml] [--rounds N] [--threads N] [--only OPERATOR ...]

The experiments are those of `tools.kernels.costs`: small programs with one call each, of which XNNPACK's partitioner
takes what it can. What every call of a delegate costs, however little is in it, comes from chains of additions of
several lengths: it is what they would take with none.
"""

from __future__ import annotations

import argparse
import logging
import platform
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.extension.pybindings import _C
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
from rich.console import Console
from rich.progress import Progress

import exirkit
from exirkit.bridge import OfficialPartitioner
from exirkit.emit import open_trace
from exirkit.ir import CALL_DELEGATE, underlying
from exirkit.patterns import Target, Work, name_of, work_of
from tools.kernels.costs import Called, Times, chosen, fitted
from tools.kernels.experiments import Function

CHAINS = (1, 2, 4, 8)
RESHAPE = "aten.view_copy.default"
WITH_WEIGHTS = ("aten.linear.default", "aten.convolution.default")
WIDTH = 16
# Layers with one weight, each in a delegate of its own: together larger than caches of processors.
COPIES, SIDE = 64, 128


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="write the description to this file; standard output when absent")
    parser.add_argument("--rounds", type=int, default=9, help="calls of each program; the fastest counts")
    parser.add_argument("--threads", type=int, default=1, help="threads of XNNPACK")
    parser.add_argument("--only", nargs="*", default=[], help="measure these operators only")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    _C._unsafe_reset_threadpool(options.threads)
    text = "# Written by tools/kernels/delegates.py from measurements.\n" + yaml.safe_dump(
        description(options.only, options.rounds, options.threads), sort_keys=False
    )
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


def description(only: Sequence[str], rounds: int, threads: int) -> dict[str, Any]:
    """Measure, and return the description."""
    delegate_ns = delegate_cost(rounds)
    times: Times = defaultdict(list)
    with Progress(console=Console(stderr=True)) as progress:
        for one in progress.track(chosen(only), description="delegates"):
            # Weights have to be stored for XNNPACK to take them.
            kept = 1 if name_of(one.operator) in WITH_WEIGHTS else len(one.inputs)
            inputs = one.inputs[:kept]
            found = lowered(Stored(one.function, one.inputs[kept:]), inputs)
            if found is None:
                continue
            program, inside = found
            calls = [node for node in inside.graph.nodes if underlying(node.target) is one.operator]
            work = work_of(calls[0]) if len(calls) == 1 else None
            if work is not None:
                # A call costs something, if less than can be measured.
                taken = max(delegate_time(program, inputs, rounds) - delegate_ns, 1.0)
                times[name_of(one.operator)].append((work, taken))
    times[RESHAPE] = reshapes(rounds)
    kernels = {name: fitted(found) for name, found in sorted(times.items())}
    made = {
        "target": 1,
        "name": "xnnpack",
        "doc": f"Operators in delegates of XNNPACK, threads: {threads}, float32; {platform.machine()}.",
        "delegate_ns": round(delegate_ns),
        "shared_weight_ns": round(shared_weight_cost(rounds), 3),
        "kernels": kernels,
    }
    Target.model_validate(made)
    return made


class Stored(torch.nn.Module):
    """A function as a model, with its last operands stored."""

    def __init__(self, function: Function, stored: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.stored = torch.nn.ParameterList(torch.nn.Parameter(one, requires_grad=False) for one in stored)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs, *self.stored)


def lowered(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[bytes, Any] | None:
    """Return the program of a model and what is in its one delegate, or None unless that computes everything."""
    exported = torch.export.export(model, tuple(inputs), strict=False)
    try:
        edge = exirkit.to_edge_transform_and_lower(exported, partitioner=[OfficialPartitioner(XnnpackPartitioner())])
    # An experiment may be what XNNPACK rejects after it has taken it.
    except Exception:
        return None
    program = edge.exported_program()
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    delegates = [node for node in calls if node.target is CALL_DELEGATE]
    others = [node for node in calls if node.target is not CALL_DELEGATE and hasattr(node.target, "_schema")]
    if len(delegates) != 1 or others:
        return None
    inside = getattr(program.graph_module, str(delegates[0].args[0].target)).original_module
    return bytes(edge.to_executorch().buffer), inside


def delegate_time(program: bytes, inputs: Sequence[torch.Tensor], rounds: int) -> float:
    """Return the shortest time of the call of the one delegate in nanoseconds, as the runtime measures it."""
    return float(min(map(sum, delegate_times(program, inputs, rounds))))


def delegate_times(program: bytes, inputs: Sequence[torch.Tensor], rounds: int) -> list[list[int]]:
    """Return the times of the calls of delegates, run by run."""
    module = _load_for_executorch_from_buffer(program, enable_etdump=True)
    for _ in range(rounds):
        module.forward(list(inputs))
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/trace.etdump"
        module.write_etdump_result_to_file(file)
        runs = [[event.profile_event for event in run.events] for run in open_trace(file).run_data]
    times = [[one.end_time - one.start_time for one in run if one and one.name == "DELEGATE_CALL"] for run in runs]
    return [one for one in times if one]


def delegate_cost(rounds: int) -> float:
    """Return what a call of a delegate costs that computes nothing: chains of additions, thought on to none."""
    x = torch.rand(WIDTH)
    taken = [chain_time(lambda a, b: a + b, length, (x, x), max(rounds, 50)) for length in CHAINS]
    rows = torch.tensor([[1.0, float(length)] for length in CHAINS], dtype=torch.float64)
    fixed, _ = torch.linalg.lstsq(rows, torch.tensor(taken, dtype=torch.float64)).solution.tolist()
    return max(fixed, 0.0)


def shared_weight_cost(rounds: int) -> float:
    """Return what an element of a weight costs more in each of many delegates that have it than in a single one."""
    weight, x = torch.rand(SIDE, SIDE) / SIDE, torch.rand(1, SIDE)

    def layers(count: int) -> float:
        def run(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            for _ in range(count):
                # What XNNPACK does not take keeps the layers apart.
                a = torch.flip(torch.nn.functional.linear(a, w), [1])
            return a

        exported = torch.export.export(Stored(run, (weight,)), (x,), strict=False)
        edge = exirkit.to_edge_transform_and_lower(exported, partitioner=[OfficialPartitioner(XnnpackPartitioner())])
        taken = delegate_times(bytes(edge.to_executorch().buffer), (x,), rounds)
        if any(len(one) != count for one in taken):
            raise SystemExit(f"XNNPACK was expected to take {count} layers apart")
        return min(map(sum, taken)) / count

    return max(layers(COPIES) - layers(1), 0.0) / weight.numel()


def reshapes(rounds: int) -> list[tuple[Work, float]]:
    """Return the work of reshapes of several sizes, and what each takes longer between calls that need them."""
    found, length = [], CHAINS[-1]
    for rows, width in ((4, 8), (64, 256), (128, 784)):
        x = torch.rand(rows, width)

        def turned(a: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(a.reshape(a.shape[1], a.shape[0]))

        # As many to and fro, so that the result is as large.
        longer = chain_time(turned, length, (x,), rounds) - chain_time(torch.sigmoid, length, (x,), rounds)
        found.append((Work(elements=rows * width), max(longer / length, 1.0)))
    return found


def chain_time(step: Function, length: int, inputs: Sequence[torch.Tensor], rounds: int) -> float:
    """Return the time of a delegate in which a step is made on its own result several times, in nanoseconds."""

    def chain(a: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        for _ in range(length):
            a = step(a, *others)
        return a

    found = lowered(Called(chain), inputs)
    if found is None:
        raise SystemExit("XNNPACK does not take a chain of calls as one delegate")
    return delegate_time(found[0], inputs, rounds)


if __name__ == "__main__":
    sys.exit(main())
