"""A set of rules as a pass."""

from __future__ import annotations

from collections.abc import Sequence

from exirkit.ir import GraphEditor
from exirkit.passes.contract import ReportingPass
from exirkit.patterns import CompiledRule, LoadedBook, RewriteOptions, RewriteReport, RuleEngine


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
            ContractError: EK250, the rules rewrite in a circle; EK251, one broke its word and must not.
        """
        self.reports.append(self.engine.run(editor, self.options))
