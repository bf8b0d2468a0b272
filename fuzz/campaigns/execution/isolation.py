"""Seeds in a child process that may die: which seed it was, and how it died, is seen from outside."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from exirkit.fuzz.campaigns.config import CampaignConfig
from exirkit.fuzz.campaigns.results import Found, Result, Verdict
from exirkit.ir import Diagnostic, InternalError, ModelError

from .work import RESULTS

# A child imports torch before its first word: some seconds of processor time, which a busy machine may take minutes to
# give. So it is late if it has had none for so long, and in any case after so many times that.
_START_SECONDS = 120.0
_MOST_STARTS = 10
_TAIL = 2000


def run_isolated(config: str, seeds: Sequence[int]) -> str:
    """Do what `run_batch` does in a child process: a new one goes on behind the seed that killed its predecessor.

    The child is kept for the next call in this thread.

    Raises:
        ModelError: What the child says of the configuration.
        InternalError: EK862, a new child dies before its first seed, or does not come to it.
    """
    read = CampaignConfig.model_validate_json(config)
    results: list[Result] = []
    while len(results) < len(seeds):
        results += _some(config, seeds[len(results) :], read)
    return RESULTS.dump_json(results).decode()


def _some(config: str, seeds: Sequence[int], read: CampaignConfig) -> list[Result]:
    """Return the results of the seeds up to the first that kills the child, and this one's.

    There are none if the child of the last call has died since, for lack of memory or by another hand.
    """
    kept: _Child | None = _kept.child
    child = _kept.child = kept or _Child()
    is_whole = False
    try:
        results, seen, is_late = child.run(config, seeds, read.seed_seconds)
        is_whole = len(results) == len(seeds)
    finally:
        if not is_whole or child.growth_megabytes > read.growth_megabytes:
            _kept.child = None
            child.close()
    if is_whole or (kept is not None and seen.seed is None and not is_late):
        return results
    return [*results, _death(seen, child.process.returncode, is_late, read.seed_seconds, child.tail())]


@dataclass(frozen=True)
class _Seen:
    """The seed that the child works on, as far as it has told."""

    seed: int | None = None
    program: str = ""
    steps: int = 0
    features: tuple[str, ...] = ()
    level: int = 1


class _Child:
    """A process that does one batch after another, and tells of every step.

    Attributes:
        process: The process.
        growth_megabytes: By how much it has grown since its first batch.
    """

    def __init__(self) -> None:
        path = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "exirkit.fuzz.campaigns.execution.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            # Ctrl-C is for the process that started the campaign.
            start_new_session=True,
        )
        self.growth_megabytes = 0
        self._first_megabytes: int | None = None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._tail: list[str] = []
        self._readers = [
            threading.Thread(target=_pump, args=(self.process.stdout, self._lines), daemon=True),
            threading.Thread(target=_keep_last, args=(self.process.stderr, self._tail), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        # At the end of the interpreter the readers still have to see that the process has ended.
        self._end = weakref.finalize(self, _end, self.process, self._readers)

    def run(self, config: str, seeds: Sequence[int], limit: float) -> tuple[list[Result], _Seen, bool]:
        """Return the results of some seeds, the last seed that was begun, and whether it took too long."""
        assert self.process.stdin is not None
        # A child that is dead already is noticed when it says nothing.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"config": config, "seeds": list(seeds)}) + "\n")
            self.process.stdin.flush()
        results: list[Result] = []
        seen = _Seen()
        while True:
            try:
                line = self._lines.get(timeout=limit) if seen.seed is not None else self._first_word()
            except queue.Empty:
                return results, seen, True
            # What is cut off was being written when the child died.
            if line is None or not line.endswith("\n"):
                return results, seen, False
            said = json.loads(line)
            if "end" in said:
                self._measure(said["end"])
                return results, seen, False
            seen = _take(said, seen, results)

    def _first_word(self) -> str | None:
        """Return the next line, for which a child that is given processor time may take several times as long.

        Raises:
            queue.Empty: It said nothing.
        """
        spent = processor_seconds(self.process.pid)
        for _ in range(_MOST_STARTS - 1):
            try:
                return self._lines.get(timeout=_START_SECONDS)
            except queue.Empty:
                before, spent = spent, processor_seconds(self.process.pid)
                if spent <= before:
                    raise
        return self._lines.get(timeout=_START_SECONDS)

    def close(self) -> None:
        """End the process."""
        self._end()

    def tail(self) -> str:
        """Return the end of what the process wrote to standard error."""
        return "".join(self._tail)[-_TAIL:]

    def _measure(self, megabytes: int) -> None:
        if self._first_megabytes is None:
            self._first_megabytes = megabytes
        self.growth_megabytes = megabytes - self._first_megabytes


def _end(process: subprocess.Popen[str], readers: Sequence[threading.Thread]) -> None:
    process.kill()
    process.wait()
    for reader in readers:
        reader.join(timeout=5)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def processor_seconds(process: int) -> float:
    """Return the processor time that a process has had; 0 where the system does not tell."""
    try:
        # The name, in brackets, may have spaces.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


class _Kept(threading.local):
    child: _Child | None = None


_kept = _Kept()


def _pump(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _keep_last(stream: IO[str], lines: list[str]) -> None:
    for line in stream:
        lines.append(line)
        del lines[:-100]


def _take(said: dict[str, Any], seen: _Seen, results: list[Result]) -> _Seen:
    match said:
        case {"wrong": finding}:
            raise ModelError(Diagnostic.model_validate(finding))
        case {"begin": int(seed), "level": int(level)}:
            return _Seen(seed, level=level)
        case {"program": str(text), "steps": int(steps), "features": list(features)}:
            return _Seen(seen.seed, text, steps, tuple(features), seen.level)
        case {"result": made}:
            results.append(Result.model_validate(made))
    return seen


def _death(seen: _Seen, code: int, is_late: bool, limit: float, tail: str) -> Result:
    if seen.seed is None:
        # A child that is late was ended here, so that its exit code says nothing.
        how = f"it did not begin within {_START_SECONDS:g} s" if is_late else f"exit code {code}"
        raise InternalError(
            Diagnostic(
                code="EK862",
                message="a worker process dies before its first seed",
                notes=(how, tail or "it wrote nothing to standard error"),
                hint="examine what it wrote; is there enough memory, and is the machine not too busy?",
            )
        )
    verdict: Verdict = "timed_out" if is_late else "crashed"
    if is_late:
        symptom, message = "timeout", f"took more than {limit:g} s"
    else:
        symptom = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        message = f"the process died: {symptom}" + (f"\n{tail}" if tail else "")
    found = Found(oracle="process", symptom=symptom, message=message, bucket=f"process/{symptom}")
    return Result(
        seed=seen.seed,
        verdict=verdict,
        program=seen.program,
        steps=seen.steps,
        features=seen.features,
        level=seen.level,
        failures=(found,),
    )
