"""`exirkit rule port`: the beginning of a book from a pass of the official package."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from exirkit.cli.console import Steps, output_to_stderr, print_json
from exirkit.cli.files import check_writable, write_text
from exirkit.cli.options import Json


@dataclass(frozen=True)
class RulePortReport:
    """The document of `exirkit rule port`.

    Attributes:
        target: The pass.
        file: Where the book was written, if it was.
        book: Its text.
        rules: Each rule: `id`, how many `sites` it was made of, names of literals that are `undecided`, and `evidence`.
        left_out: Sites that could not be written as rules, by reason.
        programs: How many programs the pass was given.
        changed: How many of them it changed.
        wrong: In how many the pass raised, or results were not those of eager PyTorch afterwards.
    """

    target: str
    file: str | None
    book: str
    rules: list[dict[str, Any]]
    left_out: dict[str, int]
    programs: int
    changed: int
    wrong: int
    ok: bool = True


def port(
    target: Annotated[str, typer.Argument(metavar="MODULE:PASS", show_default=False)],
    seeds: Annotated[int, typer.Option(min=1, help="How many programs the pass is given.")] = 60,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:FACTORY", help="Models that it is given as well, first; repeatable."),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Keep undecided literals as they were seen.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="BOOK.yaml")] = None,
    json: Json = False,
) -> None:
    """Start a book from a pass: exit code 1 if no rule could be made.

    The pass is run on generated programs and models. Subgraphs that it has replaced become rules; what observation
    does not decide is marked in the book, which cannot be loaded until no mark is left.
    """
    check_writable(output, ".yaml")
    with Steps() as steps:
        steps("loading torch")
        from exirkit.fuzz import require_official

        require_official()
        with output_to_stderr():
            steps("loading the official package")
            from exirkit.bridge import port_pass

            made = port_pass(target, seeds=seeds, models=model or (), exact=exact, progress=steps)
        if output is not None:
            write_text(output, made.text)
    rules = [
        {"id": one.rule.id, "sites": one.sites, "undecided": one.undecided, "evidence": one.evidence}
        for one in made.rules
    ]
    file = os.fspath(output) if output is not None else None
    report = RulePortReport(
        target, file, made.text, rules, dict(made.left_out), made.programs, made.changed, made.wrong, bool(rules)
    )
    if json:
        print_json(report)
    else:
        typer.echo(report.book if file is None else f"{file}: {len(rules)} rules", nl=file is not None)
    raise typer.Exit(0 if report.ok else 1)
