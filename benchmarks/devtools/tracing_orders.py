"""Random orders of calls that trace: runs and writes of several methods, right and wrong inputs, buffers of any size.

Usage: python -m benchmarks.devtools.tracing_orders [--orders N] [--seed N]

The official runtime takes each order in a disposable process (`OfficialRuntime.trace_steps`), the reference runtime
takes it here. The exit code is 1 unless this process is answered about every order, each written trace is read and has
the runs made before it, and every trace that a buffer of the right size has room for is written.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.devtools import debug_buffer_nbytes
from exirkit.emit import ExecutionTrace, read_program, read_trace
from exirkit.fuzz.official import Failure, OfficialRuntime, OfficialTrace
from exirkit.ir import DiagnosticError
from exirkit.runtime_ref import Runtime, Tracer

Step = tuple[str, list[Any]] | None


class _Counted(torch.nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.linear = torch.nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        self.count.add_(1)
        values, places = torch.topk(self.linear(x) + self.count, 2)
        return values.T, places, x.shape[0] * 2


class _Negated(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.neg(x).relu()


@dataclass(frozen=True)
class Subject:
    """A program.

    Attributes:
        file: The program file.
        nbytes: Room that one run of each of its methods takes.
        data: Its data file.
    """

    file: bytes
    nbytes: dict[str, int]
    data: bytes | None = None

    @classmethod
    def made(cls, *, external: bool) -> Subject:
        """Lower two methods, with weights in a data file or not; shapes vary."""
        torch.manual_seed(0)
        shapes = ({0: torch.export.Dim("batch", min=1, max=5)},)
        models = {"forward": _Counted(), "negated": _Negated()}
        methods = {
            name: torch.export.export(one, (torch.ones(3, 4),), dynamic_shapes=shapes) for name, one in models.items()
        }
        made = to_edge(methods).to_executorch(ExecutorchBackendConfig(external_constants=external))
        file = bytes(made.buffer)
        plans = read_program(file).program.execution_plan
        data = next(iter(made.tensor_data.values())) if external else None
        return cls(file, {plan.name: debug_buffer_nbytes(plan) for plan in plans}, data)


@dataclass(frozen=True)
class Order:
    """Calls in an order.

    Attributes:
        steps: Runs and writes.
        nbytes: Size of the debug buffer.
        is_enough: Whether it has room for every run, or keeps nothing.
    """

    steps: tuple[Step, ...]
    nbytes: int
    is_enough: bool


def drawn(rng: random.Random, subject: Subject) -> Order:
    """Draw an order of up to ten calls."""
    steps: list[Step] = []
    for _ in range(rng.randrange(11)):
        rows = rng.choice((1, 2, 3, 5, 5, 6))
        inputs: list[Any] = rng.choice(([torch.ones(rows, 4)],) * 8 + ([torch.ones(rows, 4).double()], [], [3]))
        method = rng.choice(("forward", "negated", "forward", "negated", "absent"))
        steps.append(None if rng.random() < 0.4 else (method, inputs))
    room = sum(subject.nbytes.get(step[0], 0) for step in steps if step is not None) + 64
    nbytes = rng.choice((0, room, 1 << 20, 1, rng.randrange(room)))
    return Order(tuple(steps), nbytes, nbytes in (0, room, 1 << 20))


def runs_of(trace: ExecutionTrace) -> int:
    """Return how many runs are in a trace."""
    return sum(run.name is not None and run.name.startswith("Execute") for run in trace.run_data)


def official_findings(ends: Sequence[OfficialTrace | Failure | None], order: Order, tally: Counter[str]) -> list[str]:
    """Return what is wrong with the answer about an order; count how steps ended."""
    findings = []
    started = 0
    for at, (step, end) in enumerate(zip(order.steps, ends, strict=False)):
        tally[end.kind if isinstance(end, Failure) else "written" if step is None else "run"] += 1
        if isinstance(end, OfficialTrace):
            found = read_trace(end.etdump)
            events = sum(len(run.events) for run in found.run_data)
            # Runs that fail are in the trace if they began, which those with wrong inputs did not.
            if not started <= runs_of(found) <= at:
                findings.append(f"step {at}: {runs_of(found)} runs with {events} events are written, {started} ended")
        elif step is not None and end is None:
            started += 1
    crashed = bool(ends) and isinstance(ends[-1], Failure) and ends[-1].kind in ("crash", "timeout")
    if len(ends) != len(order.steps) and not crashed:
        findings.append(f"{len(ends)} of {len(order.steps)} steps have an end")
    if order.is_enough and any(isinstance(end, Failure) and end.kind != "execute-error" for end in ends):
        findings.append(f"a buffer of {order.nbytes} bytes is enough, but: {repr(ends[-1])[:200]}")
    return findings


def reference_findings(subject: Subject, order: Order) -> list[str]:
    """Return what is wrong after the reference runtime took an order."""
    tracer = Tracer(values=order.nbytes > 0)
    program = Runtime.get().load_program(subject.file, tracer=tracer, data_path=subject.data)
    methods = {name: program.load_method(name) for name in program.method_names}
    findings = []
    ended = 0
    for at, step in enumerate(order.steps):
        if step is None:
            count = runs_of(tracer.trace())
            if not ended <= count <= at:
                findings.append(f"reference, step {at}: {count} runs are written, {ended} ended")
        elif step[0] in methods:
            try:
                methods[step[0]].execute(step[1])
                ended += 1
            except DiagnosticError:
                pass
    return findings


def campaign(official: OfficialRuntime, orders: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Take some orders on both runtimes; return how steps ended, and what is wrong."""
    subjects = [Subject.made(external=external) for external in (False, True)]
    rng = random.Random(seed)
    tally: Counter[str] = Counter()
    findings = []
    for number in range(orders):
        subject = rng.choice(subjects)
        order = drawn(rng, subject)
        ends = official.trace_steps(subject.file, order.steps, debug_buffer_nbytes=order.nbytes, data=subject.data)
        found = official_findings(ends, order, tally) + reference_findings(subject, order)
        findings += [f"order {number}: {text}" for text in found]
        tally["orders"] += 1
    return tally, findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    started = time.monotonic()
    with OfficialRuntime() as official:
        tally, findings = campaign(official, options.orders, options.seed)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.items()))
    sys.stdout.write(f"seed {options.seed}: {counts}; {time.monotonic() - started:.0f} s\n")
    sys.stdout.writelines(f"{text}\n" for text in findings[:20])
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
