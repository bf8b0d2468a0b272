"""Where the time of a method goes: by instruction, operator, module and source line, in medians over runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from exirkit.ir import line_of_frames, stack_frames

from .inspector import Event, Inspector

_METHOD = "Method::execute"


@dataclass(frozen=True)
class InstructionTimes:
    """One instruction of a method.

    Attributes:
        chain: Index of its chain.
        instruction: Its index in the chain.
        kernel: What it calls, such as `add.out`, or the backend of a delegate.
        is_delegate: Whether it calls a delegate.
        executions: How often it runs in one run.
        starts: When each execution began, for each run, in nanoseconds.
        times: How long each execution took, likewise.
        operators: Operators of the nodes from which it comes.
        module: Path of the module that all of these are in; None if that is not known.
        source: Line of the model from which the last of them comes.
    """

    chain: int
    instruction: int
    kernel: str
    is_delegate: bool
    executions: int
    starts: list[list[int]]
    times: list[list[float]]
    operators: list[str]
    module: str | None
    source: str | None

    @property
    def totals(self) -> list[float]:
        """Nanoseconds of all its executions, for each run."""
        return [sum(run) for run in self.times]


@dataclass(frozen=True)
class GroupTimes:
    """Instructions that have something in common.

    Attributes:
        name: What it is; empty if it is not known.
        instructions: How many there are.
        executions: How often they run in one run.
        median_ns: Median over the runs of the time that they take together.
        share: That, as a share of the same of all instructions.
    """

    name: str
    instructions: int
    executions: int
    median_ns: float
    share: float


@dataclass(frozen=True)
class MethodProfile:
    """The times of a method.

    Attributes:
        method: Its name.
        totals: Nanoseconds of each run, as a whole.
        starts: When each run began.
        instructions: What it runs, in the order of the program.
    """

    method: str
    totals: list[float]
    starts: list[int]
    instructions: list[InstructionTimes]

    @property
    def median_ns(self) -> float:
        """Median of the runs."""
        return median(self.totals)

    def by_operator(self) -> list[GroupTimes]:
        """Return the times of kernels and backends, longest first."""
        return self._groups(lambda one: one.kernel)

    def by_module(self) -> list[GroupTimes]:
        """Return the times of modules without those in them, longest first."""
        return self._groups(lambda one: one.module or "")

    def by_source(self) -> list[GroupTimes]:
        """Return the times of source lines, longest first."""
        return self._groups(lambda one: one.source or "")

    def _groups(self, key: Callable[[InstructionTimes], str]) -> list[GroupTimes]:
        groups: dict[str, list[InstructionTimes]] = {}
        for one in self.instructions:
            groups.setdefault(key(one), []).append(one)
        medians = {name: _median_of_sums(listed) for name, listed in groups.items()}
        together = _median_of_sums(self.instructions)
        found = [
            GroupTimes(
                name,
                len(listed),
                sum(one.executions for one in listed),
                medians[name],
                medians[name] / together if together else 0.0,
            )
            for name, listed in groups.items()
        ]
        return sorted(found, key=lambda one: (-one.median_ns, one.name))


def _median_of_sums(instructions: Sequence[InstructionTimes]) -> float:
    runs = list(zip(*(one.totals for one in instructions), strict=True))
    return median(sum(run) for run in runs) if runs else 0.0


def profile_of(inspector: Inspector, method: str, *, warmup: int = 0) -> MethodProfile:
    """Return the times of a method in a trace.

    Args:
        inspector: Reads a trace with runs of one method, in nanoseconds: `target_time_scale=TimeScale.NS`.
        method: Its name.
        warmup: How many runs at the beginning do not count.
    """
    # Runs of a loop may take other turns: those that did what the last one did are comparable.
    block = next(one for one in reversed(inspector.event_blocks) if one.method is not None)
    skipped = min(warmup, block.runs - 1)
    backends = _backends(inspector, method)
    places: dict[tuple[int, int], list[Event]] = {}
    for event in block.events:
        if event.is_whole_instruction and event.chain is not None and event.instruction is not None:
            places.setdefault((event.chain, event.instruction), []).append(event)
    whole = next(one for one in block.events if one.name == _METHOD)
    return MethodProfile(
        method,
        whole.perf_data.raw[skipped:],
        whole.start_time[skipped:],
        [_instruction(at, events, skipped, backends) for at, events in sorted(places.items())],
    )


def _backends(inspector: Inspector, method: str) -> dict[int, str]:
    record = inspector.record
    if record is None:
        return {}
    found = record.delegate_map.get(method, {})
    return {at: str(one["name"]) for at, one in found.items() if isinstance(one, dict) and "name" in one}


def _instruction(
    at: tuple[int, int], events: Sequence[Event], skipped: int, backends: dict[int, str]
) -> InstructionTimes:
    first = events[0]
    is_delegate = first.kernel is None
    sources = list(first.stack_traces.values())
    return InstructionTimes(
        chain=at[0],
        instruction=at[1],
        kernel=first.kernel or backends.get(at[1], "delegate"),
        is_delegate=is_delegate,
        executions=len(events),
        starts=[list(run) for run in zip(*(one.start_time[skipped:] for one in events), strict=True)],
        times=[list(run) for run in zip(*(one.perf_data.raw[skipped:] for one in events), strict=True)],
        operators=first.op_types,
        module=_common(path for each in first.module_hierarchy.values() for path in each),
        source=line_of_frames(stack_frames(sources[-1])) if sources else None,
    )


def _common(paths: Iterable[str]) -> str | None:
    """Return the innermost module that all paths are in."""
    common: list[str] | None = None
    for path in paths:
        parts = path.split(".") if path else []
        if common is None:
            common = parts
        same = next((at for at, (one, other) in enumerate(zip(common, parts, strict=False)) if one != other), None)
        common = common[: min(len(common), len(parts)) if same is None else same]
    return None if common is None else ".".join(common)


def trace_events(profiles: Sequence[MethodProfile]) -> list[dict[str, Any]]:
    """Return events of the Trace Event format: a process for each method, in it a thread for each run.

    Times are microseconds, and each run begins at zero, so that runs lie under each other.
    """
    return [event for pid, profile in enumerate(profiles, 1) for event in _events(pid, profile)]


def _events(pid: int, profile: MethodProfile) -> Iterator[dict[str, Any]]:
    def named(kind: str, tid: int, name: str) -> dict[str, Any]:
        return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}

    yield named("process_name", 0, profile.method)
    for run, (start, total) in enumerate(zip(profile.starts, profile.totals, strict=True)):
        tid = run + 1
        yield named("thread_name", tid, f"run {tid}")
        yield _complete(profile.method, "method", 0.0, total, (pid, tid), {})
        for one in profile.instructions:
            about = {
                "instruction": one.instruction,
                "operators": one.operators,
                "module": one.module or "",
                "source": one.source or "",
            }
            kind = "delegate" if one.is_delegate else "operator"
            for began, took in zip(one.starts[run], one.times[run], strict=True):
                yield _complete(one.kernel, kind, began - start, took, (pid, tid), about)


def _complete(
    name: str, kind: str, start_ns: float, took_ns: float, place: tuple[int, int], about: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "ts": start_ns / 1000,
        "dur": took_ns / 1000,
        "pid": place[0],
        "tid": place[1],
        "args": about,
    }
