"""How long the operators of an exported program take in eager PyTorch, in the form in which runtimes are profiled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.devtools import InstructionTimes, MethodProfile
from exirkit.fuzz.examination import GraphSession
from exirkit.ir import module_path, source_line


def profile_eagerly(
    method: str, program: ExportedProgram, inputs: Sequence[Any], *, runs: int = 10, warmup: int = 2
) -> MethodProfile:
    """Run an exported program in eager PyTorch, operator by operator, and return the times of its calls.

    A call of control flow or of another graph is one entry. What it takes to get its arguments and to call it is a part
    of the time of an operator, a few microseconds.

    Args:
        method: Its name.
        program: As `torch.export` made it; it is not changed.
        inputs: Flat; they are not changed.
        runs: How many runs count.
        warmup: Runs before these.
    """
    session = GraphSession(program)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    starts: dict[Node, list[list[int]]] = {node: [] for node in calls}
    times: dict[Node, list[list[float]]] = {node: [] for node in calls}
    begun, totals = [], []
    for run in range(warmup + runs):
        reached = first = time.perf_counter_ns()

        def note(node: Node, _value: Any, counts: bool = run >= warmup) -> None:
            nonlocal reached
            now = time.perf_counter_ns()
            if counts and node.op == "call_function":
                starts[node].append([reached])
                times[node].append([float(now - reached)])
            reached = time.perf_counter_ns()

        session.run(inputs, note)
        if run >= warmup:
            begun.append(first)
            totals.append(float(reached - first))
    found = [_call(at, node, starts[node], times[node]) for at, node in enumerate(calls)]
    return MethodProfile(method, totals, begun, found)


def _call(at: int, node: Node, starts: list[list[int]], times: list[list[float]]) -> InstructionTimes:
    name = str(getattr(node.target, "__name__", node.target)).removeprefix("aten.")
    return InstructionTimes(
        chain=0,
        instruction=at,
        kernel=name,
        is_delegate=False,
        executions=1,
        starts=starts,
        times=times,
        operators=[name],
        module=module_path(node) or "",
        source=source_line(node),
    )
