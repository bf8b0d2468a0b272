"""What loading has to keep to, whatever the bytes are: one of two errors or a program, soon, in little memory."""

from __future__ import annotations

import os
import re
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final
from zlib import crc32

from exirkit.emit import (
    ProgramFormatError,
    ProgramVerifyError,
    format_program,
    read_program,
    restore,
    restore_named_data,
)
from exirkit.runtime_ref import Limits, Runtime

from .findings import TooLongError, TooMuchMemoryError
from .ledger import BROKEN, LOADED, PRINTED

_PAGE_NBYTES: Final = resource.getpagesize()
# One in so many programs is printed too, in both forms; which ones depends on their bytes alone.
_PRINTED_ONE_IN: Final = 64


@dataclass(frozen=True)
class Bounds:
    """How much one execution may take.

    Attributes:
        seconds: Time of the processor.
        growth_nbytes: By how much the peak of the process's memory may rise in one execution, and the process grow
            over a whole batch.
        address_nbytes: What a single execution may ask the system for, touched or not.
        arena_nbytes: Given to the loader as its limit.
    """

    seconds: float = 2.0
    growth_nbytes: int = 64 << 20
    address_nbytes: int = 1 << 30
    arena_nbytes: int = 64 << 20


@dataclass(frozen=True)
class Outcome:
    """How one execution ended.

    Attributes:
        name: `loaded`, a code, or `broken`.
        feature: A small number that is different for ends of different kinds: which field was rejected, for example.
        error: What broke the contract, if anything did.
    """

    name: str
    feature: int
    error: BaseException | None = None


def load(data: bytes, bounds: Bounds, count: Callable[[str], None]) -> Outcome:
    """Read, check and load a file with all its methods; print some of them.

    Args:
        data: The file.
        bounds: What is given to the loader; time and memory are measured by `Watch`.
        count: Called with `printed` for each listing.
    """
    try:
        program = Runtime.get().load_program(data, limits=Limits(arena_nbytes=bounds.arena_nbytes, jumps_back=100))
        for name in sorted(program.method_names):
            program.load_method(name)
            repr(program.metadata(name))
        ended = Outcome(LOADED, len(program.method_names))
    except (ProgramFormatError, ProgramVerifyError) as error:
        ended = Outcome(error.code, _feature(error))
    except Exception as error:  # The fuzzer is looking for these.
        return Outcome(BROKEN, 0, error)
    if ended.name[:3] != "EK5" and crc32(data) % _PRINTED_ONE_IN == 0:
        try:
            _print(data)
        except Exception as error:
            return Outcome(BROKEN, 0, error)
        count(PRINTED)
    return ended


def is_readable(data: bytes) -> bool:
    """Return whether the file is well formed, whether or not the program in it can run."""
    try:
        read_program(data)
    except ProgramFormatError:
        return False
    return True


def _print(data: bytes) -> None:
    """Print and restore a file that can be read; for that the program in it need not run."""
    file = read_program(data)
    for verbose in (False, True):
        for line in format_program(file.program, verbose=verbose):
            line.encode()
    restore(file)
    restore_named_data(file)


_DIGITS: Final = re.compile(r"\d+")


def _feature(error: ProgramFormatError | ProgramVerifyError) -> int:
    """Return a number that stands for the field that was rejected, whatever its index, and for which reason."""
    first = error.diagnostics[0]
    # The reader names the field, the checks only the kind of thing that is wrong: there the text tells more.
    place = (first.location.node or "") if first.code < "EK6" else first.message[:10]
    return crc32(f"{first.code} {_DIGITS.sub('', place)} {min(len(error.diagnostics), 3)}".encode())


class Watch:
    """Measures executions, and ends those that take too long.

    One clock runs all the time, since to set one for each execution takes a tenth of it: what is still running at the
    second tick after its start has had more time than it may.

    Attributes:
        nanoseconds: Time of the processor that the last execution took.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._ticks: int | None = None
        self.nanoseconds = 0
        self._handler = signal.signal(signal.SIGPROF, self._tick)
        signal.setitimer(signal.ITIMER_PROF, bounds.seconds, bounds.seconds)
        limit_addresses(bounds.address_nbytes)
        forget_peak()
        self._peak_kib = peak_kib()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the clock: one that ticks when nothing handles its signal any more, at exit, kills the process."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._handler)

    def load(self, data: bytes, count: Callable[[str], None]) -> Outcome:
        """Load a file as `load` does; too much time or memory breaks the contract like a wrong error does."""
        bounds = self._bounds
        started = time.thread_time_ns()
        try:
            self._ticks = 0
            outcome = load(data, bounds, count)
        except TooLongError as error:
            outcome = Outcome(BROKEN, 0, error)
        finally:
            self._ticks = None
        self.nanoseconds = time.thread_time_ns() - started
        before, self._peak_kib = self._peak_kib, peak_kib()
        grown = (self._peak_kib - before) << 10
        if outcome.error is None and grown > bounds.growth_nbytes:
            message = f"an execution took {grown >> 20} MiB more than any before"
            return Outcome(BROKEN, 0, TooMuchMemoryError(message))
        return outcome

    def _tick(self, _signal: int, _frame: FrameType | None) -> None:
        if self._ticks is None:
            return
        self._ticks += 1
        if self._ticks > 1:
            raise TooLongError("an execution took longer than it may")


_PEAK: Final = re.compile(rb"VmHWM:\s*(\d+)")


def peak_kib() -> int:
    """Return the most memory that the process held since `forget_peak`, in KiB."""
    # Not from getrusage where there is a choice: its peak is never less than what the parent held when it started us.
    try:
        status = os.open("/proc/self/status", os.O_RDONLY)
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = _PEAK.search(os.read(status, 4096))
    os.close(status)
    return int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident_nbytes() -> int:
    """Return how much memory the process holds now, in bytes (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_NBYTES


def forget_peak() -> None:
    """Restart the peak from what the process holds now; imports take more for a while."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def limit_addresses(nbytes: int) -> None:
    """Let the process have only so many bytes more than it has now."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE_NBYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + nbytes, hard))
