"""Lower one model to XNNPACK with one chain in a process of its own, run what it makes, and print the figures as JSON.

Usage: python -m benchmarks.delegation.worker ours|official MODEL
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch.export import ExportedProgram

from benchmarks.models import build, mlp

COPIES = ("clone", "alias", "expand", "view", "permute", "squeeze", "unsqueeze", "slice", "select", "to_dim_order")
"""What only moves data; how much of it there is depends on how a chain writes a model."""


def main() -> int:
    chain, name = sys.argv[1:]
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    to_edge = chain_of(chain)
    # Both warm up alike: what is imported and cached on first use is not what a model costs.
    to_edge(mlp().export()).to_executorch()
    benchmark = build(name)
    exported = benchmark.export()
    gc.collect()
    start, wall = cpu_seconds(), time.perf_counter()
    edge = to_edge(exported)
    data = bytes(edge.to_executorch().buffer)
    seconds, wall = cpu_seconds() - start, time.perf_counter() - wall
    figures = {"seconds": seconds, "wall_seconds": wall, "bytes": len(data), **counted(edge.exported_program())}
    with torch.no_grad():
        wanted = benchmark.module(*benchmark.inputs)
    (got, *_) = (
        import_module("executorch.runtime")
        .Runtime.get()
        .load_program(data)
        .load_method("forward")
        .execute(list(benchmark.inputs))
    )
    figures["error"] = float((got - wanted).abs().max() / wanted.abs().max())
    print(json.dumps(figures))
    return 0


def chain_of(name: str) -> Callable[[ExportedProgram], Any]:
    """Return what lowers to Edge and hands what XNNPACK takes to it."""
    partitioner = import_module("executorch.backends.xnnpack.partition.xnnpack_partitioner").XnnpackPartitioner
    if name == "official":
        official = import_module("executorch.exir").to_edge_transform_and_lower
        return lambda program: official(program, partitioner=[partitioner()])
    ours = import_module("exirkit").to_edge_transform_and_lower
    bridge = import_module("exirkit.bridge")
    return lambda program: ours(program, partitioner=[bridge.OfficialPartitioner(partitioner())])


def cpu_seconds() -> float:
    """Return the processor time of this process and of those that it has started, such as the flatbuffer compiler."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def counted(program: ExportedProgram) -> dict[str, int]:
    """Count delegates, the operators in them, and those that are left; of both also what does not only move data."""
    found = dict.fromkeys(("delegates", "taken", "taken_work", "left", "left_work"), 0)
    for node in program.graph.nodes:
        target: Any = node.target
        if node.op == "call_function" and "executorch_call_delegate" in str(target):
            found["delegates"] += 1
            inside = getattr(program.graph_module, node.args[0].target).original_module
            _count(inside, "taken", found)
    _count(program, "left", found)
    return found


def _count(program: ExportedProgram, key: str, found: dict[str, int]) -> None:
    for node in program.graph.nodes:
        if node.op == "call_function" and hasattr(node.target, "_schema") and "delegate" not in str(node.target):
            found[key] += 1
            found[f"{key}_work"] += not any(copy in node.target.__name__ for copy in COPIES)


if __name__ == "__main__":
    sys.exit(main())
