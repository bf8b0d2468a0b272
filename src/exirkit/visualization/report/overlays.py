"""What was measured of a program elsewhere, in a neutral form: time and numeric gap by instruction or node."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exirkit.emit import ExecutionTrace
from exirkit.ir import Diagnostic, UsageError


@dataclass(frozen=True)
class Measured:
    """A number that belongs to an instruction or a node of a method.

    Attributes:
        value: The number: nanoseconds of a time, any measure of a gap.
        instruction: Index of the instruction, where the number belongs to one.
        node: Name of a node of the last stage, where it belongs to that.
        note: What else is to be said of it.
    """

    value: float
    instruction: int | None = None
    node: str | None = None
    note: str = ""


Overlay = Mapping[str, Sequence[Measured]]
"""Measured numbers by method."""


def read_overlay(path: str | Path) -> dict[str, list[Measured]]:
    """Read measured numbers from a JSON file.

    The file is an object from method names to lists. An entry is `[instruction, value]`, `["node", value]`, or an
    object with the keys `value`, `instruction`, `node` and `note`.

    Raises:
        UsageError: EK770, it is something else.
        OSError: It cannot be read.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise _wrong(path, f"it is not JSON: {error}") from error
    if not isinstance(document, dict) or not all(isinstance(one, list) for one in document.values()):
        raise _wrong(path, "it is not an object from method names to lists")
    return {name: [_measured(path, name, one) for one in listed] for name, listed in document.items()}


def times_of_trace(trace: ExecutionTrace) -> list[Measured]:
    """Return how long each instruction took, on average over the runs of a trace (ETDump), in the unit of the trace.

    An instruction of a loop counts as often as it ran. A trace does not say of which method a run is, so it should be
    of one. Instructions of other chains than the first are left out.
    """
    totals: dict[int, int] = {}
    runs = 0
    for run in trace.run_data:
        calls = [
            one
            for event in run.events
            if (one := event.profile_event) is not None
            and one.name in ("OPERATOR_CALL", "DELEGATE_CALL")
            and one.chain_index == 0
        ]
        runs += bool(calls)
        for one in calls:
            totals[one.instruction_id] = totals.get(one.instruction_id, 0) + one.end_time - one.start_time
    note = f"average of {runs} runs" if runs > 1 else ""
    return [Measured(total / runs, instruction, note=note) for instruction, total in sorted(totals.items())]


def _measured(path: str | Path, method: str, entry: Any) -> Measured:
    if isinstance(entry, list) and len(entry) == 2:
        entry = {"node" if isinstance(entry[0], str) else "instruction": entry[0], "value": entry[1]}
    if not isinstance(entry, dict) or not entry.keys() <= {"value", "instruction", "node", "note"}:
        raise _wrong(path, f"method {method} has the entry {str(entry)[:80]}")
    value, instruction, node = entry.get("value"), entry.get("instruction"), entry.get("node")
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not math.isfinite(value)
        or type(instruction) not in (int, type(None))
        or not isinstance(node, str | None)
        or (instruction is None) == (node is None)
    ):
        raise _wrong(path, f"method {method} has the entry {str(entry)[:80]}")
    return Measured(float(value), instruction, node, str(entry.get("note", "")))


def _wrong(path: str | Path, what: str) -> UsageError:
    return UsageError(Diagnostic.of("EK770", f"{path} has no measured numbers: {what}"))
