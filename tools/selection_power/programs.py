"""Mutants against generated programs; runs inside a tree with mutants.

    python -m tools.selection_power.programs DIR PROGRAMS SECONDS

Programs are made, and run once with all mutants off, to know which reach which mutant. Then each mutant meets those
that reach it, in the order of their seeds, in a process that is forked before anything was compiled: what the compiler
keeps from program to program would hide it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import exirkit_mutants  # type: ignore[import-not-found]
import torch

from exirkit.fuzz.compilers import ExirkitCompiler, drawn_choices
from exirkit.fuzz.examination import Verdict
from exirkit.fuzz.generation import program_of, seed_of_choices
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import parse_program, program_text

_LEVELS = (1, 2)
_OUT_OF_TIME = 3
# A program that takes so many times the limit of all hangs.
_PATIENCE = 2.5


def main(arguments: Sequence[str]) -> None:
    """Run what has not been run, and keep each result as a line of `programs.jsonl`."""
    directory, count, seconds = Path(arguments[0]), int(arguments[1]), float(arguments[2])
    torch.set_num_threads(1)
    texts = _kept(directory / "programs.json", lambda: [program_text(program_of(seed)) for seed in range(count)])
    usual = _kept(directory / "programs_reached.json", lambda: _reached(texts))
    mutants = len(json.loads((directory / "sites.json").read_text()))
    log = directory / "programs.jsonl"
    done = {json.loads(line)["mutant"] for line in log.read_text().splitlines()} if log.exists() else set()
    for number in (one for one in range(mutants) if one not in done):
        seeds = [seed for seed, one in enumerate(usual) if number in one["mutants"]]
        found = {"mutant": number, "reached": len(seeds)}
        if seeds:
            found |= _in_a_process(lambda: _fate(number, texts, usual, seeds, seconds))  # noqa: B023, called at once
        with log.open("a") as lines:
            lines.write(json.dumps(found) + "\n")
        print(found, flush=True)


def _verdict(seed: int, text: str) -> Verdict:
    compiler = drawn_choices(ExirkitCompiler(level=_LEVELS[seed % len(_LEVELS)]), seed_of_choices(seed))
    return check(parse_program(text), compiler=compiler, seed=seed)


def _reached(texts: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for seed, text in enumerate(texts):
        exirkit_mutants.forget()
        verdict = _verdict(seed, text)
        assert not verdict.failures, f"seed {seed} fails without a mutant: {verdict.failures[0].message}"
        found.append({"mutants": exirkit_mutants.reached(), "unsupported": verdict.unsupported})
    return found


def _fate(
    number: int, texts: Sequence[str], usual: Sequence[dict[str, Any]], seeds: Sequence[int], seconds: float
) -> dict[str, Any]:
    exirkit_mutants.switch_on(number)
    signal.signal(signal.SIGPROF, lambda *_: os._exit(_OUT_OF_TIME))
    signal.setitimer(signal.ITIMER_PROF, _PATIENCE * seconds)
    started = time.process_time()
    for met, seed in enumerate(seeds, 1):
        if time.process_time() - started > seconds:
            return {"met": met - 1}
        verdict = _verdict(seed, texts[seed])
        failure = verdict.failures[0] if verdict.failures else None
        if failure is not None or (verdict.unsupported and not usual[seed]["unsupported"]):
            killed_by = failure.oracle if failure is not None else f"unsupported {verdict.unsupported}"
            return {"met": met, "seed": seed, "killed_by": killed_by, "seconds": time.process_time() - started}
    return {"met": len(seeds)}


def _kept(file: Path, make: Callable[[], Any]) -> Any:
    if not file.exists():
        made = _in_a_process(lambda: {"made": make()})
        if "made" not in made:
            raise SystemExit(f"{file.name} could not be made: {made}")
        file.write_text(json.dumps(made["made"]))
    return json.loads(file.read_text())


def _in_a_process(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a function returns in a fork of this process; a campaign reports one that hangs or dies, too."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        os.close(reader)
        try:
            found = run()
        except BaseException as error:
            found = {"killed_by": f"{type(error).__name__}: {error}"[:200]}
        with open(writer, "w") as pipe:
            json.dump(found, pipe)
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    made: dict[str, Any] = (
        json.loads(text) if text else {"killed_by": "hangs" if code == _OUT_OF_TIME else f"exit {code}"}
    )
    return made


if __name__ == "__main__":
    main(sys.argv[1:])
