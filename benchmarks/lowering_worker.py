"""Lower one exported program with one exporter in a process of its own, and print what it cost as JSON.

Usage: python -m benchmarks.lowering_worker ours|official PROGRAM.pt2 OUT.pte
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
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
    to_edge: Any = import_module("exirkit" if exporter == "ours" else "executorch.exir").to_edge

    # Both warm up alike: what is imported and cached on first use is not what a model costs.
    to_edge(chain(8).export()).to_executorch()
    program = torch.export.load(source)
    weight_bytes = sum(
        tensor.untyped_storage().nbytes() for tensor in program.state_dict.values() if isinstance(tensor, torch.Tensor)
    )
    base = reset_resident_peak()
    edge, edge_seconds = timed(lambda: to_edge(program))
    lowered, executorch_seconds = timed(lambda: edge.to_executorch())

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


if __name__ == "__main__":
    sys.exit(main())
