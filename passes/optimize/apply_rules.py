"""Rule books as passes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from exirkit.ir import GraphEditor
from exirkit.passes.contract import ReportingPass
from exirkit.patterns import CompiledRule, LoadedBook, RewriteOptions, RewriteReport, RuleEngine, unfuse


class ApplyRules(ReportingPass[RewriteReport]):
    """Rewrite a program with rules until none of them matches any more.

    Args:
        rules: A loaded book, compiled rules, or an engine that has been made of them.
        options: Strategy, limit, target.

    Attributes:
        reports: What every run did, one for each program.

    Raises:
        ModelError: The book has errors.
    """

    name = "apply-rules"

    def __init__(
        self, rules: LoadedBook | Sequence[CompiledRule] | RuleEngine, options: RewriteOptions | None = None
    ) -> None:
        rules = rules.require_valid().rules if isinstance(rules, LoadedBook) else rules
        self.engine = rules if isinstance(rules, RuleEngine) else RuleEngine(rules)
        self.options = options or RewriteOptions()
        self.reports = []

    def edit(self, editor: GraphEditor) -> None:
        """Rewrite.

        Raises:
            ContractError: EK250, the rules rewrite in a cycle; EK251, one violated its contract and must not.
        """
        self.reports.append(self.engine.run(editor, self.options))


class UnfuseOperators(ApplyRules):
    """Replace operators that a book defines by their definitions, for targets that do not have them.

    Definitions may call operators that books define; these are decomposed as well.

    Args:
        book: A loaded book.
        keep: Operators to leave, by name: those that the target has.
        options: Limit, bound.

    Raises:
        ModelError: The book has errors.
    """

    name = "unfuse-operators"

    def __init__(self, book: LoadedBook, *, keep: Collection[str] = (), options: RewriteOptions | None = None) -> None:
        super().__init__(unfuse(book, keep=keep), options)
