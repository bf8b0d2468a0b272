"""`exirkit oplist`: the kernels that a runtime needs for some program files, for a selective build."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from exirkit.cli.console import print_json, print_text
from exirkit.cli.files import check_writable, write_text
from exirkit.cli.options import Json
from exirkit.cli.root import app


@app.command()
def oplist(
    files: Annotated[list[Path], typer.Argument(metavar="MODEL.pte...", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.yaml", help="Write it there instead of printing it.")
    ] = None,
    types: Annotated[
        bool, typer.Option("--types/--no-types", help="With the dtypes and dim orders that each kernel is called with.")
    ] = True,
    json: Json = False,
) -> None:
    """List the kernels that programs need, as the selective build of ExecuTorch reads it.

    The document has the form of `executorch.codegen.tools.gen_oplist`: give it to `gen_oplist` or to the build in place
    of a model. Kernels that delegates bring along are not in it.
    """
    check_writable(output, ".yaml")
    import yaml

    from exirkit.emit import needed_kernels, open_program

    programs = {}
    for path in files:
        with open_program(path) as opened:
            programs[str(path)] = opened.program
    document = needed_kernels(programs, with_types=types)
    text = yaml.safe_dump(document, sort_keys=True, allow_unicode=True)
    if output is not None:
        write_text(output, text)
    if json:
        print_json(document)
    elif output is None:
        print_text(text)
