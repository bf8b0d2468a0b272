"""Which rule has which calls of a graph, and the partitions that follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch.fx import Graph, Node

from exirkit.passes.delegate.growing import circles_among, grown_partitions
from exirkit.patterns import FailureTrace, ProgramFacts

from .call_facts import CallFacts, is_result_of_several, obstacle_to_taking
from .demands import CompiledDemands, Refusal
from .limits import FoundPartition, limited, pieces
from .model import Partitioning

# After so many rounds in which one match of each circle is given up, all that are on circles are.
_ROUNDS = 8


@dataclass(frozen=True)
class Claim:
    """Calls that a rule has: one, or all of a match.

    Attributes:
        place: Place of the rule in the file.
        nodes: The calls.
    """

    place: int
    nodes: tuple[Node, ...]


@dataclass
class Decision:
    """What becomes of the calls of one graph.

    Attributes:
        calls: All calls, but for those that take a result out of several.
        claims: Which rule has a call, be it to take it or to leave it.
        circles: Matches that were given up, since they would wait for themselves or for other matches.
        partitions: What goes to backends, and what would if it were of another size, in the order of first calls.
    """

    calls: dict[Node, CallFacts] = field(default_factory=dict)
    claims: dict[Node, Claim] = field(default_factory=dict)
    circles: list[Claim] = field(default_factory=list)
    partitions: list[FoundPartition] = field(default_factory=list)


class Decider:
    """Decides by a partitioning.

    Args:
        partitioning: In which `check_partitioning` has found nothing wrong.
    """

    def __init__(self, partitioning: Partitioning) -> None:
        self.partitioning = partitioning

    @cached_property
    def rules(self) -> list[CompiledDemands]:
        """Compiled rules in the order in which they are asked."""
        title = self.partitioning.title_of
        return [CompiledDemands(place, rule, title(place)) for place, rule in self.partitioning.asked_rules]

    def decide(self, graph: Graph, facts: ProgramFacts) -> Decision:
        """Return what becomes of the calls of a graph, which stays as it is.

        Raises:
            ModelError: EK223, a condition has no answer for a call.
        """
        calls = [node for node in graph.nodes if node.op == "call_function" and not is_result_of_several(node)]
        decision = Decision({node: CallFacts(node, facts) for node in calls})
        given_up: set[tuple[int, Node]] = set()
        for round_number in range(_ROUNDS + 1):
            claims = list(self._claims(decision, facts, given_up))
            matches = [one for one in claims if len(one.nodes) > 1 and not self._leaves(one)]
            circles = circles_among(graph, [one.nodes for one in matches])
            if not circles:
                break
            # The last one of a circle is the one that was found by the rule that is asked last.
            dropped = [circle if round_number == _ROUNDS - 1 else circle[-1:] for circle in circles]
            lost = [matches[number] for circle in dropped for number in circle]
            given_up.update((one.place, one.nodes[0]) for one in lost)
            decision.circles += lost
        decision.claims = {node: one for one in claims for node in one.nodes}
        takers = {node: self._way_of(one) for node, one in decision.claims.items() if not self._leaves(one)}
        grown = grown_partitions(graph, takers, [one.nodes for one in matches], joins=self.partitioning.join)
        together = [one.nodes for one in matches]
        decision.partitions = [
            self._partition(piece, decision)
            for nodes in grown
            for piece in pieces(nodes, _inside(together, nodes), decision.calls, self.partitioning.maximum)
        ]
        return decision

    def _claims(self, decision: Decision, facts: ProgramFacts, given_up: set[tuple[int, Node]]) -> Iterator[Claim]:
        """Yield what each rule has, in the order in which rules are asked."""
        free = {node: None for node in decision.calls if obstacle_to_taking(node) is None}
        by_operator: dict[str, list[Node]] = {}
        for node in free:
            by_operator.setdefault(decision.calls[node].operator, []).append(node)
        position = {node: number for number, node in enumerate(free)}
        for rule in self.rules:
            named = [node for name, nodes in by_operator.items() if rule.names_operator(name) for node in nodes]
            for node in sorted(named, key=position.__getitem__):
                if node not in free or (rule.place, node) in given_up:
                    continue
                found = rule.pattern.match(node, facts) if rule.pattern is not None else (node,)
                nodes = tuple(one for one in found if not is_result_of_several(one))
                if not nodes or any(one not in free for one in nodes):
                    continue
                if all(rule.refusal(decision.calls[one]) is None for one in nodes):
                    for one in nodes:
                        del free[one]
                    yield Claim(rule.place, nodes)

    def _leaves(self, claim: Claim) -> bool:
        return self.partitioning.rules[claim.place].leave

    def _way_of(self, claim: Claim) -> tuple[str, tuple[tuple[str, str], ...]]:
        rule = self.partitioning.rules[claim.place]
        specs = self.partitioning.compile_specs if rule.compile_specs is None else rule.compile_specs
        return rule.backend or self.partitioning.backend, tuple(specs.items())

    def _partition(self, nodes: Sequence[Node], decision: Decision) -> FoundPartition:
        calls = tuple(decision.calls[node] for node in nodes if node in decision.calls)
        backend, specs = self._way_of(decision.claims[calls[0].node])
        rules = tuple(dict.fromkeys(decision.claims[call.node].place for call in calls))
        found = FoundPartition(backend, specs, tuple(nodes), rules, calls)
        return limited(found, self.partitioning.minimum, self.partitioning.maximum)


def _inside(matches: Sequence[Sequence[Node]], nodes: Sequence[Node]) -> list[Sequence[Node]]:
    members = set(nodes)
    return [one for one in matches if one[0] in members]


def nearest_refusals(decision: Decision, decider: Decider, node: Node) -> list[Refusal]:
    """Return how near each rule came that names the operator of a call, the nearest first."""
    call = decision.calls[node]
    found: list[Refusal] = []
    for rule in decider.rules:
        if rule.rule.leave or not rule.speaks_of(call.operator):
            continue
        refusal = rule.refusal(call)
        if rule.pattern is not None and refusal is None:
            refusal = Refusal(rule.place, 1, _mismatch(rule, decision, call))
        if refusal is not None:
            found.append(refusal)
    return sorted(found, key=lambda one: -one.met)


def _mismatch(rule: CompiledDemands, decision: Decision, call: CallFacts) -> str:
    """Return why no match of a pattern has a call."""
    assert rule.pattern is not None, "other rules have demands"
    if not rule.names_operator(call.operator):
        return f"no match of its pattern has the call; one starts at {' or '.join(sorted(rule.pattern.anchor_names))}"
    trace = FailureTrace()
    found = rule.pattern.match(call.node, call.facts, trace)
    if not found:
        return trace.failures[0].reason if trace.failures else "its pattern does not match"
    others = [one for one in found if one is not call.node and one in decision.claims]
    if others:
        return f"its pattern matches, but another rule has %{others[0].name}"
    return "its pattern matches, but not all calls of the match agree with the rule"
