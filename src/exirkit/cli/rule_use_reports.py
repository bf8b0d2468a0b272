"""The documents that `exirkit rule explain`, `docs` and `from-trace` print with `--json`."""

from __future__ import annotations

from pydantic import Field

from .reports import Finding, Report


class ExplainedNode(Report):
    """What becomes of a rule at one node.

    Attributes:
        node: Name of the node.
        fires: Whether the rule rewrites there.
        source: Line of the model that the node comes from.
        module: Path of the module that the node comes from.
        kind: What stops the match: `operator`, `literal`, `dtype`, `shape`, `guard`, `users` ...
        expected: What the rule asks for there.
        found: What the program has there.
        values: Values of what the condition, or the type, speaks of.
        bindings: What the names of the pattern stand for, as far as the match gets.
        matched: Matched nodes.
        made: Operators that the rule puts there.
        earlier: Rules that match there too and are asked before this one.
        note: The same as a diagnostic, with its place in the rule.
    """

    node: str
    fires: bool
    source: str | None = None
    module: str | None = None
    kind: str | None = None
    expected: str | None = None
    found: str | None = None
    values: dict[str, str] = Field(default_factory=dict)
    bindings: dict[str, str] = Field(default_factory=dict)
    matched: list[str] = Field(default_factory=list)
    made: list[str] = Field(default_factory=list)
    earlier: list[str] = Field(default_factory=list)
    note: Finding


class ExplainedMethod(Report):
    """What becomes of a rule in one method.

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


class RuleExplainReport(Report):
    """Why a rule does or does not fire.

    Attributes:
        target: The model.
        rule: Id of the rule.
        operators: Operators at which a match starts; none means any.
        methods: The methods that were looked at.
    """

    ok: bool = True
    target: str
    rule: str
    operators: list[str]
    methods: list[ExplainedMethod]


class RuleDocsReport(Report):
    """What `exirkit rule docs` wrote.

    Attributes:
        output: The directory.
        pages: Names of the files in it.
        rules: How many rules they are about.
    """

    ok: bool = True
    output: str
    pages: list[str]
    rules: int


class TracedLiteralReport(Report):
    """One literal of a trace.

    Attributes:
        name: Name under which it is decided on.
        value: Its value in the trace.
        argument: The argument that it is.
        default: Default of that argument.
        decision: What was decided; absent if nothing was.
    """

    name: str
    value: str
    argument: str
    default: str | None = None
    decision: str | None = None


class RuleTraceReport(Report):
    """A rule made from a trace.

    Attributes:
        rule: Id of the rule.
        file: Where it was written, if it was.
        book: The text of the book with the rule.
        literals: All literals of the trace.
        undecided: Names of those that nobody has decided on.
    """

    ok: bool = True
    rule: str
    file: str | None = None
    book: str
    literals: list[TracedLiteralReport]
    undecided: list[str]
