"""A trace of 300 operators and 50 runs, read by exirkit and by the official package.

Usage: python -m benchmarks.devtools.reading_traces [--operators N] [--runs N]

Seconds of CPU time, those of the schema compiler that the official package starts included: to read the tables, and to
have an Inspector of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from exirkit import to_edge
from exirkit.devtools import Inspector
from exirkit.emit import read_trace, trace_file
from exirkit.fuzz.official import missing_reason
from exirkit.runtime_ref import Runtime, Tracer


class _Long(torch.nn.Module):
    def __init__(self, operators: int) -> None:
        super().__init__()
        self.operators = operators

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for at in range(self.operators):
            x = torch.sin(x) if at % 2 else torch.relu(x)
        return x


def trace_bytes(operators: int, runs: int) -> bytes:
    """Return a trace of the reference runtime."""
    x = torch.ones(2, 2)
    made = to_edge(torch.export.export(_Long(operators), (x,))).to_executorch()
    tracer = Tracer()
    method = Runtime.get().load_program(made.buffer, tracer=tracer).load_method("forward")
    for _ in range(runs):
        method.execute([x])
    return trace_file(tracer.trace()).to_bytes()


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def measured(task: Callable[[], object], times: int) -> float:
    """Return the least CPU time of a task, in seconds."""
    found = []
    for _ in range(times):
        started = cpu_seconds()
        task()
        found.append(cpu_seconds() - started)
    return min(found)


def official_main(path: str) -> None:
    """Read a trace with the official package; print the seconds."""
    from executorch.devtools import Inspector as OfficialInspector
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

    data = Path(path).read_bytes()
    reading = measured(lambda: deserialize_from_etdump_flatcc(data), 1)
    inspecting = measured(lambda: OfficialInspector(etdump_path=path), 1)
    sys.stdout.write(f"{reading} {inspecting}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", type=int, default=300)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--official", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.official:
        official_main(options.official)
        return 0
    data = trace_bytes(options.operators, options.runs)
    events = sum(len(run.events) for run in read_trace(data).run_data)
    sys.stdout.write(f"{len(data) / 1e6:.1f} MB, {events} events\n")
    ours = [measured(lambda: read_trace(data), 3), measured(lambda: Inspector(etdump_data=data), 3)]
    sys.stdout.write(f"exirkit:  read {ours[0]:.2f} s, Inspector {ours[1]:.2f} s\n")
    if missing_reason() is None:
        with tempfile.NamedTemporaryFile(suffix=".etdp") as file:
            file.write(data)
            file.flush()
            command = [sys.executable, "-m", "benchmarks.devtools.reading_traces", "--official", file.name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        theirs = [float(one) for one in done.stdout.split()[-2:]]
        sys.stdout.write(f"official: read {theirs[0]:.2f} s, Inspector {theirs[1]:.2f} s\n")
        ratios = [one / other for one, other in zip(theirs, ours, strict=True)]
        sys.stdout.write(f"official / exirkit: read {ratios[0]:.1f}, Inspector {ratios[1]:.1f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
