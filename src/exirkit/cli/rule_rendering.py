"""What a person sees of the `exirkit rule` commands."""

from __future__ import annotations

import typer

from .console import stdout_console, table
from .failures import printable
from .rule_checking import CheckTexts
from .rule_reports import RuleCheckReport, RuleListReport, WordsReport


def print_checked(report: RuleCheckReport, texts: CheckTexts, *, is_verbose: bool) -> None:
    """Print a line per rule, all findings, and the notes if they are asked for."""
    rows = []
    for rule in report.rules:
        guards = [one for one in rule.witnesses if one.part == "guard"]
        shown = f"{sum(one.witness is not None for one in guards)} of {len(guards)}" if guards else "-"
        rows.append(
            ["accepted" if rule.ok else "REJECTED", rule.rule, str(rule.trials), shown, f"{rule.seconds:.1f} s"]
        )
    console = stdout_console()
    if rows:
        console.print(table(["verdict", "rule", ">samples", ">guards with witness", ">time"], rows))
    print_findings(texts, is_verbose=is_verbose)
    accepted = sum(rule.ok for rule in report.rules)
    verdict = "accepted" if report.ok else "REJECTED"
    typer.echo(f"\n{printable(report.file)}: {verdict}, {accepted} of {len(report.rules)} rules (seed {report.seed})")


def print_findings(texts: CheckTexts, *, is_verbose: bool) -> None:
    """Print what was found on standard error, and the notes or how many there are."""
    for text in texts.found:
        typer.echo("\n" + "\n".join(printable(line) for line in text.splitlines()), err=True)
    for text in texts.notes if is_verbose else ():
        typer.echo("\n" + "\n".join(printable(line) for line in text.splitlines()))
    if texts.notes and not is_verbose:
        typer.echo(f"\nnotes: {len(texts.notes)}, shown with --verbose")


def print_rules(report: RuleListReport) -> None:
    """Print the rules of a book, or the names of books."""
    console = stdout_console()
    if report.book is None:
        for name in report.books:
            typer.echo(name)
        return
    for name in report.books or [report.book]:
        if report.books:
            typer.echo(name)
        rows = [
            [rule.id, rule.kind, ", ".join(rule.operators[:3]), rule.doc or ""]
            for rule in report.rules
            if rule.book == name
        ]
        console.print(table(["rule", "kind", "starts at", "what it does"], rows))


def print_words(report: WordsReport) -> None:
    """Print the words of the language."""
    stdout_console().print(table(["word", "what it is"], [[one.word, one.text] for one in report.words]))
