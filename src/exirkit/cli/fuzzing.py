"""`exirkit fuzz`: from options to a campaign, with its progress on standard error."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import yaml
from pydantic import ValidationError

from exirkit.fuzz import (
    Attachment,
    Campaign,
    CampaignConfig,
    ProcessPool,
    Progress,
    dask_executor,
    load_bench,
    load_parts,
    load_reasons,
    parse_seeds,
    untested,
)

from .console import output_to_stderr
from .failures import WRONG_USAGE, CommandError, one_line
from .fuzz_progress import ProgressView
from .fuzz_reports import FuzzBucket, FuzzReport, FuzzTested
from .reports import Finding

_DEFAULT_SEEDS = "1000"
# A book may have hundreds of rules, and a few seeds may not be enough for any.
_MOST_EXPLAINED = 20


@dataclass(frozen=True)
class FuzzOptions:
    """Choices of `exirkit fuzz`; see there."""

    target: str = "exirkit"
    pipelines: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    seeds: str | None = None
    minutes: float | None = None
    workers: int | None = None
    dask: str | None = None
    database: Path = Path("fuzz.db")
    oracles: str | None = None
    optimization_levels: tuple[int, ...] = ()
    choices: str = "drawn"
    policy: Path | None = None
    batch: int | None = None
    seed_seconds: float = 60.0
    analyses: int = 2
    bench: str | None = None


def run_campaign(options: FuzzOptions) -> FuzzReport:
    """Run a campaign to its end, or until Ctrl-C.

    Raises:
        CommandError: EK711, the options are no configuration.
        DiagnosticError: A file that they name is wrong, or the database cannot be used.
        KeyboardInterrupt: What is done so far has been kept, and the user has been told how to go on.
    """
    config = campaign_config(options)
    with output_to_stderr():
        # Here too, so that what is wrong with files is said once, before any process is started.
        load_bench(config)
    campaign = Campaign(config, options.database)
    with _executor(options) as (executor, workers), ProgressView(config, workers) as view:
        try:
            progress = campaign.run(
                executor,
                workers=workers,
                minutes=options.minutes,
                watch=view,
                in_children=options.dask is not None,
            )
        except KeyboardInterrupt:
            executor.shutdown(wait=False, cancel_futures=True)
            view.stop()
            done = f"{view.done:,} results are in {options.database}" if view.done else "nothing was done"
            typer.echo(f"interrupted: {done}; the same command goes on from there", err=True)
            raise
    return _report(progress, config, workers)


def campaign_config(options: FuzzOptions) -> CampaignConfig:
    """Return what the options ask for.

    Raises:
        CommandError: EK711, they are no configuration.
        UsageError: EK860, the seeds are none.
        OSError: A file cannot be read.
    """
    wanted = options.seeds or (_DEFAULT_SEEDS if options.minutes is None else None)
    first, count = parse_seeds(wanted) if wanted is not None else (0, None)
    usual = (0, 1, 2) if options.choices == "drawn" and options.target == "exirkit" else (1,)
    fields: dict[str, Any] = {
        "target": options.target,
        "pipelines": tuple(Attachment.of(file) for file in options.pipelines),
        "rules": tuple(Attachment.of(file) for file in options.rules),
        "oracles": tuple(options.oracles.split(",")) if options.oracles is not None else None,
        "policy": _read_policy(options.policy),
        "optimization_levels": tuple(dict.fromkeys(options.optimization_levels or usual)),
        "choices": options.choices,
        "first_seed": first,
        "seeds": count,
        "batch": options.batch,
        "seed_seconds": options.seed_seconds,
        "analyses": options.analyses,
    }
    if options.bench is not None:
        fields["bench"] = options.bench
    try:
        return CampaignConfig(**fields)
    except ValidationError as error:
        first_error = error.errors()[0]
        raise CommandError(code="EK711", message=one_line(first_error["msg"]), exit_code=WRONG_USAGE) from error


def _read_policy(file: Path | None) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        read = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CommandError(code="EK711", message=one_line(str(error)), file=str(file), exit_code=WRONG_USAGE) from error
    if not isinstance(read, dict):
        raise CommandError(code="EK711", message="a policy is a mapping", file=str(file), exit_code=WRONG_USAGE)
    return read


@contextlib.contextmanager
def _executor(options: FuzzOptions) -> Iterator[tuple[Executor, int]]:
    if options.dask is not None:
        with dask_executor(options.dask) as (executor, workers):
            yield executor, workers
        return
    workers = options.workers or os.cpu_count() or 1
    if sys.path[:1] != [""] and os.getcwd() not in sys.path:
        # As with `python -m`, MODULE:LOWER may be in the working directory; workers get this path.
        sys.path.insert(0, os.getcwd())
    with ProcessPool(workers) as pool:
        yield pool, workers


def _report(progress: Progress, config: CampaignConfig, workers: int) -> FuzzReport:
    ordered = sorted(progress.buckets.items(), key=lambda one: (-one[1], one[0]))
    parts = [progress.uses.of(kind, name) for kind, name in load_parts(config)]
    with output_to_stderr():
        found = untested(parts, progress.done, load_reasons(config, parts[:_MOST_EXPLAINED]))
    return FuzzReport(
        ok=not progress.failed and not found,
        campaign=progress.campaign,
        database=str(progress.database),
        first_seed=config.first_seed,
        seeds=config.seeds,
        done=progress.done,
        new=progress.new,
        seconds=progress.seconds,
        workers=workers,
        verdicts=dict(sorted(progress.verdicts.items())),
        buckets=[
            FuzzBucket(bucket=name, failures=count, first_seed=progress.first_seeds[name]) for name, count in ordered
        ],
        tested=[FuzzTested.model_validate(one.model_dump(exclude={"instead"})) for one in parts],
        diagnostics=[Finding.model_validate(one.model_dump()) for one in found],
        notes=progress.notes,
    )
