"""Numeric gap of every instruction against the Edge program in eager PyTorch, on the benchmark models.

Usage: python -m benchmarks.devtools.numeric_gap [--levels 0 1 2] [MODEL ...]

A line for each model and level: instructions, those that were compared, in how many of the groups of nodes that
instructions stem from the last one was (what comes before it in a group is a step that the Edge program does not have),
the largest error of one relative to the largest element of its reference, and its operators.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from typing import Any

import torch

from benchmarks.models import MODELS, Benchmark, build
from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.devtools import Inspector
from exirkit.emit import DelegateCall, KernelCall, trace_file
from exirkit.ir import pytree
from exirkit.runtime_ref import Runtime, Tracer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--levels", type=int, nargs="*", default=[0, 1, 2], metavar="LEVEL")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for name in options.models or list(MODELS):
        benchmark = build(name)
        for level in options.levels:
            calls, groups, rows = gaps(benchmark, level)
            worst = max(rows, key=lambda row: row[0])
            compared = len({group for *_, group in rows})
            sys.stdout.write(
                f"{name:20} -O{level} {calls:5} instructions {len(rows):5} compared, {compared:4} of {groups:4} groups"
                f"  worst {worst[0]:.2g} {worst[1]}\n"
            )
            sys.stdout.flush()
    return 0


def gaps(benchmark: Benchmark, level: int) -> tuple[int, int, list[tuple[float, list[str], Any]]]:
    """Return the numbers of instructions and groups, and error, operators and group of each that was compared."""
    edge = to_edge(benchmark.export(), generate_etrecord=True)
    made = edge.to_executorch(ExecutorchBackendConfig(optimization_level=level))
    tracer = Tracer(values=True)
    Runtime.get().load_program(made.buffer, tracer=tracer).load_method("forward").execute(list(benchmark.inputs))
    record = made.get_etrecord()
    record.update_representative_inputs(benchmark.inputs)
    data = trace_file(tracer.trace()).to_bytes()
    table = Inspector(etdump_data=data, etrecord=record, debug_buffer=tracer.buffer).calculate_numeric_gap(error)
    steps = made.executorch_program.execution_plan[0].chains[0].instructions
    at = [index for index, one in enumerate(steps) if isinstance(one.instr_args, KernelCall | DelegateCall)]
    groups = {record.debug_handle_map["forward"].get(index) for index in at}
    columns = (table[name] for name in ("gap", "op_types", "runtime_debug_handle"))
    return len(at), len(groups), [(gap[0], ops, handles) for gap, ops, handles in zip(*columns, strict=True)]


def error(expected: Any, given: Any) -> float:
    """Return the largest difference of two values, relative to the largest element of the first."""
    worst = 0.0
    for one, two in zip(pytree.tree_leaves(expected), pytree.tree_leaves(given), strict=False):
        if isinstance(one, torch.Tensor) and one.numel():
            scale = max(float(one.double().abs().max()), 1e-6)
            worst = max(worst, float((one.double() - two.double()).abs().max()) / scale)
    return worst


if __name__ == "__main__":
    sys.exit(main())
