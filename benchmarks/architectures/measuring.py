"""Take one architecture through the chain, stage by stage, in processes that may die or take too long."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks.architectures.building import Architecture
from exirkit.fuzz.official import OfficialRuntime

LEVELS = (1, 2)
# Largest difference from eager over the largest value. Tolerances of rules at `-O2` add up over layers.
ACCEPTED = {1: 2e-4, 2: 2e-3}


@dataclass
class Outcome:
    """What became of an architecture: the stages that were passed, with a figure each, and the one that was not.

    Attributes:
        name: `library/name`.
        passed: Seconds or errors, by stage.
        failures: What went wrong, by stage.
        operators: Instructions of the program at `-O1`.
    """

    name: str
    passed: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    operators: int = 0

    @property
    def goes(self) -> bool:
        """Whether our chain takes it all the way, at both levels, on both runtimes."""
        stages = [f"{where} -O{level}" for level in LEVELS for where in ("reference runtime", "official runtime")]
        return all(stage in self.passed for stage in stages)


def measure(name: str, architecture: Architecture, runtime: OfficialRuntime, seconds: int, official: bool) -> Outcome:
    """Try everything with one architecture; what dies or takes longer than `seconds` ends a stage, not the sweep."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        outcome = Outcome(name)
        _absorb(outcome, forked_stages(lambda: _our_stages(architecture, work), work / "ours.jsonl", seconds))
        if official and "eager" in outcome.passed:
            steps = forked_stages(lambda: _official_stages(architecture, work), work / "official.jsonl", 2 * seconds)
            _absorb(outcome, steps)
        for program, stage, accepted in _programs():
            if (work / program).exists():
                _absorb(outcome, [_run_officially(runtime, work, program, stage, accepted)])
    return outcome


def _programs() -> list[tuple[str, str, float]]:
    ours = [(f"O{level}.pte", f"official runtime -O{level}", ACCEPTED[level]) for level in LEVELS]
    return [*ours, ("official.pte", "official exporter, run", ACCEPTED[1])]


def _absorb(outcome: Outcome, steps: list[dict[str, Any]]) -> None:
    for step in steps:
        if "failure" in step:
            outcome.failures[step["stage"]] = step["failure"]
        else:
            outcome.passed[step["stage"]] = step["figure"]
        outcome.operators = step.get("operators", outcome.operators)


def forked_stages(stages: Callable[[], Any], log: Path, seconds: int) -> list[dict[str, Any]]:
    """Run a generator of stages in a fork and return its log; the stage in which it died or was ended has failed."""
    child = os.fork()
    if child == 0:
        _keep_log(stages, log)
    deadline = time.monotonic() + seconds
    status = None
    while status is None and time.monotonic() < deadline:
        done, code = os.waitpid(child, os.WNOHANG)
        if done:
            status = code
        else:
            time.sleep(0.02)
    if status is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    steps = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    if steps and "begins" in steps[-1]:
        reason = f"took longer than {seconds} s" if status is None else f"died with status {status}"
        steps.append({"stage": steps[-1]["begins"], "failure": reason})
    return [step for step in steps if "stage" in step]


def _keep_log(stages: Callable[[], Any], log: Path) -> None:
    """Run the stages and write what becomes of each; ends the process."""
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(quiet, stream)
        with log.open("w", buffering=1) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for stage, work in stages():
                file.write(json.dumps({"begins": stage}) + "\n")
                started = time.process_time()
                try:
                    figures = work()
                except BaseException as error:
                    file.write(json.dumps({"stage": stage, "failure": describe(error)}) + "\n")
                    if stage.startswith("reference"):
                        continue
                    break
                figures = {"figure": time.process_time() - started} if figures is None else figures
                file.write(json.dumps({"stage": stage, **figures}) + "\n")
    finally:
        os._exit(0)


def describe(error: BaseException) -> str:
    """Return the first line of an error, with its code where it has one."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        lines = traceback.format_exception_only(error)[-1:]
    kind = "" if lines[0].startswith("error[") else f"{type(error).__name__}: "
    return f"{kind}{lines[0]}"[:400]


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Return the largest difference over the largest value; infinite where shapes or dtypes differ."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    wanted, answer = want.double(), got.double()
    if not torch.equal(wanted.isnan(), answer.isnan()):
        return float("inf")
    scale = wanted.nan_to_num(0.0, 0.0, 0.0).abs().amax().clamp(min=1e-6) if want.numel() else torch.tensor(1.0)
    apart = torch.where(wanted == answer, 0.0, (wanted - answer).abs()).nan_to_num(0.0, float("inf"))
    return float(apart.amax() / scale) if want.numel() else 0.0


def _compared(got: torch.Tensor, want: torch.Tensor, accepted: float) -> dict[str, float]:
    error = relative_error(got, want)
    if error > accepted:
        raise ValueError(f"differs from eager by {error:.2g} of the largest value (shape {list(want.shape)})")
    return {"figure": error}


def _our_stages(architecture: Architecture, work: Path) -> Any:
    torch.set_num_threads(1)
    made: dict[str, Any] = {}

    def build() -> None:
        made["module"], made["inputs"] = architecture.build()

    def eager() -> dict[str, float]:
        with torch.no_grad():
            made["wanted"] = made["module"](*made["inputs"])
        if not bool(made["wanted"].isfinite().any()) or made["wanted"].unique().numel() < 2:
            raise ValueError("the answer says nothing: it is constant or not finite")
        torch.save((made["inputs"], made["wanted"]), work / "calls.pt")
        return {"figure": float(made["wanted"].abs().max())}

    def export() -> None:
        with torch.no_grad():
            made["exported"] = torch.export.export(made["module"], made["inputs"], strict=False)

    yield "build", build
    yield "eager", eager
    yield "export", export
    exirkit: Any = import_module("exirkit")
    runtime: Any = import_module("exirkit.runtime_ref")

    def edge() -> None:
        made["edge"] = exirkit.to_edge(made["exported"])

    yield "to_edge", edge
    for level in LEVELS:

        def executorch(level: int = level) -> dict[str, float]:
            started = time.process_time()
            config = exirkit.ExecutorchBackendConfig(optimization_level=level)
            program = made["edge"].to_executorch(config)
            made["pte"] = program.buffer
            (work / f"O{level}.pte").write_bytes(made["pte"])
            count = len(program.executorch_program.execution_plan[0].chains[0].instructions)
            return {"figure": time.process_time() - started, "operators": count}

        def reference(level: int = level) -> dict[str, float]:
            method = runtime.Runtime.get().load_program(made["pte"]).load_method("forward")
            return _compared(method.execute(list(made["inputs"]))[0], made["wanted"], ACCEPTED[level])

        yield f"to_executorch -O{level}", executorch
        yield f"reference runtime -O{level}", reference


def _official_stages(architecture: Architecture, work: Path) -> Any:
    torch.set_num_threads(1)
    made: dict[str, Any] = {}

    def lower() -> None:
        official: Any = import_module("executorch.exir")
        made["exported"], _, _ = architecture.export()
        program = official.to_edge(made["exported"]).to_executorch()
        (work / "official.pte").write_bytes(program.buffer)

    yield "official exporter", lower


def _run_officially(runtime: OfficialRuntime, work: Path, program: str, stage: str, accepted: float) -> dict[str, Any]:
    inputs, wanted = torch.load(work / "calls.pt")
    result = runtime.run(work / program, [list(inputs)], timeout_s=120.0)
    if result.failure is not None:
        return {"stage": stage, "failure": _first_line(result.failure.kind, result.failure.text)}
    try:
        answer: Any = result.outputs[0][0]
        return {"stage": stage, **_compared(answer, wanted, accepted)}
    except ValueError as error:
        return {"stage": stage, "failure": str(error)}


def _first_line(kind: str, text: str) -> str:
    """Return the error of the official runtime with the first line of its log that says why."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reasons = [re.sub(r"^.*?\] ", "", line) for line in lines[1:]]
    head = lines[0] if lines else ""
    return f"{kind}: {head}" + (f" ({reasons[0]})" if reasons else "")[:300]


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return plain data."""
    return asdict(outcome)
