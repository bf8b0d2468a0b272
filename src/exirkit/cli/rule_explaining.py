"""`exirkit rule explain`: why a rule does or does not fire in a model."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer
from torch.export import ExportedProgram

from exirkit.ir import GraphEditor, UsageError, copy_program
from exirkit.passes import ApplyRules
from exirkit.patterns import CompiledRule, LoadedBook, NodeExplanation, RuleExplanation, explain_rule, load_book
from exirkit.program import to_edge

from .book_files import expand_books
from .console import Steps, output_to_stderr
from .exporting import export_methods, load_exported
from .failures import WRONG_USAGE, CommandError, printable
from .model_source import ModelSource, call_factory
from .reports import Finding
from .rule_use_reports import ExplainedMethod, ExplainedNode, RuleExplainReport


@dataclass(frozen=True)
class ExplainOptions:
    """What to explain.

    Attributes:
        books: Files, or names of shipped books.
        rule: Id of a rule in one of them.
        node: Name of a node; otherwise those at which the rule gets furthest.
        method: Name of a method; otherwise all.
        after_others: Explain in what the other rules of the books leave behind.
        strict: Whether `torch.export` traces with TorchDynamo.
        is_official: Explain in what the official exporter lowers to Edge.
        is_exported: Explain in the exported program.
    """

    books: tuple[str, ...]
    rule: str
    node: str | None = None
    method: str | None = None
    after_others: bool = False
    strict: bool = False
    is_official: bool = False
    is_exported: bool = False


def explain_source(source: ModelSource, options: ExplainOptions, steps: Steps) -> tuple[RuleExplainReport, list[str]]:
    """Explain a rule in the Edge program of a model, where `exirkit lower --rules` applies it, or in another one.

    Returns:
        The report, and the text of every explanation.

    Raises:
        CommandError: EK714 to EK718, the target gives no exported program; EK711, there is no such method, or the
            options do not go together, or the official exporter is not installed.
        UsageError: EK206, no book has the rule; EK262, no method has the node.
        ModelError: A book has errors, or the model cannot be handled.
        OSError: A book cannot be read.
    """
    books = [load_book(name).require_valid() for name in expand_books(options.books)]
    rules = [rule for book in books for rule in book.rules]
    rule = _rule_of(books, options.rule)
    with output_to_stderr():
        steps(f"loading {source.text}")
        made: Any = load_exported(source.file) if source.factory is None and source.file else call_factory(source)
        exported = export_methods(made, strict=options.strict, say=steps)
    if options.method is not None and options.method not in exported:
        raise _no_method(options.method, list(exported))
    names = [options.method] if options.method is not None else sorted(exported)
    programs = _programs(exported, options, steps)
    if options.after_others:
        steps("rewriting")
        others = ApplyRules([one for one in rules if one is not rule])
        programs = {name: _rewritten(others, programs[name]) for name in names}
    steps(f"explaining {rule.id}")
    editors = {name: GraphEditor(copy_program(programs[name])) for name in names}
    explained = _explained(editors, rule, rules, options.node)
    report = RuleExplainReport(
        target=source.text,
        rule=rule.id,
        operators=list(next(iter(explained.values())).operators),
        methods=[_method(name, one) for name, one in explained.items()],
    )
    return report, [node.diagnostic().render() for one in explained.values() for node in one.nodes]


def _programs(
    exported: Mapping[str, ExportedProgram], options: ExplainOptions, steps: Steps
) -> dict[str, ExportedProgram]:
    """Return the programs in which a rule is looked for."""
    if options.is_official and options.is_exported:
        raise CommandError(
            code="EK711",
            message="--official and --exported do not go together",
            hint="say one of them",
            exit_code=WRONG_USAGE,
        )
    if options.is_exported:
        return dict(exported)
    if options.is_official:
        steps("lowering with the official exporter")
        with output_to_stderr():
            return _officially_lowered(exported)
    edge = to_edge(dict(exported), progress=steps)
    return {name: edge.exported_program(name) for name in exported}


def _officially_lowered(exported: Mapping[str, ExportedProgram]) -> dict[str, ExportedProgram]:
    try:
        from exirkit.bridge import officially_lowered
    except ImportError as error:
        raise CommandError(
            code="EK711",
            message=f"--official needs the official exporter: {error}",
            hint="install it: pip install 'exirkit[executorch]'",
            exit_code=WRONG_USAGE,
        ) from error
    return officially_lowered(exported)


def _rewritten(rules: ApplyRules, program: ExportedProgram) -> ExportedProgram:
    result: Any = rules(program)
    made: ExportedProgram = result.exported_program
    return made


def print_explained(report: RuleExplainReport, texts: list[str]) -> None:
    """Print every explanation, and where the rule fires."""
    for text in texts:
        typer.echo("\n".join(printable(line) for line in text.splitlines()) + "\n")
    for method in report.methods:
        starts = "1 call" if method.tried == 1 else f"{method.tried} calls"
        if not method.tried:
            said = f"there is no call of {', '.join(report.operators[:5])}" if report.operators else "there is no call"
        elif method.firing:
            said = f"{report.rule} fires at {method.firing} of {starts} at which it can start"
        else:
            said = f"{report.rule} does not fire; {starts} at which it can start"
        typer.echo(printable(f"{method.name}: {said}"))


def _rule_of(books: list[LoadedBook], rule_id: str) -> CompiledRule:
    for book in books:
        if any(one.id == rule_id for one in book.rules):
            return book.rule(rule_id)
    known = {one.id: book for book in books for one in book.rules}
    close = difflib.get_close_matches(rule_id, list(known), n=1)
    return (known[close[0]] if close else books[0]).rule(rule_id)


def _explained(
    editors: dict[str, GraphEditor], rule: CompiledRule, rules: list[CompiledRule], node: str | None
) -> dict[str, RuleExplanation]:
    """Explain in every method; a node has to be in one of them only."""
    found: dict[str, RuleExplanation] = {}
    missing: UsageError | None = None
    for name, editor in editors.items():
        try:
            found[name] = explain_rule(rule, editor, node, rules=rules)
        except UsageError as error:
            missing = error
    if not found and missing is not None:
        raise missing
    return found


def _no_method(name: str, known: list[str]) -> CommandError:
    return CommandError(
        code="EK711", message=f"the model has no method {name!r}", hint=f"it has {', '.join(known)}",
        exit_code=WRONG_USAGE,
    )  # fmt: skip


def _method(name: str, explained: RuleExplanation) -> ExplainedMethod:
    return ExplainedMethod(
        name=name, tried=explained.tried, firing=explained.firing, nodes=[_node(one) for one in explained.nodes]
    )


def _node(one: NodeExplanation) -> ExplainedNode:
    mismatch = one.mismatch
    return ExplainedNode(
        node=one.node,
        fires=one.fires,
        source=one.place.source,
        module=one.place.module,
        kind=mismatch.kind if mismatch else None,
        expected=mismatch.expected if mismatch else None,
        found=mismatch.found if mismatch else None,
        values=dict(mismatch.values) if mismatch else {},
        bindings=dict(one.bindings),
        matched=list(one.matched),
        made=list(one.made),
        earlier=list(one.earlier),
        note=Finding.model_validate(one.diagnostic().model_dump()),
    )
