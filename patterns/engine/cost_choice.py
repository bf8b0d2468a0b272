"""Choosing by cost: of the rewrites that are possible at a node the cheapest one on the target, if it gains anything.

A rewrite is made, its calls are estimated by the target description, and it is undone again, unless it is the last one
to be estimated and gains most. What it gains depends on shapes and numbers alone, so that sites which are alike are
estimated once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import operators_with
from exirkit.patterns.engine.application import Applied, RejectedError, RuleApplication
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.matching.state import State
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.operators.targets import Target

LEAST_SHARE = 0.05
"""Share of the time of calls that a gain has to be: descriptions are measured, and less is not certain to be gained."""

Room = Callable[[Node], float]
"""Bytes of memory that the results of a rewrite may take at a node at once."""


@dataclass(frozen=True)
class Estimate:
    """What a rewrite would bring.

    Attributes:
        gained_ns: Nanoseconds that every run of the program would take less.
        scratch: Bytes that its calls need at once, results included.
        more_calls: How many calls it makes beyond those that it replaces; reshapes, which need no kernel, do not count.
    """

    gained_ns: float
    scratch: float
    more_calls: int


Estimates = dict[Any, "Estimate | str"]
"""Estimates by rule, numbers of its `tune`, and what the site is like; the reason where there is none."""


@dataclass(frozen=True)
class Choice:
    """A rewrite that was estimated, and the match that it is of."""

    rule: CompiledRule
    state: State
    tuning: Mapping[str, Any]
    estimate: Estimate


Judge = Callable[[Applied], None]
"""Examines a rewrite that has been made; what it raises undoes it."""

Make = Callable[[CompiledRule, State, Mapping[str, Any], Judge], None]
"""Makes a rewrite for good, if the judge lets it stand."""


class _Unwanted(Exception):  # noqa: N818 - the way out of a transaction that is to be undone
    pass


class CostChoice:
    """Estimates rewrites in one program.

    Args:
        application: Makes them.
        target: What calls cost.
        room: Bytes that a rewrite may use at a node; without it there is no limit.
        known: Estimates of earlier runs on the same program, to which new ones are added.
        adds_calls: Whether a rewrite may make more calls than it replaces: each one takes space in the file.
    """

    def __init__(
        self,
        application: RuleApplication,
        target: Target,
        room: Room | None = None,
        known: Estimates | None = None,
        *,
        adds_calls: bool = True,
    ) -> None:
        self.application = application
        self.target = target
        self.room = room
        self.adds_calls = adds_calls
        self._known = {} if known is None else known

    def best(self, rules: Sequence[CompiledRule], node: Node, make: Make | None = None) -> Choice | None:
        """Return the rewrite that gains most, or None if none gains anything or fits.

        Args:
            rules: Rules that may match.
            node: The call.
            make: Makes the rewrite that is estimated last, which is not undone then if it is what is returned.

        Raises:
            RejectedError: `make` raises it for a rewrite that gains most.
        """
        room = math.inf if self.room is None else self.room(node)
        matches = [(rule, state) for rule in rules if (state := self.application.match(rule, node)) is not None]
        best: Choice | None = None

        def is_best(estimate: Estimate | str) -> bool:
            # Of equals the first one, so that the order of rules and numbers decides.
            return (
                isinstance(estimate, Estimate)
                and estimate.gained_ns > 0
                and self._fits_in(estimate, room)
                and (best is None or estimate.gained_ns >= best.estimate.gained_ns)
            )

        # The first rule asks for most, and mostly gains most: what is estimated last need not be undone.
        for rule, state in reversed(matches):
            makes = make if state is matches[0][1] and rule.rule.measure != "once" else None
            for tuning in rule.tunings:
                estimate = self._estimated(rule, state, tuning, is_best, makes)
                if is_best(estimate):
                    assert isinstance(estimate, Estimate), "it has gained something"
                    best = Choice(rule, state, tuning, estimate)
                # Later numbers are for less memory, not for less time.
                if not isinstance(estimate, Estimate) or estimate.gained_ns <= 0 or self._fits_in(estimate, room):
                    break
        return best

    def estimate(self, rule: CompiledRule, state: State, tuning: Mapping[str, Any]) -> Estimate | str:
        """Return what rewriting a match would bring, or why it is not rewritten."""
        return self._estimated(rule, state, tuning, lambda _: False, None)

    def _estimated(
        self,
        rule: CompiledRule,
        state: State,
        tuning: Mapping[str, Any],
        is_wanted: Callable[[Estimate], bool],
        make: Make | None,
    ) -> Estimate | str:
        key = (rule.id, *tuning.items(), _likeness(state))
        if key not in self._known:
            self._known[key] = self._tried(rule, state, tuning, is_wanted, make)
        return self._known[key]

    def costs_of(self, state: State) -> dict[Node, float]:
        """Return what the calls of a match cost."""
        return {one: self.target.cost_of(one) for one in state.nodes}

    def change(self, before: Mapping[Node, float], done: Applied) -> tuple[float, float]:
        """Return what a rewrite has saved of the calls of its match, and what the calls that it has made cost."""
        saved = sum(cost for one, cost in before.items() if one._erased)
        return saved, sum(map(self.target.cost_of, done.made))

    def fits(self, estimate: Estimate, node: Node) -> bool:
        """Whether there is memory at a node, and space in the file, for what a rewrite makes."""
        return self._fits_in(estimate, math.inf if self.room is None else self.room(node))

    def _fits_in(self, estimate: Estimate, room: float) -> bool:
        return estimate.scratch <= room and (self.adds_calls or estimate.more_calls <= 0)

    def _tried(
        self,
        rule: CompiledRule,
        state: State,
        tuning: Mapping[str, Any],
        is_wanted: Callable[[Estimate], bool],
        make: Make | None,
    ) -> Estimate | str:
        """Make a rewrite, and undo it if it cannot be made for good or is not wanted."""
        before = self.costs_of(state)
        found: Estimate | None = None

        def judge(done: Applied) -> None:
            nonlocal found
            saved, spent = self.change(before, done)
            # A kernel that is missing costs more than anything; one that is missing on both sides decides nothing.
            gained = -math.inf if math.isnan(saved - spent) else saved - spent
            if 0 < gained < LEAST_SHARE * saved:
                gained = 0.0
            more_calls = sum(map(_is_call, done.made)) - sum(_is_call(one) for one in before if one._erased)
            found = Estimate(gained, _scratch(done.made), more_calls)
            if make is None or not is_wanted(found):
                raise _Unwanted

        try:
            if make is None:
                self.application.apply(rule, state, tuning=tuning, then=judge)
            else:
                make(rule, state, tuning, judge)
        except _Unwanted:
            pass
        except RejectedError as rejected:
            if found is not None:
                raise
            return rejected.reason
        assert found is not None, "every attempt is judged"
        return found


def _likeness(state: State) -> Any:
    """Return what the gain of a rewrite depends on: operators, shapes and numbers, not which nodes they are."""
    names = tuple((name, _description(value)) for name, value in state.names.items() if not name.startswith("$"))
    nodes = tuple((one.target, len(one.users), _description(one)) for one in state.nodes)
    return names, nodes


def _description(value: Any) -> Any:
    if isinstance(value, Node):
        seen = value.meta.get("val")
        return (value.op == "placeholder", _description(seen))
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(map(str, value.shape)))
    if isinstance(value, list | tuple):
        return tuple(map(_description, value))
    return (type(value), str(value))


def _scratch(made: Sequence[Node]) -> float:
    """Return the most bytes that calls need at once, if each result lives until its last use among them."""
    order = sorted(made)
    place = {node: index for index, node in enumerate(order)}
    bases = {node: _base(node, place) for node in order}
    last = dict(place)
    for node in order:
        for user in node.users:
            last[bases[node]] = max(last[bases[node]], place.get(user, len(order)))
    sizes = {node: _nbytes(node) if bases[node] is node else 0.0 for node in order}
    if math.inf in sizes.values():
        return math.inf
    dying = [0.0] * (len(order) + 1)
    for node in order:
        dying[last[node]] += sizes[node]
    most = live = 0.0
    for node, gone in zip(order, dying, strict=False):
        live += sizes[node]
        most = max(most, live)
        live -= gone
    return most


def _base(node: Node, place: Mapping[Node, int]) -> Node:
    """Return the call in whose memory a reshaped result stays."""
    while True:
        source = node.args[0] if node.args else None
        if not _is_reshape(node) or not isinstance(source, Node) or source not in place:
            return node
        node = source


def _is_call(node: Node) -> bool:
    return node.op == "call_function" and not _is_reshape(node)


def _is_reshape(node: Node) -> bool:
    op = getattr(node.target, "_op", node.target)
    return op in operators_with("views") and name_of(op) == "aten.view_copy.default"


def _nbytes(node: Node) -> float:
    values = node.meta.get("val")
    tensors = [
        one for one in (values if isinstance(values, list | tuple) else [values]) if isinstance(one, torch.Tensor)
    ]
    total = 0.0
    for one in tensors:
        sizes = [size.node.hint if isinstance(size, torch.SymInt) else size for size in one.shape]
        total += math.inf if any(size is None for size in sizes) else math.prod(sizes) * one.element_size()
    return total
