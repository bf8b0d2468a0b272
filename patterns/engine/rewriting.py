"""The engine: applies a set of rules to a program until nothing matches any more.

Nodes are visited from the outputs to the inputs, so that of two matches the larger one comes first. After a rewrite
only what may have changed is visited again. Every application is a transaction of the graph editor: a rule that
violates its contract is undone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch.fx import Node

from exirkit.ir import (
    ContractError,
    Diagnostic,
    GraphEditor,
    Location,
    SubgraphEditor,
    is_module_program,
    locate,
    subgraph_editors,
)
from exirkit.patterns.engine.application import Applied, RejectedError, RuleApplication, is_wanted
from exirkit.patterns.engine.report import Application, Rejection, RewriteHistory, RewriteReport, RuleStatistics
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.matching.pattern_questions import Anchored
from exirkit.patterns.matching.predicate_tree import PredicateTree, TreeNode
from exirkit.patterns.matching.state import State
from exirkit.patterns.operators.in_place import calls_by_target, make_functional, writes
from exirkit.patterns.operators.targets import Target
from exirkit.patterns.syntax.value_roots import INTERFACE

from .cost_choice import Choice, CostChoice, Estimates, Judge, Room
from .program_facts import ProgramFacts
from .region_search import Course, RegionSearch, frontier, read_by

_LONGEST_CYCLE = 12
_INTERFACE_STAYS = "it changes what the program takes or gives, which only `ChangeInterface` does"
_OPEN = 9
"""How many calls above a change a match is sought again at least, if the pattern does not say how far it reaches."""
_BLIND = "it asks for a stored tensor, and a graph module does not say which of its inputs are; rewrite the program"


@dataclass(frozen=True)
class RewriteOptions:
    """How to rewrite.

    Attributes:
        strategy: `fixpoint`, or `sweep`: every node is visited once.
        bound: Applications per node of the program after which rewriting is taken for endless.
        limit: Stop after this many applications.
        options: Values that rules may ask for with `option(...)`.
        target: What the target has and what it costs; rules that choose by cost need it.
        room: Bytes that a rewrite chosen by cost may need at a node; no limit when absent.
        estimates: What rewrites were found to gain, to be kept between runs on one program and for one target.
        adds_calls: A rewrite chosen by cost may make more calls than it replaces, which take space in the file.
        search: How many rewrites may be tried in each graph to find sequences of rewrites chosen by cost, see
            `RegionSearch`; with none the one that gains most at a node is made.
        is_strict: A result of another dtype or shape is an error; otherwise the rewrite is undone and noted.
        on_application: Called after every application.
        interface: Rules about inputs and outputs may change what the program takes and gives.
        keeps_layouts: A result of another dim order is not taken, whatever the contract of a rule leaves open.
    """

    strategy: str = "fixpoint"
    bound: int = 100
    limit: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    target: Target | None = None
    room: Room | None = None
    estimates: Estimates | None = None
    adds_calls: bool = True
    search: int = 0
    is_strict: bool = False
    on_application: Callable[[Application], None] | None = None
    interface: bool = False
    keeps_layouts: bool = False


class _NothingAppliedError(Exception):
    """No rule was applied, so the program is to be as it was."""


def _require_applications(report: RewriteReport, before: int) -> None:
    if len(report.journal) == before:
        raise _NothingAppliedError


class RuleEngine:
    """Applies rules.

    Args:
        rules: Compiled rules. Of those that match at a node the one with the highest priority is applied; then the one
            whose pattern asks for more; then the one whose id comes first.
    """

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self.rules = tuple(sorted(rules, key=lambda one: (-one.rule.priority, -one.specificity, one.id)))
        self.kinds = frozenset(rule.pattern.kind for rule in self.rules)
        self.names_writing = any(rule.names_writing for rule in self.rules)
        self.height = max((rule.height for rule in self.rules), default=1)
        # How many calls above a change each rule may match now: none is tried far away from it because others are tall.
        # Rules about values of the program have no call at all, and match at the value itself.
        reaches = (min(self.height, _reach(one)) for one in self.rules)
        self.tree = PredicateTree(
            [
                Anchored(rule.anchors, rule.pattern.roots[0], rule.forms or {}, rule.variables, rule.guards, reach)
                for rule, reach in zip(self.rules, (max(1, reach) for reach in reaches), strict=True)
            ]
        )

    def run(self, editor: GraphEditor, options: RewriteOptions | None = None) -> RewriteReport:
        """Rewrite a program in place, inside a transaction of its own: its graph, and the bodies of its control flow.

        Patterns never cross from one graph to another. A body can look through operands at what the program stores.

        Args:
            editor: Editor of a copy that the caller owns.
            options: How.

        Returns:
            What was done.

        Raises:
            ContractError: EK250, the rules rewrite in a cycle; EK251, a rule broke its word and `is_strict`. The
                program is as it was before.
        """
        report = RewriteReport()
        with editor.transaction("rules", records_effect=False):
            self._rewrite(editor, options or RewriteOptions(), report, None)
        return report

    @contextmanager
    def reversible(self, editor: GraphEditor, options: RewriteOptions | None = None) -> Iterator[RewriteHistory]:
        """Rewrite a program as `run` does; as long as the block lasts applications can be undone, the last one first.

        Args:
            editor: Editor of a copy that the caller owns.
            options: How.

        Yields:
            The applications. What stands when the block ends stays; if it raises, nothing does.

        Raises:
            ContractError: As `run`.
        """
        with editor.transaction("rules", records_effect=False):
            history = RewriteHistory(editor)
            self._rewrite(editor, options or RewriteOptions(), history.report, history)
            editor.agree()
            yield history

    def _rewrite(
        self, editor: GraphEditor, options: RewriteOptions, report: RewriteReport, history: RewriteHistory | None
    ) -> None:
        started = time.perf_counter()
        report.statistics = {rule.id: RuleStatistics() for rule in self.rules}
        report.is_limited = options.limit == 0
        self._run_all(editor, options, report, history, None)
        if not options.interface:
            report.rejections += [
                Rejection(rule.id, "", _INTERFACE_STAYS) for rule in self.rules if rule.pattern.kind in INTERFACE
            ]
        if is_module_program(editor.program):
            self._note_blind_rules(report)
        report.seconds = time.perf_counter() - started

    @contextmanager
    def _functional(self, editor: GraphEditor, report: RewriteReport) -> Iterator[Collection[Node]]:
        """Let calls that write to what nothing else uses return new tensors, so that rules match them.

        If no rule is applied, the program is as it was.

        Yields:
            One call of each target in the graph.
        """
        calls = calls_by_target(editor.graph)
        if self.names_writing or not any(map(writes, calls)):
            yield calls
            return
        before = len(report.journal)
        with suppress(_NothingAppliedError), editor.transaction("in-place calls", records_effect=False):
            make_functional(editor)
            yield calls_by_target(editor.graph)
            _require_applications(report, before)

    def _note_blind_rules(self, report: RewriteReport) -> None:
        """Say which rules might have matched if the inputs of the graph were known for what they are."""
        for rule in self.rules:
            statistics = report.statistics[rule.id]
            if rule.asks_for_stored and statistics.tried and not statistics.matched:
                report.rejections.append(Rejection(rule.id, "", _BLIND))

    def _run_all(
        self,
        editor: GraphEditor,
        options: RewriteOptions,
        report: RewriteReport,
        history: RewriteHistory | None,
        outer: ProgramFacts | None,
    ) -> None:
        """Rewrite a graph, and then the bodies of its control flow, each for itself."""
        with self._functional(editor, report) as calls:
            run = _Run(self, editor, options, report, outer, calls)
            run.history = history
            run.run()
        for body in subgraph_editors(editor):
            if report.is_limited:
                break
            self._run_all(body, options, report, history, run.facts)


class _Run:
    """One run of an engine over one graph."""

    def __init__(
        self,
        engine: RuleEngine,
        editor: GraphEditor,
        options: RewriteOptions,
        report: RewriteReport,
        outer: ProgramFacts | None,
        calls: Collection[Node],
    ) -> None:
        self.engine = engine
        self.editor = editor
        self.options = options
        self.facts = ProgramFacts(editor, options.options, options.target, outer)
        self.report = report
        self.graph = editor.path if isinstance(editor, SubgraphEditor) else ""
        self.first = len(report.journal)
        self.history: RewriteHistory | None = None
        self.application = RuleApplication(editor, self.facts, calls, keeps_layouts=options.keeps_layouts)
        self.kinds = engine.kinds
        if not options.interface or self.graph or is_module_program(editor.program):
            self.kinds -= set(INTERFACE)
        self.visits_inputs = not self.kinds.isdisjoint({"stored", "input"})
        graphs = "bodies" if self.graph else "program"
        self.elsewhere = {
            rule.id for rule in engine.rules if rule.pattern.kind == "stored" and rule.rule.graphs != graphs
        }
        self.costs = None
        if options.target is not None:
            self.costs = CostChoice(
                self.application, options.target, options.room, options.estimates, adds_calls=options.adds_calls
            )
        self.search = None
        if self.costs is not None and options.search:
            self.search = RegionSearch(self.application, self.costs, self._rules_at, self._dirty, options.search)
        # How many applications that do not shrink the program lie behind a node, and the last of them.
        self.generation: dict[Node, int] = {}
        self.author: dict[Node, tuple[str, Node | None]] = {}
        self.most = options.bound * (len(editor.graph.nodes) + 1)
        self.longest = 100 + 2 * len(editor.graph.nodes)

    def run(self) -> None:
        stored = self._stored_in_use()
        agenda = {node: 0 for node in reversed(self.editor.graph.nodes) if self._root_of(node) is not None}
        while (agenda or "output" in self.kinds) and not self.report.is_limited:
            changed = self._sweep(agenda)
            if "output" in self.kinds:
                _join(changed, self._sweep_outputs())
            if self.options.strategy == "sweep":
                break
            agenda = {node: changed[node] for node in sorted((one for one in changed if not one._erased), reverse=True)}
            if not agenda:
                break
        self._tidy(stored)
        if self.history is not None:
            self.history.tidied(self.first, partial(self._tidy, stored))

    def _tidy(self, stored: Sequence[Node]) -> None:
        """Remove stored tensors that nothing uses any more."""
        orphans = [node for node in stored if not node._erased and not node.users]
        if orphans:
            self.editor.remove_inputs(orphans)

    def _stored_in_use(self) -> list[Node]:
        """Return the stored tensors that something uses; those that lose that to a rewrite go with it."""
        constants = self.facts.constants
        return [
            node
            for node in self.editor.graph.find_nodes(op="placeholder")
            if node.users and constants.is_stored(node) and not constants.is_mutable(node)
        ]

    def _sweep(self, agenda: Mapping[Node, int]) -> dict[Node, int]:
        """Visit nodes, the last one first; return those to visit again.

        Args:
            agenda: The nodes, and how many calls away from a change each is.
        """
        changed: dict[Node, int] = {}
        tree, rules = self.engine.tree, self.engine.rules
        composites = self.application.composites
        for node, away in agenda.items():
            root = None if node._erased else self._root_of(node, min(away, changed.get(node, away)))
            if root is None or not is_wanted(node):
                continue
            # What is found here again is not to be visited a second time in this sweep.
            changed.pop(node, None)
            contenders: list[CompiledRule] = []
            for rank in tree.candidates(node, root, composites):
                rule = rules[rank]
                if rule.id in self.elsewhere:
                    continue
                if rule.rule.choose == "cost":
                    contenders.append(rule)
                    continue
                dirty = self._try(rule, node)
                if dirty is not None:
                    break
            else:
                dirty = self._try_cheapest(contenders, node) if contenders else None
            if dirty is not None:
                _join(changed, dirty)
            if self.report.is_limited:
                break
        return changed

    def _root_of(self, node: Node, away: int = 0) -> TreeNode | None:
        """Return where to ask which rules may match at a node so far from a change; None where none can."""
        if node.op == "call_function":
            return self.engine.tree.root_of(node.target, away)
        if node.op != "placeholder" or not self.visits_inputs:
            return None
        kind = "stored" if self.facts.is_kind(node, "stored") else "input"
        return self.engine.tree.root_of(kind, away) if kind in self.kinds else None

    def _sweep_outputs(self) -> dict[Node, int]:
        """Visit what the program returns until no rule about outputs matches; return the nodes to visit again."""
        changed: dict[Node, int] = {}
        rules = [rule for rule in self.engine.rules if rule.pattern.kind == "output"]
        is_changing = True
        while is_changing and not self.report.is_limited:
            is_changing = False
            for node in dict.fromkeys(self.editor.graph.output_node().all_input_nodes):
                dirty = next((found for rule in rules if (found := self._try(rule, node)) is not None), None)
                if dirty is not None:
                    _join(changed, dirty)
                    is_changing = True
        return changed

    def _try_cheapest(self, rules: Sequence[CompiledRule], node: Node) -> dict[Node, int] | None:
        """Apply the rule that gains most at a node, if one gains anything, or the best sequence around it."""
        if self.costs is None:
            return None
        if self.search is None or self.search.left <= 0:
            return self._make_cheapest(self.costs, rules, node)
        choice = self.costs.best(rules, node)
        region = self.search.region(rules, node)
        course = self.search.best(region)
        if course.gained_ns > (0.0 if choice is None else choice.estimate.gained_ns):
            return self._follow(course, region)
        return None if choice is None else self._try(choice.rule, node, choice)

    def _make_cheapest(self, costs: CostChoice, rules: Sequence[CompiledRule], node: Node) -> dict[Node, int] | None:
        """Apply the rule that gains most at a node, if one gains anything; mostly it is not undone once estimated."""
        dirty: dict[Node, int] | None = None
        tried = rules[0]

        def make(rule: CompiledRule, state: State, tuning: Mapping[str, Any], judge: Judge) -> None:
            nonlocal dirty, tried
            tried = rule
            dirty = self._make(rule, node, state, tuning, judge)
            statistics = self.report.statistics[rule.id]
            statistics.tried += 1
            statistics.matched += 1

        try:
            choice = costs.best(rules, node, make)
        except RejectedError as rejected:
            self._reject(tried, node, rejected)
            return None
        return dirty if dirty is not None or choice is None else self._try(choice.rule, node, choice)

    def _follow(self, course: Course, region: Sequence[Node]) -> dict[Node, int] | None:
        """Make the rewrites of a sequence; return the nodes to visit again."""
        assert self.search is not None, "it has found the sequence"
        changed: dict[Node, int] = {}
        places = region
        for step in course.steps:
            choice = self.search.find(step, places)
            dirty = None if choice is None else self._try(step.rule, places[step.place], choice)
            if dirty is None or self.report.is_limited:
                break
            _join(changed, dirty)
            places = frontier(dirty)
        return changed or None

    def _rules_at(self, node: Node) -> list[CompiledRule]:
        """Return the rules that may match at a call, in their order."""
        root = self._root_of(node)
        if root is None or not is_wanted(node):
            return []
        ranks = self.engine.tree.candidates(node, root, self.application.composites)
        return [rule for rank in ranks if (rule := self.engine.rules[rank]).id not in self.elsewhere]

    def _try(self, rule: CompiledRule, node: Node, choice: Choice | None = None) -> dict[Node, int] | None:
        """Apply a rule at a node if it matches; return the nodes that may match differently now.

        Args:
            rule: The rule.
            node: The call behind its first root.
            choice: How it matches, where that is known.
        """
        statistics = self.report.statistics[rule.id]
        statistics.tried += 1
        started = time.perf_counter()
        state = self.application.match(rule, node) if choice is None else choice.state
        if state is None:
            statistics.seconds += time.perf_counter() - started
            return None
        if rule.rule.measure == "once" and any(self._was_made_by(rule.id, matched) for matched in state.nodes):
            statistics.seconds += time.perf_counter() - started
            return None
        statistics.matched += 1
        statistics.seconds += time.perf_counter() - started
        try:
            return self._make(rule, node, state, None if choice is None else choice.tuning)
        except RejectedError as rejected:
            self._reject(rule, node, rejected)
            return None

    def _make(
        self,
        rule: CompiledRule,
        node: Node,
        state: State,
        tuning: Mapping[str, Any] | None,
        judge: Judge | None = None,
    ) -> dict[Node, int]:
        """Rewrite a match for good; return the nodes that may match differently now.

        Raises:
            RejectedError: It cannot be rewritten, and nothing has changed.
        """
        statistics = self.report.statistics[rule.id]
        started = time.perf_counter()
        # Values that a rewrite leaves behind are read before it, and so are their neighbours.
        inputs = read_by(state)
        before = tuple(matched.name for matched in state.nodes)
        mark = None if self.history is None else self.history.mark()
        try:
            done = self.application.apply(rule, state, tuning=tuning, then=judge)
        finally:
            elapsed = time.perf_counter() - started
            statistics.seconds += elapsed
        statistics.applied += 1
        if self.history is not None and mark is not None:
            self.history.push(mark)
        self._note(rule, node, before, done, state.names, elapsed)
        self._check_end(rule, node, state.nodes, [*done.made, *done.values], done.removed)
        return self._dirty([*done.made, *done.values], done.replacements, inputs)

    def _was_made_by(self, rule: str, node: Node | None) -> bool:
        """Return whether a node is a result of a rule, or was made of one."""
        for _ in range(_LONGEST_CYCLE):
            if node not in self.author:
                return False
            author, node = self.author[node]
            if author == rule:
                return True
        return False

    def _dirty(
        self, made: Sequence[Node], replacements: Iterable[Node], inputs: Mapping[Node, None]
    ) -> dict[Node, int]:
        """Return what may match now and did not before: calls up to the height of the tallest pattern away.

        Returns:
            How many calls each of them is away from what changed.
        """
        dirty: dict[Node, int] = dict.fromkeys(made, 0)
        dirty.update(dict.fromkeys((one for one in inputs if one.op == "placeholder"), 0))
        reached: dict[Node, None] = dict.fromkeys([*made, *replacements, *(one for one in inputs if not one._erased)])
        for away in range(self.engine.height):
            following: dict[Node, None] = {}
            for node in reached:
                if node.op == "call_function" and node not in dirty:
                    dirty[node] = away
                # A value that very many use, such as a mask, is not a reason to visit all of them again.
                for user in node.users if len(node.users) <= 256 else ():
                    if user not in dirty:
                        following[user] = None
            reached = following
        # Most are too far from the change for any rule; this is asked very often.
        too_far = self.engine.tree.too_far
        return {
            node: away
            for node, away in dirty.items()
            if away < too_far.get(id(node.target), away + 1)
            and not node._erased
            and self._root_of(node, away) is not None
        }

    def _note(
        self,
        rule: CompiledRule,
        node: Node,
        before: tuple[str, ...],
        done: Applied,
        names: Mapping[str, Any],
        seconds: float,
    ) -> None:
        application = Application(
            number=len(self.report.journal) + 1,
            rule=rule.id,
            root=node.name,
            before=before,
            after=tuple(one.name for one in done.made),
            bindings={key: _shown(value) for key, value in names.items() if not key.startswith("$")},
            seconds=seconds,
            graph=self.graph,
            interface=done.interface,
        )
        self.report.journal.append(application)
        if self.options.on_application is not None:
            self.options.on_application(application)
        self.report.is_limited = len(self.report.journal) == self.options.limit

    def _reject(self, rule: CompiledRule, node: Node, rejected: RejectedError) -> None:
        self.report.rejections.append(Rejection(rule.id, node.name, rejected.reason, rejected.is_fault, self.graph))
        if rejected.is_fault and self.options.is_strict:
            raise ContractError(
                Diagnostic(
                    code="EK251",
                    message=f"rule {rule.id} broke its word: {rejected.reason}",
                    location=locate(node),
                    notes=(f"the rule stands in {rule.texts.rule.location().file}",),
                    hint="add the guard that is missing; `exirkit rule check` finds it",
                )
            )

    def _check_end(
        self, rule: CompiledRule, node: Node, matched: Sequence[Node], made: Sequence[Node], removed: int
    ) -> None:
        """Stop what goes round in cycles: applications that do not shrink the program, each on results of the last."""
        parents = [one for one in matched if one in self.generation]
        parent = max(parents, key=self.generation.__getitem__, default=None)
        age = (self.generation[parent] if parent is not None else 0) + (removed <= len(made))
        for one in made:
            self.generation[one] = age
            self.author[one] = (rule.id, parent)
        bound = getattr(rule.rule.measure, "bound", None)
        if len(self.report.journal) - self.first <= self.most and age <= (
            self.longest if bound is None else bound + self.longest
        ):
            return
        cycle: list[str] = [rule.id]
        while parent is not None and len(cycle) < _LONGEST_CYCLE:
            author, parent = self.author[parent]
            cycle.append(author)
        raise ContractError(
            Diagnostic(
                code="EK250",
                message=f"rewriting does not end: {' -> '.join(_period(cycle[::-1]))} -> ...",
                location=Location(node=f"%{node.name}"),
                notes=(f"after {len(self.report.journal)} applications; the program is as it was before",),
                hint="give one of the rules a guard that its own result does not satisfy, or take out its opposite",
            )
        )


def _reach(rule: CompiledRule) -> int:
    """Return how many calls above a change a match of a rule is sought again."""
    return max(_OPEN, 2 * (rule.height + 1)) if rule.reach is None else rule.reach


def _join(changed: dict[Node, int], dirty: Mapping[Node, int]) -> None:
    """Add nodes to visit again; of two changes the nearer one counts."""
    for node, away in dirty.items():
        known = changed.get(node)
        if known is None or away < known:
            changed[node] = away


def _period(rules: list[str]) -> list[str]:
    """Return the shortest piece that the rules repeat."""
    for length in range(1, len(rules) // 2 + 1):
        if rules[-length:] == rules[-2 * length : -length]:
            return rules[-length:]
    return rules


def _shown(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_shown(one) for one in value)}]"
    return str(value)
