"""`exirkit fuzz`: a campaign of generated programs, with its progress on standard error."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from exirkit.cli.console import Steps, output_to_stderr, print_json, print_line, print_table, print_text
from exirkit.cli.errors import one_line, usage_error
from exirkit.cli.files import expand_books
from exirkit.cli.options import Json, Libraries, Pipelines, Rules

if TYPE_CHECKING:
    from exirkit.fuzz import CampaignConfig, Progress
    from exirkit.ir import Diagnostic

_DEFAULT_SEEDS = "1000"
# A book may have hundreds of rules, and a few seeds may not be enough for any.
_MOST_EXPLAINED = 20
_AGAINST = "exirkit.bridge:AgainstBench"


@dataclass(frozen=True)
class FuzzBucket:
    """Failures that should have one cause.

    Attributes:
        bucket: Its name; `exirkit fuzz show FILE NAME` shows a program of it.
        failures: How many there are.
        first_seed: The first program with one.
        verdict: What is known of a difference between a pass of the official package and rules; None if it has not been
            judged.
        because: Why.
    """

    bucket: str
    failures: int
    first_seed: int
    verdict: str | None = None
    because: str | None = None


@dataclass(frozen=True)
class FuzzReport:
    """The document of `exirkit fuzz`.

    Attributes:
        ok: No seed has a verdict that is a failure, and all that was under test did something.
        campaign: Its id in the database.
        database: The file.
        first_seed: Of those that were asked for.
        seeds: How many seeds were asked for; none if as many as there was time for.
        done: How many of them have a result.
        new: How many of these are from this session.
        seconds: Wall time of this session.
        workers: How many processes did the work.
        verdicts: Seeds by verdict.
        buckets: The largest ones first.
        tested: What was under test, and in how many programs it did something: `kind` (`rule`, `pipeline` or `stage`),
            `name`, in how many it `changed` something, how many are `with_pattern` of the rule, and how many are `near`
            misses.
        diagnostics: Rules that fired in no program, and pipelines that changed none.
        notes: What went wrong with workers.
    """

    ok: bool
    campaign: str
    database: str
    first_seed: int
    seeds: int | None
    done: int
    new: int
    seconds: float
    workers: int
    verdicts: dict[str, int]
    buckets: list[FuzzBucket]
    tested: list[dict[str, Any]]
    diagnostics: Sequence[Diagnostic]
    notes: Sequence[str]


def fuzz(
    context: typer.Context,
    target: Annotated[
        str, typer.Option(metavar="exirkit|official|MODULE:LOWER", help="The compiler that is tested.")
    ] = "exirkit",
    pipeline: Pipelines = None,
    rules: Rules = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N|A:B", help="Number of seeds, or the range from A to B - 1; default: 1000, or until --minutes."
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after this many minutes.", show_default=False)
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", min=1, max=1024, help="Number of processes; default: one per CPU.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on the Dask cluster with this scheduler.")
    ] = None,
    db: Annotated[
        Path, typer.Option(metavar="FILE.db", help="Database of results, from which a campaign continues.")
    ] = Path("fuzz.db"),
    oracles: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these oracles: dialect-agreement,poisoned-run.")
    ] = None,
    rungs: Annotated[str | None, typer.Option(hidden=True, help="Deprecated name of --oracles.")] = None,
    optimize: Annotated[
        list[int] | None,
        typer.Option(
            "-O", min=0, max=2, help="Optimization levels; each program gets one.", show_default="all; 1 if usual"
        ),
    ] = None,
    choices: Annotated[
        Literal["drawn", "usual"],
        typer.Option(metavar="drawn|usual", help="Other options of lowering: drawn from the seed, or the defaults."),
    ] = "drawn",
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.yaml|NAME",
            help="Policy of program generation; `quantized` comes with it.",
            show_default=False,
        ),
    ] = None,
    focus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PACKAGE|MODULE[:FUNCTION]|rule:ID|analysis:ID:OPERATOR",
            help="Programs that reach this part of the compiler; repeatable.",
        ),
    ] = None,
    changed: Annotated[
        str | None,
        typer.Option(metavar="REVISION", help="Focus on what differs from this git revision.", show_default=False),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Seeds per unit of work; default: as many as take a second.")
    ] = None,
    seed_seconds: Annotated[float, typer.Option(min=0.1, help="Time limit per seed.")] = 60.0,
    analyses: Annotated[int, typer.Option(min=0, help="Failures per bucket to localize and reduce.")] = 2,
    bench: Annotated[
        str | None,
        typer.Option(metavar="MODULE:CLASS", help="Class that makes and checks the cases.", show_default=False),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:PASS|backends/NAME",
            help="Compare a pass of the official package with --rules or --pipeline; repeated, a chain of passes.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:FACTORY", help="With --against: models to compare on as well; repeatable."),
    ] = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Generate programs, compile them, and check them with oracles: exit code 1 if an oracle finds a failure.

    The same seed is the same program, and has the same result. Results are kept in a file; a campaign that was
    interrupted, or is to have more seeds, continues when the same command is given again.
    """
    if context.invoked_subcommand is not None:
        return
    if dask is not None and workers is not None:
        raise usage_error("--dask and --workers exclude each other")
    with Steps() as steps:
        steps("loading torch")
        from exirkit.fuzz import Attachment, changed_since, load_bench, parse_seeds

    _check_against(against, model, target, bench)
    wanted = seeds or (_DEFAULT_SEEDS if minutes is None else None)
    first, count = parse_seeds(wanted) if wanted is not None else (0, None)
    levels = (0, 1, 2) if choices == "drawn" and target == "exirkit" and not against else (1,)
    config = _config(
        target=target,
        pipelines=tuple(Attachment.of(file) for file in pipeline or ()),
        rules=tuple(Attachment.of(file) for file in expand_books(rules)),
        libraries=tuple(libraries or ()),
        oracles=tuple(chosen.split(",")) if (chosen := oracles or rungs) is not None else None,
        focus=(*(focus or ()), *(changed_since(changed) if changed is not None else ())),
        policy=_read_policy(policy),
        optimization_levels=tuple(dict.fromkeys(optimize or levels)),
        choices=choices,
        first_seed=first,
        seeds=count,
        batch=batch,
        seed_seconds=seed_seconds,
        analyses=analyses,
        against=tuple(against or ()),
        models=tuple(model or ()),
        **({} if (chosen_bench := _AGAINST if against else bench) is None else {"bench": chosen_bench}),
    )
    with output_to_stderr():
        # Here too, so that what is wrong with files is reported once, before any process is started.
        load_bench(config)
    with _executor(dask, workers) as (executor, count_of_workers):
        progress = _run(config, db, executor, count_of_workers, minutes=minutes, in_children=dask is not None)
    report = _report(progress, config, count_of_workers)
    if json:
        print_json(report)
    else:
        _print_campaign(report)
    raise typer.Exit(0 if report.ok else 1)


def _check_against(against: Sequence[str] | None, models: Sequence[str] | None, target: str, bench: str | None) -> None:
    """Reject options that do not go together.

    Raises:
        CommandError: EK711, they do not.
        UsageError: EK832, the official package is not installed.
    """
    if against is None:
        if models:
            raise usage_error("--model needs --against", hint="campaigns of the compiler generate their programs")
        return
    if target != "exirkit" or bench is not None:
        raise usage_error(f"--against and --{'bench' if bench is not None else 'target'} exclude each other")
    from exirkit.fuzz import require_official

    require_official()


def _config(**fields: Any) -> CampaignConfig:
    """Return the configuration of a campaign.

    Raises:
        CommandError: EK711, the options are not a valid configuration.
    """
    from pydantic import ValidationError

    from exirkit.fuzz import CampaignConfig

    try:
        return CampaignConfig(**fields)
    except ValidationError as error:
        raise usage_error(one_line(error.errors()[0]["msg"])) from error


def _read_policy(name: str | None) -> dict[str, Any] | None:
    import yaml

    from exirkit.fuzz import shipped_policies

    if name is None:
        return None
    file = shipped_policies().get(name, Path(name))
    try:
        read = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise usage_error(one_line(str(error)), file=str(file)) from error
    if not isinstance(read, dict):
        raise usage_error("a policy is a mapping", file=str(file))
    return read


@contextlib.contextmanager
def _executor(dask: str | None, workers: int | None) -> Iterator[tuple[Executor, int]]:
    from exirkit.fuzz import ProcessPool, dask_executor

    if dask is not None:
        with dask_executor(dask) as (executor, count):
            yield executor, count
        return
    count = workers or os.cpu_count() or 1
    if sys.path[:1] != [""] and os.getcwd() not in sys.path:
        # As with `python -m`, MODULE:LOWER may be in the working directory; workers get this path.
        sys.path.insert(0, os.getcwd())
    with ProcessPool(count) as pool:
        yield pool, count


def _run(
    config: CampaignConfig,
    database: Path,
    executor: Executor,
    workers: int,
    *,
    minutes: float | None,
    in_children: bool,
) -> Progress:
    """Run a campaign to its end, or until Ctrl-C.

    Raises:
        DiagnosticError: The database cannot be used.
        KeyboardInterrupt: What is done so far has been kept; how to continue is on standard error.
    """
    from exirkit.fuzz import Campaign

    from .progress import ProgressView

    campaign = Campaign(config, database)
    with ProgressView(config, workers) as view:
        try:
            return campaign.run(executor, workers=workers, minutes=minutes, watch=view, in_children=in_children)
        except KeyboardInterrupt:
            executor.shutdown(wait=False, cancel_futures=True)
            view.stop()
            done = f"{view.done:,} results are in {database}" if view.done else "nothing was done"
            print_line(f"interrupted: {done}; the same command continues from there", err=True)
            raise


def _report(progress: Progress, config: CampaignConfig, workers: int) -> FuzzReport:
    from exirkit.fuzz import left_out, load_parts, load_reasons, untested

    ordered = sorted(progress.buckets.items(), key=lambda one: (-one[1], one[0]))
    parts = [progress.uses.of(kind, name) for kind, name in load_parts(config)]
    with output_to_stderr():
        found = untested(parts, progress.done, load_reasons(config, parts[:_MOST_EXPLAINED])) + left_out(parts)
    return FuzzReport(
        ok=not progress.failed and not any(one.severity == "error" for one in found),
        campaign=progress.campaign,
        database=str(progress.database),
        first_seed=config.first_seed,
        seeds=config.seeds,
        done=progress.done,
        new=progress.new,
        seconds=progress.seconds,
        workers=workers,
        verdicts=dict(sorted(progress.verdicts.items())),
        buckets=[_bucket(name, count, progress.first_seeds[name], config) for name, count in ordered],
        tested=[one.model_dump(exclude={"instead"}) for one in parts],
        diagnostics=found,
        notes=progress.notes,
    )


def _bucket(name: str, count: int, first_seed: int, config: CampaignConfig) -> FuzzBucket:
    if not config.against:
        return FuzzBucket(name, count, first_seed)
    from exirkit.patterns import verdict_on

    known = verdict_on(name)
    if known is None:
        return FuzzBucket(name, count, first_seed)
    return FuzzBucket(name, count, first_seed, known.verdict, known.because)


def _print_campaign(report: FuzzReport) -> None:
    """Print what a campaign has found."""
    last = report.first_seed + report.seeds if report.seeds is not None else ""
    rate = report.new / report.seconds if report.seconds else 0.0
    print_line(
        f"seeds {report.first_seed}:{last}: {report.done:,} programs, {report.new:,} of them now in "
        f"{report.seconds:.1f} s ({rate:.1f}/s on {report.workers} workers)"
    )
    print_line(", ".join(f"{verdict} {count:,}" for verdict, count in report.verdicts.items()) or "nothing was run")
    has_rules = any(one["kind"] == "rule" for one in report.tested)
    columns = ["under test", "", ">programs it changed", *([">with its pattern", ">near misses"] if has_rules else [])]
    rows = []
    for one in report.tested:
        patterns = [f"{one['with_pattern']:,}", f"{one['near']:,}"] if one["kind"] == "rule" else ["", ""]
        changed = f"{one['changed']:,} of {report.done:,}"
        rows.append([one["kind"], one["name"], changed, *(patterns if has_rules else [])])
    if rows:
        print_table(columns, rows)
    if report.buckets:
        judged = any(one.verdict for one in report.buckets)
        buckets = [
            [f"{one.failures:,}", one.first_seed, one.bucket, *([one.verdict or "not judged"] if judged else [])]
            for one in report.buckets
        ]
        print_table([">failures", ">first seed", "bucket", *(["verdict"] if judged else [])], buckets)
        shown = report.buckets[0].first_seed
        print_line()
        print_line(f"exirkit fuzz show {report.database} {shown}    the program, and a script that fails")
    print_line(f"exirkit fuzz report {report.database} --html report.html")
    for finding in report.diagnostics:
        print_text(f"\n{finding.render()}")
