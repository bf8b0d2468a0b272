"""Lower one exported program with one exporter in a process of its own, and print what it cost as JSON.

Usage: python -m benchmarks.lowering.worker ours|ours-O2|official|xnnpack PROGRAM.pt2 OUT.pte

`ours` lowers as by default, `ours-O2` within declared tolerances for the official runtime on a host, `xnnpack` is the
official exporter with the official XNNPACK partitioner.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks.measured_process import reset_resident_peak, resident_peak_bytes, timed
from benchmarks.models import chain


def main() -> int:
    exporter, source, target = sys.argv[1:]
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    to_edge, to_executorch = chain_of(exporter)

    # Both warm up alike: what is imported and cached on first use is not what a model costs.
    to_executorch(to_edge(chain(8).export()))
    program = torch.export.load(source)
    weight_bytes = sum(
        tensor.untyped_storage().nbytes() for tensor in program.state_dict.values() if isinstance(tensor, torch.Tensor)
    )
    base = reset_resident_peak()
    edge, edge_seconds = timed(lambda: to_edge(program))
    lowered, executorch_seconds = timed(lambda: to_executorch(edge))

    def write() -> None:
        with Path(target).open("wb") as file:
            lowered.write_to_file(file)

    _, write_seconds = timed(write)
    peak = resident_peak_bytes() - base
    plan: Any = lowered.executorch_program.execution_plan[0]
    report = {
        "to_edge_seconds": edge_seconds,
        "to_executorch_seconds": executorch_seconds,
        "write_seconds": write_seconds,
        "peak_bytes": peak,
        "weight_bytes": weight_bytes,
        "arena_bytes": sum(plan.non_const_buffer_sizes),
        "file_bytes": Path(target).stat().st_size,
        "instructions": len(plan.chains[0].instructions),
    }
    print(json.dumps(report))
    return 0


def chain_of(exporter: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the two steps of an exporter: to Edge, and from there to a program."""
    if exporter.startswith("ours"):
        exirkit = import_module("exirkit")
        config = exirkit.ExecutorchBackendConfig(optimization_level=2 if exporter == "ours-O2" else 1)
        return exirkit.to_edge, lambda edge: edge.to_executorch(config)
    exir = import_module("executorch.exir")
    if exporter == "official":
        return exir.to_edge, lambda edge: edge.to_executorch()
    partitioner = import_module("executorch.backends.xnnpack.partition.xnnpack_partitioner").XnnpackPartitioner
    return lambda program: exir.to_edge_transform_and_lower(
        program, partitioner=[partitioner()]
    ), lambda edge: edge.to_executorch()


if __name__ == "__main__":
    sys.exit(main())
