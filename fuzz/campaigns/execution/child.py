"""`python -m exirkit.fuzz.campaigns.execution.child`: what `run_isolated` starts; writes a line for each step."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from exirkit.fuzz.campaigns.bench import Case, load_bench
from exirkit.fuzz.campaigns.config import CampaignConfig
from exirkit.ir import DiagnosticError

from .pool import resident_megabytes
from .work import run_seed

Say = Callable[[dict[str, Any]], None]


def main() -> None:
    """Check the seeds that standard input names, a task in each line, until there are no more."""
    torch.set_num_threads(1)
    # What compilers and kernels print must not get between the lines of the report.
    report = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(what: dict[str, Any]) -> None:
        report.write(json.dumps(what) + "\n")
        report.flush()

    for line in sys.stdin:
        task = json.loads(line)
        config = CampaignConfig.model_validate_json(task["config"])
        try:
            load_bench(config)
        except DiagnosticError as error:
            say({"wrong": error.diagnostics[0].model_dump(mode="json")})
            return
        _leave_what_is_loaded_to_itself()
        for seed in task["seeds"]:
            _run(seed, config, say)
        say({"end": resident_megabytes()})


def _leave_what_is_loaded_to_itself() -> None:
    """Let the garbage collector examine programs only; torch and what else is loaded stays until the end."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)


def _run(seed: int, config: CampaignConfig, say: Say) -> None:
    def announce(case: Case[Any]) -> None:
        say({"program": case.text, "steps": case.steps, "features": sorted(case.features)})

    say({"begin": seed, "level": config.level_of(seed)})
    say({"result": run_seed(seed, config, announce).model_dump(mode="json")})


if __name__ == "__main__":
    main()
