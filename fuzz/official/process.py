"""Runs a worker module in a process and talks to it; survives crashes, aborts and hangs of that process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from .wire import Header, pack, unpack

START_TIMEOUT_S = 180.0


class WorkerDiedError(Exception):
    """The process ended instead of answering.

    Attributes:
        code: Its exit code, negative for a signal.
        timed_out: Whether we ended it because it took too long.
        log: What it printed since the request.
    """

    def __init__(self, code: int, log: str, timed_out: bool = False) -> None:
        self.code = code
        self.log = log
        self.timed_out = timed_out
        super().__init__(f"exit code {code}\n{log}")


class OutOfTimeError(Exception):
    """No complete frame arrived before the deadline."""


class WorkerProcess:
    """One worker, started when first needed and started again when it is gone.

    Args:
        module: Name of the module to run, such as `exirkit.fuzz.official.worker`.
        folder: Where the process runs; here when absent.
    """

    def __init__(self, module: str, folder: Path | None = None) -> None:
        self.module = module
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._log_start = 0
        self._serving_pid = 0
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process and forget what it printed."""
        self._kill()
        self._log.close()

    def request(
        self, header: Header, blobs: Sequence[bytes] = (), *, timeout_s: float = 60.0
    ) -> tuple[Header, list[bytes]]:
        """Send one request and wait for the answer.

        Raises:
            WorkerDiedError: The process crashed or did not answer in time; the next request finds a fresh one.
        """
        process = self._start()
        self._log_start = os.fstat(self._log.fileno()).st_size
        assert process.stdin
        try:
            self._number += 1
            process.stdin.write(pack({**header, "timeout_s": timeout_s, "number": self._number}, blobs))
            process.stdin.flush()
            answer, results = self._answer(process, time.monotonic() + timeout_s)
        except OutOfTimeError:
            self._end_hanging(process)
            raise WorkerDiedError(-signal.SIGKILL, self.log(), timed_out=True) from None
        except (EOFError, BrokenPipeError):
            code = process.wait()
            self._kill()
            raise WorkerDiedError(code, self.log()) from None
        if "died" in answer:
            self._await_ready(process)
            raise WorkerDiedError(answer["died"], self.log())
        return answer, results

    def _answer(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[Header, list[bytes]]:
        """Read the answer to the last request, or the news of a death; answers to earlier requests are dropped."""
        while True:
            answer, results = self._read(process, deadline)
            if "died" in answer or answer.get("number") == self._number:
                return answer, results

    def log(self) -> str:
        """Return what the worker printed since the last request."""
        descriptor = self._log.fileno()
        size = os.fstat(descriptor).st_size - self._log_start
        return os.pread(descriptor, size, self._log_start).decode(errors="replace")

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._kill()
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module],
            cwd=self._folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._await_ready(self._process)
        return self._process

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        try:
            answer, _ = self._read(process, time.monotonic() + START_TIMEOUT_S)
        except (EOFError, OutOfTimeError):
            self._kill()
            raise RuntimeError(f"{self.module} did not start:\n{self.log()}") from None
        self._serving_pid = answer["ready"]

    def _end_hanging(self, process: subprocess.Popen[bytes]) -> None:
        if self._serving_pid == process.pid:
            self._kill()
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._serving_pid, signal.SIGKILL)
        try:
            while "died" not in self._read(process, time.monotonic() + 30.0)[0]:
                pass  # an answer that came just after the deadline
        except (EOFError, OutOfTimeError):
            self._kill()
            return
        self._await_ready(process)

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._serving_pid not in (0, process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._serving_pid, signal.SIGKILL)
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                assert pipe
                pipe.close()

    @staticmethod
    def _read(process: subprocess.Popen[bytes], deadline: float) -> tuple[Header, list[bytes]]:
        assert process.stdout
        stream = process.stdout.fileno()

        def read(size: int) -> bytes:
            parts: list[bytes] = []
            while size:
                patience = deadline - time.monotonic()
                if patience <= 0 or not select.select([stream], [], [], patience)[0]:
                    raise OutOfTimeError
                part = os.read(stream, min(size, 1 << 20))
                if not part:
                    raise EOFError
                parts.append(part)
                size -= len(part)
            return b"".join(parts)

        return unpack(read)
