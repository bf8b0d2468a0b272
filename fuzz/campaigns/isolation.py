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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from exirkit.ir import Diagnostic, InternalError, ModelError

from .config import CampaignConfig
from .results import Found, Result, Verdict
from .work import RESULTS

# A child imports torch before its first word.
_START_SECONDS = 120.0
_TAIL = 2000


def run_isolated(config: str, seeds: Sequence[int]) -> str:
    """Do what `run_batch` does in child processes: a new one goes on behind the seed that killed its predecessor.

    Raises:
        ModelError: What the child says of the configuration.
        InternalError: EK862, the child dies before its first seed.
    """
    limit = CampaignConfig.model_validate_json(config).seed_seconds
    results: list[Result] = []
    while len(results) < len(seeds):
        results += _one_child(config, seeds[len(results) :], limit)
    return RESULTS.dump_json(results).decode()


@dataclass(frozen=True)
class _Seen:
    """The seed that the child works on, as far as it has told."""

    seed: int | None = None
    program: str = ""
    steps: int = 0
    features: tuple[str, ...] = ()
    level: int = 1


def _one_child(config: str, seeds: Sequence[int], limit: float) -> list[Result]:
    """Return the results of the seeds up to the first that kills the child, and this one's."""
    process = subprocess.Popen(
        [sys.executable, "-m", "exirkit.fuzz.campaigns.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        # Ctrl-C is for whoever started the campaign.
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    tail: list[str] = []
    readers = [
        threading.Thread(target=_pump, args=(process.stdout, lines), daemon=True),
        threading.Thread(target=lambda: tail.extend(process.stderr or ()), daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        # A child that is dead already is told of below.
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps({"config": config, "seeds": list(seeds)}))
        results, seen, is_late = _listen(lines, limit)
    finally:
        process.kill()
        process.wait()
        for reader in readers:
            reader.join(timeout=5)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    if len(results) == len(seeds):
        return results
    return [*results, _death(seen, process.returncode, is_late, limit, "".join(tail)[-_TAIL:])]


def _pump(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _listen(lines: queue.SimpleQueue[str | None], limit: float) -> tuple[list[Result], _Seen, bool]:
    """Read what a child says until it says no more, or takes too long over a seed."""
    results: list[Result] = []
    seen = _Seen()
    while True:
        try:
            line = lines.get(timeout=limit if seen.seed is not None else _START_SECONDS)
        except queue.Empty:
            return results, seen, True
        # What is cut off was being written when the child died.
        if line is None or not line.endswith("\n"):
            return results, seen, False
        seen = _take(json.loads(line), seen, results)


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
        raise InternalError(
            Diagnostic(
                code="EK862",
                message="a worker process dies before its first seed",
                notes=(f"exit code {code}", tail or "it wrote nothing to standard error"),
                hint="look at what it wrote; is there enough memory?",
            )
        )
    verdict: Verdict = "timed_out" if is_late else "crashed"
    if is_late:
        symptom, message = "timeout", f"took more than {limit:g} s"
    else:
        symptom = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        message = f"the process died: {symptom}" + (f"\n{tail}" if tail else "")
    found = Found(rung="process", symptom=symptom, message=message, bucket=f"process/{symptom}")
    return Result(
        seed=seen.seed,
        verdict=verdict,
        program=seen.program,
        steps=seen.steps,
        features=seen.features,
        level=seen.level,
        failures=(found,),
    )
