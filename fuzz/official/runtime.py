"""The official runtime, asked from a safe distance.

Nothing here imports ExecuTorch: workers do, in processes that may die. Without the wheel `OfficialRuntime` raises
`OfficialMissingError`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from .input_order import in_order_of_method
from .process import WorkerDiedError, WorkerProcess
from .wire import Header, Value, describe, restore

FailureKind = Literal["load-error", "execute-error", "crash", "timeout"]

# Logs of a crash can be long and repeat themselves; the end says what happened.
LOG_TAIL_CHARACTERS = 4000


class OfficialMissingError(RuntimeError):
    """The executorch wheel is not installed."""


@functools.cache
def missing_reason() -> str | None:
    """Return why the official runtime cannot be asked, or `None` if it can."""
    try:
        importlib.metadata.version("executorch")
        found = importlib.util.find_spec("executorch") is not None
    except (importlib.metadata.PackageNotFoundError, ValueError):
        found = False
    return None if found else "the executorch wheel is not installed (pip install executorch==1.5.1)"


@dataclass(frozen=True)
class Failure:
    """How the official runtime rejected a file or died.

    Attributes:
        kind: `load-error` and `execute-error` are errors it reported, `crash` is a signal, `timeout` our patience.
        text: The error, the name of the signal, and what the runtime printed.
    """

    kind: FailureKind
    text: str


@dataclass(frozen=True)
class OfficialResult:
    """The flat outputs of every call, or the failure."""

    outputs: list[list[Value]]
    failure: Failure | None = None

    def unwrap(self) -> list[list[Value]]:
        """Return the outputs; where the runtime failed, an assertion does."""
        assert self.failure is None, f"official runtime: {self.failure.kind}: {self.failure.text}"
        return self.outputs


@dataclass(frozen=True)
class OfficialTrace:
    """A trace (`.etdp`) and its debug buffer, or the failure."""

    etdump: bytes
    debug_buffer: bytes
    failure: Failure | None = None


@dataclass(frozen=True)
class TensorInfo:
    """What a program says about one input or output: sizes are upper bounds, `scalar_type` is the schema's number."""

    sizes: tuple[int, ...]
    scalar_type: int
    nbytes: int
    planned: bool


@dataclass(frozen=True)
class MethodInfo:
    """Inputs and outputs of one method; `None` for a value that is not a tensor."""

    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo | None, ...]


@dataclass(frozen=True)
class SessionStep:
    """What to do with a method that is loaded, in this order.

    Attributes:
        method: Its name.
        inputs: Flat inputs to set; None to set none.
        execute: Whether to run it.
        outputs: Whether to get its outputs, copied.
    """

    method: str
    inputs: Sequence[Value] | None = None
    execute: bool = True
    outputs: bool = True


def _program(pte: bytes | Path) -> tuple[Header, list[bytes]]:
    if isinstance(pte, Path):
        return {"path": str(pte.resolve())}, []
    return {"program": 0}, [pte]


def failure_of(died: WorkerDiedError) -> Failure:
    """Return how a worker died."""
    log = died.log[-LOG_TAIL_CHARACTERS:]
    if died.timed_out:
        return Failure("timeout", log)
    name = signal.Signals(-died.code).name if died.code < 0 else f"exit code {died.code}"
    return Failure("crash", f"{name}\n{log}")


class OfficialRuntime:
    """The official C++ runtime in one worker that serves many programs; use it as a context manager."""

    def __init__(self) -> None:
        reason = missing_reason()
        if reason:
            raise OfficialMissingError(reason)
        self._worker = WorkerProcess("exirkit.fuzz.official.worker")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def run(
        self, pte: bytes | Path, calls: Sequence[Sequence[Value]], *, method: str = "forward", timeout_s: float = 60.0
    ) -> OfficialResult:
        """Load a program and one method of it and make the calls one after another; the method keeps its state.

        Args:
            pte: The file or its bytes. The runtime reads inputs in the dim order that the method states, whatever order
                they have; for a program given as bytes they are laid out so before.
            calls: The flat inputs of every call.
            method: Name of the method.
            timeout_s: Seconds for everything together.
        """
        header, blobs = _program(pte)
        given = calls if isinstance(pte, Path) else in_order_of_method(pte, method, calls)
        described = [[describe(value, blobs) for value in call] for call in given]
        return self._outputs({"op": "run", "method": method, "calls": described, **header}, blobs, timeout_s)

    def session(
        self,
        pte: bytes | Path,
        steps: Sequence[SessionStep],
        *,
        data: bytes | None = None,
        timeout_s: float = 60.0,
    ) -> OfficialResult:
        """Load several methods of one program, which share a set of arenas, and take steps with them.

        Args:
            pte: The file or its bytes.
            steps: What to do; their methods are loaded before the first step, in the order in which they appear.
            data: The bytes of a data file (`.ptd`).
            timeout_s: Seconds for everything together.
        """
        methods = list(dict.fromkeys(step.method for step in steps))
        return self._steps({"op": "session", "methods": methods}, pte, steps, timeout_s, data)

    def calls(
        self,
        pte: bytes,
        calls: Sequence[tuple[str, Sequence[Value]]],
        *,
        data: bytes | None = None,
        timeout_s: float = 60.0,
    ) -> OfficialResult:
        """Load a program as a module, whose methods have memory of their own, and make calls one after another.

        Args:
            pte: The bytes of a file.
            calls: Names of methods, each with the flat inputs of a call.
            data: The bytes of a data file (`.ptd`).
            timeout_s: Seconds for everything together.
        """
        steps = [SessionStep(method, inputs) for method, inputs in calls]
        return self._steps({"op": "calls"}, pte, steps, timeout_s, data)

    def test_case(
        self,
        bundle: bytes,
        method: str,
        index: int,
        *,
        rtol: float = 1e-5,
        atol: float = 1e-8,
        timeout_s: float = 60.0,
    ) -> OfficialResult:
        """Run a test case of a bundled program (`.bpte`) on a method that is loaded for it, and compare its outputs.

        Args:
            bundle: The bytes of the file.
            method: Name of the method.
            index: Index of the case.
            rtol: Relative tolerance, for float16, float32 and float64.
            atol: Absolute tolerance, for these.
            timeout_s: Seconds for everything together.

        Returns:
            The outputs as of one call, if they are as expected, else an `execute-error`: status 32 says that they
            differ, status 16 that the case has no expected outputs.
        """
        request: Header = {"op": "test case", "method": method, "index": index, "program": 0}
        return self._outputs({**request, "rtol": rtol.hex(), "atol": atol.hex()}, [bundle], timeout_s)

    def trace(
        self,
        pte: bytes,
        calls: Sequence[Sequence[Value]],
        *,
        method: str = "forward",
        debug_buffer_nbytes: int = 0,
        data: bytes | None = None,
        timeout_s: float = 120.0,
    ) -> OfficialTrace:
        """Run a method with tracing on, in a process that ends with that, and write the trace.

        Args:
            pte: The bytes of a file.
            calls: The flat inputs of every call.
            method: Name of the method.
            debug_buffer_nbytes: Room for values, `exirkit.devtools.debug_buffer_nbytes` says how much; 0 keeps none.
            data: The bytes of a data file (`.ptd`).
            timeout_s: Seconds for everything together.
        """
        steps = [*((method, call) for call in calls), None]
        found = self.trace_steps(pte, steps, debug_buffer_nbytes=debug_buffer_nbytes, data=data, timeout_s=timeout_s)
        failed = next((end for end in found if isinstance(end, Failure)), None)
        last = found[-1]
        return last if failed is None and isinstance(last, OfficialTrace) else OfficialTrace(b"", b"", failed)

    def trace_steps(
        self,
        pte: bytes,
        steps: Sequence[tuple[str, Sequence[Value]] | None],
        *,
        debug_buffer_nbytes: int = 0,
        data: bytes | None = None,
        timeout_s: float = 120.0,
    ) -> list[OfficialTrace | Failure | None]:
        """Run methods with tracing on and write what was traced so far, in any order.

        A small buffer, a second write and a run after a write kill a process that traces. The steps are therefore taken
        in a process that ends with them, and each write is made by a copy of it.

        Args:
            pte: The bytes of a file.
            steps: What to do: a method with the flat inputs of a call, or None to write.
            debug_buffer_nbytes: Room for values, `exirkit.devtools.debug_buffer_nbytes` says how much; 0 keeps none.
            data: The bytes of a data file (`.ptd`).
            timeout_s: Seconds for everything together.

        Returns:
            How each step ended, up to the one that killed the process, which is a failure: a run that went well with
            None, a write with the trace.
        """
        header, blobs = _program(pte)
        if data is not None:
            header["data"] = len(blobs)
            blobs.append(data)
        described = [
            step and {"method": step[0], "inputs": [describe(value, blobs) for value in step[1]]} for step in steps
        ]
        request: Header = {"op": "trace", "steps": described, "debug_buffer_nbytes": debug_buffer_nbytes}
        try:
            answer, found = self._worker.request({**request, **header}, blobs, timeout_s=timeout_s)
        except WorkerDiedError as died:
            return [failure_of(died)]
        ends: list[OfficialTrace | Failure | None] = []
        written = iter(found)
        for step, end in zip(steps, answer["ends"], strict=False):
            if end:
                ends.append(Failure(end["failure"], f"{end['text']}\n{self._worker.log()[-LOG_TAIL_CHARACTERS:]}"))
            else:
                ends.append(OfficialTrace(next(written), next(written)) if step is None else None)
        return ends

    def _steps(
        self,
        request: Header,
        pte: bytes | Path,
        steps: Sequence[SessionStep],
        timeout_s: float,
        data: bytes | None = None,
    ) -> OfficialResult:
        header, blobs = _program(pte)
        if data is not None:
            header["data"] = len(blobs)
            blobs.append(data)
        listed: list[Header] = []
        for step in steps:
            inputs = None if step.inputs is None else [describe(value, blobs) for value in step.inputs]
            listed.append({"method": step.method, "inputs": inputs, "execute": step.execute, "outputs": step.outputs})
        return self._outputs({**request, "steps": listed, **header}, blobs, timeout_s)

    def _outputs(self, request: Header, blobs: list[bytes], timeout_s: float) -> OfficialResult:
        try:
            answer, results = self._worker.request(request, blobs, timeout_s=timeout_s)
        except WorkerDiedError as died:
            return OfficialResult([], failure_of(died))
        if "failure" in answer:
            return OfficialResult([], Failure(answer["failure"], f"{answer['text']}\n{self._worker.log()}"))
        return OfficialResult([[restore(value, results) for value in call] for call in answer["outputs"]])

    def metadata(self, pte: bytes | Path) -> dict[str, MethodInfo]:
        """Return what the runtime reads about every method of a program.

        Raises:
            WorkerDiedError: The runtime crashed.
            ValueError: It does not load the program.
        """

        def info(value: dict[str, Any] | None) -> TensorInfo | None:
            return TensorInfo(**value | {"sizes": tuple(value["sizes"])}) if value else None

        methods = self._ask({"op": "metadata"}, pte)["methods"]
        return {
            name: MethodInfo(tuple(map(info, method["inputs"])), tuple(map(info, method["outputs"])))
            for name, method in methods.items()
        }

    def measure_latency_ns(
        self,
        pte: bytes | Path,
        inputs: Sequence[Value],
        *,
        method: str = "forward",
        repeats: int = 20,
        warmup: int = 3,
        threads: int = 1,
        timeout_s: float = 300.0,
    ) -> list[int]:
        """Return the nanoseconds of every execution after `warmup` of them, without moving inputs and outputs.

        Raises:
            WorkerDiedError: The runtime crashed.
            ValueError: It does not load or run the program.
        """
        blobs_before = len(_program(pte)[1])
        tensors: list[bytes] = [b""] * blobs_before
        described = [describe(value, tensors) for value in inputs]
        request: Header = {"op": "latency", "method": method, "inputs": described}
        request |= {"repeats": repeats, "warmup": warmup, "threads": threads}
        answer = self._ask(request, pte, tensors[blobs_before:], timeout_s)
        return [int(time) for time in answer["latency_ns"]]

    def kernels(self) -> frozenset[str]:
        """Return the names of the kernels in this build, such as `aten::add.out`."""
        answer, _ = self._worker.request({"op": "kernels"})
        return frozenset(answer["kernels"])

    def sleep(self, seconds: float, *, timeout_s: float) -> Failure | None:
        """Have the worker sleep, to test what happens when it takes too long."""
        try:
            self._worker.request({"op": "sleep", "seconds": seconds}, timeout_s=timeout_s)
        except WorkerDiedError as died:
            return failure_of(died)
        return None

    def _ask(
        self, request: Header, pte: bytes | Path, tensors: Sequence[bytes] = (), timeout_s: float = 60.0
    ) -> Header:
        header, blobs = _program(pte)
        answer, _ = self._worker.request({**request, **header}, [*blobs, *tensors], timeout_s=timeout_s)
        if "failure" in answer:
            raise ValueError(f"{answer['failure']}: {answer['text']}\n{self._worker.log()}")
        return answer
