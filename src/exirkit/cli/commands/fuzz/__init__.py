"""`exirkit fuzz ...`: campaigns of generated programs, and what they have found."""

from __future__ import annotations

import typer

from exirkit.cli.root import app

from .campaign import fuzz
from .mutants import mutants
from .results import merge, report, show

fuzz_app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)
fuzz_app.callback()(fuzz)
fuzz_app.command()(report)
fuzz_app.command()(show)
fuzz_app.command()(merge)
fuzz_app.command()(mutants)

app.add_typer(fuzz_app, name="fuzz")

__all__ = ["fuzz_app"]
