"""`exirkit bundle-failure`: what a failed lowering or wrong results need to be seen elsewhere."""

from __future__ import annotations

import json as json_module
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exirkit.cli.choices import Lowering
from exirkit.cli.console import Steps, nbytes_text, output_to_stderr, print_json, print_line
from exirkit.cli.errors import CommandError
from exirkit.cli.failures import Failure, find_failure
from exirkit.cli.files import check_writable, expand_books, write_whole
from exirkit.cli.model import export_target, parse_source
from exirkit.cli.options import (
    Json,
    Level,
    LevelTarget,
    Libraries,
    ModelTarget,
    Passes,
    Pipelines,
    Rules,
    Runs,
    Seed,
    Strict,
)
from exirkit.cli.root import app

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from exirkit.fuzz import LoweringChoices


@dataclass(frozen=True)
class BundleReport:
    """The document of `exirkit bundle-failure`.

    Attributes:
        ok: Whether the failure is seen again when the bundle is read here.
        target: The model.
        file: The bundle.
        nbytes: Its size.
        failure: What goes wrong; None if nothing does.
        again: What goes wrong with the bundle.
        weights: Whether it has the weights.
    """

    ok: bool
    target: str
    file: str
    nbytes: int
    failure: Failure | None
    again: Failure | None
    weights: bool


@app.command("bundle-failure")
def bundle_failure(
    target: ModelTarget,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="BUNDLE.zip", show_default=False)],
    rules: Rules = None,
    pipeline: Pipelines = None,
    passes: Passes = None,
    optimize: Level = 1,
    runtime: LevelTarget = "official_host",
    strict: Strict = False,
    weights: Annotated[
        bool, typer.Option("--weights", help="Store weights and inputs, instead of their statistics.")
    ] = False,
    always: Annotated[bool, typer.Option("--always", help="Write a bundle also if nothing fails.")] = False,
    runs: Runs = 2,
    seed: Seed = 0,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Write a zip file with what is needed to see a failed lowering, or wrong results, elsewhere: `exirkit replay`.

    It has the exported programs, options, versions, seeds, rule books and pipelines, the journal of rewrites, and a
    report page. Instead of weights and inputs it has their statistics, unless --weights is given; `exirkit replay`
    draws values from these. Exit code 1 if the failure is not seen again with the bundle.
    """
    source = parse_source(target)
    check_writable(output, ".zip")
    lowering = Lowering(optimize, rules, pipeline, passes, runtime)
    with Steps() as steps:
        with steps.phase("torch", "loading torch"):
            from exirkit.program import read_bundle, write_bundle
            from exirkit.visualization import versions
        choices = lowering.choices()
        books, files = _files_of(lowering)
        exported = export_target(source, steps, strict=strict).programs
        with steps.phase("find", "looking for the failure"):
            failure = find_failure(exported, choices, runs=runs, seed=seed)
        if failure is None and not always:
            raise CommandError(code="EK773", message="lowering the model does not fail, and its results are right")
        with steps.phase("write", f"writing {output}"):
            files |= _looks(target, exported, choices, failure)
            facts = {
                "failure": None if failure is None else asdict(failure),
                "options": {
                    "level": optimize,
                    "target": runtime,
                    "passes": list(passes or ()),
                    **books,
                },
                "runs": runs,
                "seed": seed,
                "versions": versions(),
            }
            write_whole(
                output,
                lambda file: write_bundle(file, exported, facts=facts, files=files, stores_weights=weights, seed=seed),
            )
        with steps.phase("again", "reading it back"):
            again = find_failure(read_bundle(output).programs, choices, runs=runs, seed=seed)
    is_same = failure is None or failure.is_like(again)
    report = BundleReport(is_same, target, os.fspath(output), output.stat().st_size, failure, again, weights)
    if json:
        print_json(report)
    else:
        _print(report)
    raise typer.Exit(0 if report.ok else 1)


def _files_of(lowering: Lowering) -> tuple[dict[str, list[str]], dict[str, bytes]]:
    """Return the books and pipelines under their names in the bundle, and the files of those that are not shipped."""
    from exirkit.patterns import is_shipped

    files: dict[str, bytes] = {}

    def stored(name: str) -> str:
        if is_shipped(name) or not Path(name).is_file():
            return name
        inside = f"{len(files)}-{Path(name).name}"
        files[inside] = Path(name).read_bytes()
        return f"files/{inside}"

    named = {"rules": expand_books(lowering.rules), "pipelines": lowering.pipelines or ()}
    return {key: [stored(name) for name in names] for key, names in named.items()}, files


def _looks(
    target: str, exported: dict[str, ExportedProgram], choices: LoweringChoices, failure: Failure | None
) -> dict[str, bytes]:
    """Return the journal of rewrites and the page of the lowering."""
    from exirkit.fuzz import lower_recorded
    from exirkit.visualization import LoweringRecord, ReportOptions, report_document, report_page, versions

    record = LoweringRecord(exported)
    with output_to_stderr():
        try:
            manager, found = lower_recorded(exported, choices, record)
        except Exception as error:
            manager, found = None, [f"{type(error).__name__}: {error}"]
    messages = found or ([] if failure is None else list(failure.messages))
    options = ReportOptions(title=target, facts=versions(), failure=messages, with_sources=False)
    page = report_page(report_document(record, manager, options))
    journal: dict[str, Any] = {
        name: [
            {"stage": stage.name, **stage.report.document()}
            for stage in record.stages(name, None if manager is None else manager.exported_program(name))
            if stage.report is not None and stage.report.journal
        ]
        for name in record.methods
    }
    return {"report.html": page.encode(), "journal.json": json_module.dumps(journal, indent=1).encode()}


def _print(report: BundleReport) -> None:
    print_line(f"{report.target} -> {report.file} ({nbytes_text(report.nbytes)} bytes)")
    print_line("nothing fails" if report.failure is None else report.failure.headline())
    if report.ok:
        print_line("the bundle shows it as well" if report.failure is not None else "the bundle is read back")
        return
    seen = "nothing fails" if report.again is None else report.again.headline()
    print_line(f"with the bundle it is not seen again: {seen}")
    if not report.weights:
        print_line("it may depend on values: --weights stores weights and inputs")
