"""The unit of work of a campaign: a few seeds, in whatever process the executor has chosen.

Everything that goes in and comes out is JSON or a number, so that any executor will do.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from pydantic import TypeAdapter

from exirkit.fuzz.campaigns.bench import Bench, Case, Checked, load_bench
from exirkit.fuzz.campaigns.config import CampaignConfig
from exirkit.fuzz.campaigns.results import Analysis, Found, Result
from exirkit.ir import DiagnosticError

RESULTS = TypeAdapter(list[Result])

# To reduce a program is to check many.
_ANALYSIS_TIMES = 10

# Told about a case before it is checked: the watcher of a process that dies then knows its case.
Announce = Callable[[Case[Any]], None]


def run_batch(config: str, seeds: Sequence[int]) -> str:
    """Make and check the programs of some seeds.

    Args:
        config: A `CampaignConfig` as JSON.
        seeds: In order.

    Returns:
        A list of `Result` as JSON, one for each seed.

    Raises:
        DiagnosticError: The configuration is wrong; what is wrong with single programs is in their results.
    """
    _one_thread()
    read = CampaignConfig.model_validate_json(config)
    load_bench(read)
    results = []
    for seed in seeds:
        with watchdog(read.seed_seconds):
            results.append(run_seed(seed, read))
    return RESULTS.dump_json(results).decode()


def run_seed(seed: int, config: CampaignConfig, announce: Announce | None = None) -> Result:
    """Make the program of a seed, and ask the oracles about it.

    Raises:
        DiagnosticError: The configuration is wrong. Exceptions of oracles are results with the verdict `broken`.
    """
    bench = load_bench(config)
    level = config.level_of(seed)
    start = time.perf_counter()
    try:
        case = bench.make(seed)
    except Exception as error:
        return Result(seed=seed, verdict="broken", level=level, failures=(broken(error, "generate"),))
    made = time.perf_counter() - start
    if announce is not None:
        announce(case)
    checked = _checked(bench, case)
    known = Result(
        seed=seed,
        verdict="broken",
        program=case.text,
        steps=case.steps,
        features=tuple(sorted(case.features)),
        level=level,
        seconds={"generate": made},
    )
    if isinstance(checked, Exception):
        return known.model_copy(update={"failures": (broken(checked, "check"),)})
    return known.model_copy(
        update={
            "verdict": checked.verdict,
            "features": tuple(sorted(case.features | checked.features)),
            "failures": checked.failures,
            "seconds": known.seconds | checked.seconds,
            "compared": checked.compared,
            "bitwise": checked.bitwise,
            "not_run": checked.not_run,
            "counts": checked.counts,
        }
    )


def analyse_failure(config: str, seed: int, number: int) -> str:
    """Blame and reduce one failure of a program; returns an `Analysis` as JSON, whatever happens."""
    _one_thread()
    read = CampaignConfig.model_validate_json(config)
    start = time.perf_counter()
    try:
        bench = load_bench(read)
        with watchdog(_ANALYSIS_TIMES * read.seed_seconds):
            made = bench.analyse(bench.make(seed), number)
    except Exception as error:
        found = broken(error, "analyse")
        made = Analysis(seed=seed, number=number, bucket=found.bucket, note=found.message)
    return made.model_copy(update={"seconds": time.perf_counter() - start}).model_dump_json()


def broken(error: Exception, doing: str) -> Found:
    """Return what to tell about an exception of the bench itself."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].name}" if frames else "?"
    symptom = error.code if isinstance(error, DiagnosticError) else type(error).__name__
    return Found(
        oracle="bench",
        symptom=symptom,
        message="".join(traceback.format_exception(error))[-4000:],
        stage=doing,
        bucket=f"bench/{doing}/{symptom}/{place}",
    )


def _checked(bench: Bench[Any], case: Case[Any]) -> Checked | Exception:
    try:
        return bench.check(case)
    except Exception as error:
        return error


def _one_thread() -> None:
    if multiprocessing.parent_process() is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@contextlib.contextmanager
def watchdog(seconds: float) -> Iterator[None]:
    """End this process if the block takes too long, even inside a kernel; only processes of a pool are ended."""
    if multiprocessing.parent_process() is None:
        yield
        return
    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
