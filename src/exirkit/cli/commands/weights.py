"""`exirkit weights`: weights of models and data files, from one format to another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import Steps, counted, nbytes_text, print_json, print_line
from exirkit.cli.errors import WRONG_USAGE, CommandError
from exirkit.cli.files import check_writable
from exirkit.cli.model import export_target, parse_source
from exirkit.cli.options import Json, Libraries
from exirkit.cli.root import app

if TYPE_CHECKING:
    from exirkit.emit import NamedBlob

_SUFFIXES = (".safetensors", ".ptd")


@dataclass(frozen=True)
class WeightsReport:
    """The document of `exirkit weights`.

    Attributes:
        source: Where the weights come from.
        output: The file that was written.
        entries: How many tensors and blobs there are.
        nbytes: Size of the file.
    """

    source: str
    output: str
    entries: int
    nbytes: int
    ok: bool = True


@app.command()
def weights(
    source: Annotated[
        str, typer.Argument(metavar="DATA.ptd|WEIGHTS.safetensors|MODULE:FACTORY|FILE.pt2", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.safetensors|FILE.ptd", show_default=False)],
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Write the weights of a model, a data file or a safetensors file as a safetensors file or a data file.

    Names stay as they are: weights of a model have the names of its parameters and buffers, as in data files that
    `exirkit lower --external-constants` writes. Layouts and blobs survive the way there and back.
    """
    if output.suffix not in _SUFFIXES:
        message = "the name of this file has to end in .safetensors or .ptd"
        raise CommandError(code="EK712", message=message, file=str(output), exit_code=WRONG_USAGE)
    check_writable(output, output.suffix)
    with Steps() as steps:
        from exirkit.emit import data_file, write_file, write_safetensors

        entries = _entries(source, steps)
        with steps.phase("write", f"writing {output}"):
            if output.suffix == ".ptd":
                write_file(output, data_file(entries))
            else:
                write_safetensors(entries, output)
    report = WeightsReport(source, str(output), len(entries), output.stat().st_size)
    if json:
        print_json(report)
    else:
        print_line(f"{source} -> {output}: {counted(report.entries, 'tensor')}, {nbytes_text(report.nbytes)} bytes")


def _entries(source: str, steps: Steps) -> dict[str, NamedBlob]:
    from exirkit.emit import named_tensors, open_data_file, read_safetensors

    if source.endswith(".ptd"):
        return open_data_file(source).entries()
    if source.endswith(".safetensors"):
        return read_safetensors(source)
    programs = export_target(parse_source(source), steps).programs
    return named_tensors({name: one for program in programs.values() for name, one in program.state_dict.items()})
