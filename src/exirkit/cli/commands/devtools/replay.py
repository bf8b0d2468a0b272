"""`exirkit replay`: see a failure again that `exirkit bundle-failure` has written."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from exirkit.cli.choices import Lowering
from exirkit.cli.console import Steps, print_json, print_line, print_text
from exirkit.cli.errors import CommandError
from exirkit.cli.failures import Failure, find_failure
from exirkit.cli.files import check_writable
from exirkit.cli.options import Json, Libraries, Passes
from exirkit.cli.root import app

if TYPE_CHECKING:
    from exirkit.program import BundledPrograms

_MOST_RUNS = 1000


@dataclass(frozen=True)
class _Options:
    """Options of the lowering, as a bundle has them."""

    level: Literal[0, 1, 2]
    target: str
    passes: tuple[str, ...]
    rules: tuple[str, ...]
    pipelines: tuple[str, ...]


@dataclass(frozen=True)
class _Facts:
    """What a bundle says besides its programs."""

    failure: Failure | None
    options: _Options
    runs: int
    seed: int
    versions: dict[str, str]

    def __post_init__(self) -> None:
        if not 1 <= self.runs <= _MOST_RUNS:
            raise ValueError(f"runs must be from 1 to {_MOST_RUNS}")


@dataclass(frozen=True)
class ReplayReport:
    """The document of `exirkit replay`.

    Attributes:
        ok: Whether the failure is seen again.
        file: The bundle.
        recorded: What went wrong there; None if nothing did.
        found: What goes wrong here.
        versions: What it was written with, where that is another version than here, as `there -> here`.
    """

    ok: bool
    file: str
    recorded: Failure | None
    found: Failure | None
    versions: dict[str, str]


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(metavar="BUNDLE.zip", show_default=False)],
    passes: Passes = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="MODEL.pt2", help="Also write the program, to be used with other commands."),
    ] = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Lower the programs of a bundle with its options: exit code 0 if the failure is seen again, 1 if it is not.

    Nothing in a bundle is unpickled or run. Values that it does not have are drawn from their statistics.
    """
    check_writable(save, ".pt2")
    with Steps() as steps:
        with steps.phase("torch", "loading torch"):
            from exirkit.program import read_bundle
            from exirkit.visualization import versions
        bundle = read_bundle(file)
        if save is not None:
            _save(bundle, save)
        facts = _facts(bundle, file)
        with tempfile.TemporaryDirectory() as folder, steps.phase("find", "lowering"):
            choices = _lowering(bundle, facts.options, Path(folder), passes).choices()
            found = find_failure(bundle.programs, choices, runs=facts.runs, seed=facts.seed)
    recorded = facts.failure
    same = found is None if recorded is None else recorded.is_like(found)
    there, here = facts.versions, versions()
    others = {name: f"{there.get(name)} -> {one}" for name, one in here.items() if there.get(name) != one}
    report = ReplayReport(same, str(file), recorded, found, others)
    if json:
        print_json(report)
    else:
        _print(report)
    raise typer.Exit(0 if report.ok else 1)


def _facts(bundle: BundledPrograms, file: Path) -> _Facts:
    """Return what a bundle says besides its programs.

    Raises:
        CommandError: EK772, something is missing or of another type.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(_Facts).validate_python(bundle.facts)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "facts"
        message = f"the bundle does not say how to see its failure: {where}: {first['msg']}"
        raise CommandError(code="EK772", message=message, file=str(file)) from error


def _lowering(bundle: BundledPrograms, options: _Options, folder: Path, passes: list[str] | None) -> Lowering:
    """Write the files of a bundle to a folder and return its options.

    Raises:
        CommandError: EK774, it needs passes that are not given.
    """
    if options.passes and not passes:
        named = ", ".join(options.passes)
        raise CommandError(code="EK774", message=f"the failure was seen with the passes {named}")
    for name, data in bundle.files.items():
        (folder / Path(name).name).write_bytes(data)

    def found(name: str) -> str:
        return str(folder / Path(name).name) if name.startswith("files/") else name

    return Lowering(
        options.level,
        [found(name) for name in options.rules],
        [found(name) for name in options.pipelines],
        passes,
        options.target,
    )


def _save(bundle: BundledPrograms, path: Path) -> None:
    import torch

    if len(bundle.programs) != 1:
        raise CommandError(
            code="EK711", message=f"the bundle has {len(bundle.programs)} methods; a .pt2 file of --save has one"
        )
    torch.export.save(next(iter(bundle.programs.values())), path)


def _print(report: ReplayReport) -> None:
    for name, change in report.versions.items():
        print_line(f"another version of {name}: {change}")
    print_line(f"recorded: {'nothing fails' if report.recorded is None else report.recorded.headline()}")
    print_line(f"here: {'nothing fails' if report.found is None else report.found.headline()}")
    for text in () if report.found is None else report.found.messages:
        print_text(text)
    what = "the same" if report.recorded is None else "the failure"
    print_line(f"{what} is seen again" if report.ok else f"{what} is not seen again", style="bold")
