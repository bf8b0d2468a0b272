"""`exirkit rule explain`: why a rule does or does not fire in a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import Steps, counted, output_to_stderr, print_json, print_line, print_text
from exirkit.cli.errors import usage_error
from exirkit.cli.files import expand_books
from exirkit.cli.model import export_target, parse_source
from exirkit.cli.options import Json, Libraries, ModelTarget, Strict

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from exirkit.ir import Diagnostic, GraphEditor
    from exirkit.patterns import CompiledRule, LoadedBook, NodeExplanation, RuleExplanation


@dataclass(frozen=True)
class ExplainedNode:
    """What a rule does at one node.

    Attributes:
        node: Name of the node.
        fires: Whether the rule rewrites there.
        source: Line of the model that the node comes from.
        module: Path of the module that the node comes from.
        kind: What stops the match: `operator`, `literal`, `dtype`, `shape`, `guard`, `users` ...
        expected: What the rule asks for there.
        found: What the program has there.
        values: Values that the condition, or the type, refers to.
        bindings: What the names of the pattern stand for, as far as the match gets.
        matched: Matched nodes.
        made: Operators that the rule puts there.
        earlier: Rules that match there too and are asked before this one.
        note: The same as a diagnostic, with its place in the rule.
    """

    node: str
    fires: bool
    source: str | None
    module: str | None
    kind: str | None
    expected: str | None
    found: str | None
    values: Mapping[str, str]
    bindings: Mapping[str, str]
    matched: Sequence[str]
    made: Sequence[str]
    earlier: Sequence[str]
    note: Diagnostic

    @classmethod
    def of(cls, one: NodeExplanation) -> ExplainedNode:
        """Return the document of an explanation."""
        mismatch = one.mismatch
        return cls(
            node=one.node,
            fires=one.fires,
            source=one.place.source,
            module=one.place.module,
            kind=mismatch.kind if mismatch else None,
            expected=mismatch.expected if mismatch else None,
            found=mismatch.found if mismatch else None,
            values=dict(mismatch.values) if mismatch else {},
            bindings=dict(one.bindings),
            matched=one.matched,
            made=one.made,
            earlier=one.earlier,
            note=one.diagnostic(),
        )


@dataclass(frozen=True)
class ExplainedMethod:
    """What a rule does in one method.

    Attributes:
        name: Name of the method.
        tried: How many calls have an operator at which the rule starts.
        firing: At how many of them it fires.
        nodes: Where it fires, then where it gets furthest; some of them.
    """

    name: str
    tried: int
    firing: int
    nodes: list[ExplainedNode]


@dataclass(frozen=True)
class RuleExplainReport:
    """The document of `exirkit rule explain`.

    Attributes:
        target: The model.
        rule: Id of the rule.
        operators: Operators at which a match starts; none means any.
        methods: The methods that were examined.
        status: What is known of the rule: `proved` for all sizes, `bounded`, `tried`, `untried` or `refuted`.
        known: The same in words.
    """

    target: str
    rule: str
    operators: Sequence[str]
    methods: list[ExplainedMethod]
    status: str
    known: str
    ok: bool = True


def explain(
    model: ModelTarget,
    books: Annotated[list[str], typer.Option("--rules", metavar="BOOK", help="A file, or a shipped book; repeatable.")],
    rule: Annotated[str, typer.Option("--rule", metavar="ID", help="Id of the rule.")],
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Node to examine; default: those where the rule gets furthest.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Only this method.")] = None,
    after_others: Annotated[
        bool, typer.Option("--after-others", help="Apply the other rules of the books first.")
    ] = False,
    strict: Strict = False,
    official: Annotated[
        bool, typer.Option("--official", help="Examine the Edge program of the official exporter.")
    ] = False,
    exported: Annotated[
        bool, typer.Option("--exported", help="Examine the exported program instead of the Edge program.")
    ] = False,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Explain why a rule does or does not fire in a model.

    For a node: the part of the rule that stops the match, what it asks for, and what the program has there. MODEL is
    what `exirkit lower` takes; rules are explained in the Edge program, where `lower --rules` applies them.
    """
    if official and exported:
        raise usage_error("--official and --exported exclude each other")
    source = parse_source(model)
    with Steps() as steps:
        steps("loading torch")
        from exirkit.ir import GraphEditor, copy_program
        from exirkit.patterns import load_books, standings

        loaded = load_books(expand_books(books))
        compiled = [one for book in loaded for one in book.rules]
        wanted = _rule_of(loaded, rule)
        standing = next(standings(book)[wanted.id] for book in loaded if wanted in book.rules)
        target = export_target(source, steps, strict=strict)
        chosen = sorted(target.only(method).programs)
        programs = target.programs if exported else _edge_programs(target.programs, steps, official=official)
        if after_others:
            steps("rewriting")
            programs = {name: _after_others(wanted, compiled, programs[name]) for name in chosen}
        steps(f"explaining {wanted.id}")
        editors = {name: GraphEditor(copy_program(programs[name])) for name in chosen}
        explained = _explained(editors, wanted, compiled, node)
    methods = [
        ExplainedMethod(name, one.tried, one.firing, [ExplainedNode.of(each) for each in one.nodes])
        for name, one in explained.items()
    ]
    operators = next(iter(explained.values())).operators
    report = RuleExplainReport(source.text, wanted.id, operators, methods, standing.status, standing.sentence)
    if json:
        print_json(report)
    else:
        _print_explained(report)


def _edge_programs(exported: dict[str, ExportedProgram], steps: Steps, *, official: bool) -> dict[str, ExportedProgram]:
    """Return the Edge programs in which a rule is explained."""
    from exirkit.program import to_edge

    if official:
        steps("lowering with the official exporter")
        try:
            from exirkit.bridge import officially_lowered
        except ImportError as error:
            hint = "install it: pip install 'exirkit[executorch]'"
            raise usage_error(f"--official needs the official exporter: {error}", hint=hint) from error
        with output_to_stderr():
            return officially_lowered(exported)
    edge = to_edge(exported, progress=steps)
    return {name: edge.exported_program(name) for name in exported}


def _after_others(rule: CompiledRule, rules: Sequence[CompiledRule], program: ExportedProgram) -> ExportedProgram:
    from exirkit.passes import ApplyRules

    result = ApplyRules([one for one in rules if one is not rule])(program)
    made: ExportedProgram = result.exported_program
    return made


def _rule_of(books: Sequence[LoadedBook], rule_id: str) -> CompiledRule:
    import difflib

    known = {name: book for book in reversed(books) for one in book.rules for name in (one.rule.origin, one.id)}
    close = [rule_id] if rule_id in known else difflib.get_close_matches(rule_id, list(known), n=1)
    # A book that does not have the rule raises an error with its own rules.
    return (known[close[0]] if close else books[0]).rule(rule_id)


def _explained(
    editors: Mapping[str, GraphEditor], rule: CompiledRule, rules: list[CompiledRule], node: str | None
) -> dict[str, RuleExplanation]:
    """Explain in every method; a node has to be in one of them only."""
    from exirkit.ir import UsageError
    from exirkit.patterns import explain_rule

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


def _print_explained(report: RuleExplainReport) -> None:
    """Print every explanation, and where the rule fires."""
    for method in report.methods:
        for node in method.nodes:
            print_text(node.note.render())
            print_line()
    print_line(f"status of the rule: {report.known}")
    for method in report.methods:
        starts = counted(method.tried, "call")
        if not method.tried:
            verdict = (
                f"there is no call of {', '.join(report.operators[:5])}" if report.operators else "there is no call"
            )
        elif method.firing:
            verdict = f"{report.rule} fires at {method.firing} of {starts} at which it can start"
        else:
            verdict = f"{report.rule} does not fire; {starts} at which it can start"
        print_line(f"{method.name}: {verdict}")
