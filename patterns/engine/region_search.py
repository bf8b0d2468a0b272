"""Choosing by cost over a region: rewrites are tried one behind the other, and the cheapest sequence is made.

The cheapest rewrite at one node may keep a better one at a neighbour from matching, and one that gains nothing may let
another one match that does. So sequences are tried: the rewrites at a node and at the calls that these would take, and,
behind each, those at what it changed, the most promising ones first. Rules without a choice are applied in between, as
they will be in the end. Every attempt is undone; only the sequence that gains most is made for good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from exirkit.patterns.engine.application import Applied, RejectedError, RuleApplication
from exirkit.patterns.engine.cost_choice import LEAST_SHARE, Choice, CostChoice, Estimate
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.matching.state import State

# How many rewrites with a choice a sequence has at most, and how many are tried at each of its places.
_DEPTH = 3
_WIDTH = 4
# A region that rules without a choice change more often than this is left as it would become.
_MOST_FORCED = 16


@dataclass(frozen=True)
class Step:
    """One rewrite of a sequence.

    Attributes:
        place: Which of the calls that may match it is at: one of the region at first, then one of what the step before
            has changed, in the order of `frontier`.
        rule: The rule.
        tuning: Numbers of its `tune`.
    """

    place: int
    rule: CompiledRule
    tuning: Mapping[str, Any]


@dataclass(frozen=True)
class Course:
    """A sequence of steps, what they save and what they spend, in nanoseconds."""

    steps: tuple[Step, ...] = ()
    saved_ns: float = 0.0
    spent_ns: float = 0.0

    @property
    def gained_ns(self) -> float:
        """What every run of the program would take less."""
        return self.saved_ns - self.spent_ns

    @property
    def counts(self) -> bool:
        """Whether the gain is large enough to be relied on."""
        return self.gained_ns > 0 and self.gained_ns >= LEAST_SHARE * self.saved_ns


class _Tried(Exception):  # noqa: N818 - the way out of a transaction that is to be undone
    def __init__(self, found: Course) -> None:
        super().__init__()
        self.found = found


@dataclass(frozen=True)
class _Candidate:
    place: int
    rule: CompiledRule
    state: State
    tuning: Mapping[str, Any]
    gained_ns: float


Dirty = Callable[[Sequence[Node], Iterable[Node], Mapping[Node, None]], Mapping[Node, int]]
"""From what a rewrite has made, what stands for its results, and what the match read: the calls to visit again."""


class RegionSearch:
    """Looks for the sequence of rewrites that gains most around a call.

    Args:
        application: Makes and undoes rewrites.
        costs: What they gain.
        rules_at: The rules that may match at a call, in their order.
        dirty: The calls that may match differently after a rewrite.
        budget: How many rewrites are tried in all; after that the cheapest rewrite at each node is made, as without a
            search. It counts attempts and not seconds, so that results do not depend on the machine.
    """

    def __init__(
        self,
        application: RuleApplication,
        costs: CostChoice,
        rules_at: Callable[[Node], Sequence[CompiledRule]],
        dirty: Dirty,
        budget: int,
    ) -> None:
        self._application, self._costs, self._rules_at, self._dirty = application, costs, rules_at, dirty
        self.left = budget

    def region(self, rules: Sequence[CompiledRule], node: Node) -> list[Node]:
        """Return the calls at which a sequence may begin: a call, and those that rewrites at it would take."""
        found = {node: None}
        for rule in rules:
            state = self._application.match(rule, node)
            if state is not None:
                found.update(dict.fromkeys(one for one in state.nodes if one.op == "call_function"))
        return frontier(found)

    def best(self, region: Sequence[Node]) -> Course:
        """Return the sequence that gains most; none if none gains enough."""
        found = self._explored(region, frozenset(), _DEPTH, _MOST_FORCED)
        return found if found.counts else Course()

    def find(self, step: Step, places: Sequence[Node]) -> Choice | None:
        """Return how a step of a sequence matches, now that it is to be made for good."""
        if step.place >= len(places):
            return None
        state = self._application.match(step.rule, places[step.place])
        return None if state is None else Choice(step.rule, state, step.tuning, Estimate(0.0, 0.0, 0))

    def _explored(self, places: Sequence[Node], made: frozenset[Node], depth: int, forced: int) -> Course:
        """Return the best sequence from here; after the first step each has to use what the ones before have made."""
        if made and forced:
            found = self._forced(places, made)
            if found is not None:
                return self._behind(found, made, depth, forced - 1) or Course()
        best = Course()
        for one in self._candidates(places, made) if depth else ():
            course = self._behind(one, made, depth - 1, forced)
            if course is not None and course.gained_ns > best.gained_ns:
                best = course
        return best

    def _forced(self, places: Sequence[Node], made: frozenset[Node]) -> _Candidate | None:
        """Return what a rule without a choice will do here, if one does."""
        for place, node in enumerate(places):
            for rule in self._rules_at(node):
                if rule.rule.choose != "cost" and (state := self._match(rule, node, made)) is not None:
                    return _Candidate(place, rule, state, rule.tunings[0], 0.0)
        return None

    def _candidates(self, places: Sequence[Node], made: frozenset[Node]) -> list[_Candidate]:
        """Return the most promising rewrites, those that gain nothing among them."""
        found = []
        for place, node in enumerate(places):
            for rule in self._rules_at(node):
                if rule.rule.choose == "cost" and (state := self._match(rule, node, made)) is not None:
                    found += self._tuned(place, rule, state, node)
        return sorted(found, key=lambda one: -one.gained_ns)[:_WIDTH]

    def _tuned(self, place: int, rule: CompiledRule, state: State, node: Node) -> list[_Candidate]:
        for tuning in rule.tunings:
            estimate = self._costs.estimate(rule, state, tuning)
            if not isinstance(estimate, Estimate) or estimate.gained_ns == -math.inf:
                break
            if self._costs.fits(estimate, node):
                return [_Candidate(place, rule, state, tuning, estimate.gained_ns)]
        return []

    def _match(self, rule: CompiledRule, node: Node, made: frozenset[Node]) -> State | None:
        # What is applied once stays with the run, which knows who has made what.
        state = None if rule.rule.measure == "once" else self._application.match(rule, node)
        return state if state is not None and (not made or not made.isdisjoint(state.nodes)) else None

    def _behind(self, one: _Candidate, made: frozenset[Node], depth: int, forced: int) -> Course | None:
        """Return a rewrite with the best sequence behind it, or None if it cannot be made, or is not tried any more."""
        if self.left <= 0:
            return None
        self.left -= 1
        before = self._costs.costs_of(one.state)
        inputs = read_by(one.state)

        def look(done: Applied) -> None:
            saved, spent = self._costs.change(before, done)
            changed = self._dirty([*done.made, *done.values], done.replacements, inputs)
            rest = self._explored(frontier(changed), made.union(done.made), depth, forced)
            step = Step(one.place, one.rule, one.tuning)
            raise _Tried(Course((step, *rest.steps), saved + rest.saved_ns, spent + rest.spent_ns))

        try:
            self._application.apply(one.rule, one.state, tuning=one.tuning, then=look)
        except _Tried as tried:
            return tried.found
        except RejectedError:
            return None
        raise AssertionError("looking ends every attempt")


def frontier(nodes: Iterable[Node]) -> list[Node]:
    """Return calls in the order in which they are visited, the last one first."""
    return sorted((one for one in nodes if not one._erased), reverse=True)


def read_by(state: State) -> dict[Node, None]:
    """Return what the calls of a match read, themselves among them."""
    return dict.fromkeys(source for matched in state.nodes for source in matched.all_input_nodes)
