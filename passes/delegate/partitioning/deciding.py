"""Which rule takes which calls of a graph, and the partitions that follow."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import torch
from torch.fx import Graph, Node

from exirkit.ir import ModelError, delegate_of, module_paths, underlying
from exirkit.passes.config.policies import agree, full_names, operator_names
from exirkit.passes.delegate.growing import cycles_among, grown_partitions
from exirkit.patterns import (
    DTYPES,
    Condition,
    FailureTrace,
    ProgramFacts,
    SourceText,
    StandalonePattern,
    Work,
    compile_condition,
    compile_pattern,
    work_of,
)

from .model import CONDITION_NAMES, Maximum, Minimum, Partitioning, RankRange, TakingRule

# What the units of limits are called in reasons.
_IN_WORDS = {"nodes": "calls", "nbytes": "bytes", "weights": "bytes of weights"}
_SHORT = {dtype: name for name, dtype in DTYPES.items()}


@dataclass
class CallFacts:
    """A call as rules see it.

    Attributes:
        node: The call.
        facts: Answers about its graph.
    """

    node: Node
    facts: ProgramFacts = field(repr=False)

    @cached_property
    def operator(self) -> str:
        """Name of the operator as rule books write it."""
        names = operator_names(self.node)
        return names[0] if names else str(self.node.target)

    @cached_property
    def results(self) -> list[torch.Tensor]:
        """The tensors that it computes, without contents."""
        return list(_tensors(self.node.meta.get("val")))

    @cached_property
    def arguments(self) -> list[torch.Tensor]:
        """The tensors that it is given, without contents."""
        return [one for source in self.node.all_input_nodes for one in _tensors(source.meta.get("val"))]

    @cached_property
    def nbytes(self) -> float:
        """Bytes of all results at the upper bounds of their sizes; infinite where there is none."""
        return sum(math.prod(map(self._upper, one.shape)) * one.element_size() for one in self.results)

    @cached_property
    def is_static(self) -> bool:
        """Whether the sizes of all results and arguments are known."""
        return all(isinstance(size, int) for one in (*self.results, *self.arguments) for size in one.shape)

    @cached_property
    def work(self) -> Work:
        """What it has to do; sizes that vary count as when the program was exported, unknown ones as nothing."""
        return work_of(self.node) or Work()

    def value_of(self, name: str) -> Any:
        """Return what a name of a condition stands for."""
        if name == "x":
            return self.node
        return self.nbytes if name == "nbytes" else getattr(self.work, name)

    def _upper(self, size: Any) -> float:
        return size if isinstance(size, int) else float(self.facts.range_of(size)[1])


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype as rules write it."""
    return _SHORT.get(dtype, str(dtype).removeprefix("torch."))


def why_not_delegable(node: Node) -> str | None:
    """Return why no delegate can take a call, whatever rules say; None if one can."""
    if delegate_of(node) is not None:
        return "it calls a delegate"
    if not hasattr(underlying(node.target), "_schema"):
        return "it is not a call of an operator"
    if next(_tensors(node.meta.get("val")), None) is None:
        return "it computes no tensor, and delegates hand back nothing else"
    return None


def is_result_of_several(node: Node) -> bool:
    """Return whether a node takes a result out of several: it goes where they are computed."""
    return node.target is operator.getitem


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Sequence):
        for one in value:
            if isinstance(one, torch.Tensor):
                yield one


Check = Callable[[CallFacts], str | None]
"""Returns what a call is instead of what is asked, or None if it is that."""


@dataclass(frozen=True)
class Rejection:
    """How near a rule came to a call.

    Attributes:
        place: Place of the rule in the file.
        met: How many demands the call meets before the one that it does not.
        reason: Which one that is, and what the call is.
    """

    place: int
    met: int
    reason: str


class CompiledDemands:
    """A rule, ready to be asked.

    Args:
        place: Its place in the file.
        rule: The rule, of a partitioning in which `check_partitioning` has found nothing wrong.
        title: What messages call it.
    """

    def __init__(self, place: int, rule: TakingRule, title: str) -> None:
        self.place = place
        self.rule = rule
        self._names = full_names(rule.op)
        self._means = cache(lambda name: agree(self._names, [name]))
        self.pattern = _pattern_of(rule, title)
        self._checks = list(_checks_of(rule, title))

    def names_operator(self, name: str) -> bool:
        """Return whether calls of an operator can be meant; of a rule with a pattern, whether a match starts there."""
        if self.pattern is not None:
            return not self.pattern.anchor_names or name in self.pattern.anchor_names
        return not self._names or self._means(name)

    def speaks_of(self, name: str) -> bool:
        """Return whether a rule names an operator at all, be it inside a pattern."""
        if self.pattern is not None:
            return name in self.pattern.operators
        return self.names_operator(name)

    def rejection(self, call: CallFacts) -> Rejection | None:
        """Return the first demand that a call does not meet, or None if it meets all; the operator is not asked.

        Raises:
            ModelError: EK223, a condition has no answer for the call.
        """
        for met, check in enumerate(self._checks):
            found = check(call)
            if found is not None:
                return Rejection(self.place, met + 1, found)
        return None


def _pattern_of(rule: TakingRule, title: str) -> StandalonePattern | None:
    if rule.match is None:
        return None
    place = f"{title} of the partitioning"
    return compile_pattern(
        SourceText(rule.match, place),
        {name: SourceText(text, place) for name, text in rule.vars.items()},
        [SourceText(text, place) for text in rule.where],
    )


def _checks_of(rule: TakingRule, title: str) -> Iterator[Check]:
    if rule.module:
        yield lambda call: _module_unlike(rule, call)
    if rule.dtype:
        yield _dtype_check("result", [DTYPES[name] for name in rule.dtype], lambda call: call.results)
    if rule.argument_dtype:
        yield _dtype_check("argument", [DTYPES[name] for name in rule.argument_dtype], lambda call: call.arguments)
    if rule.rank is not None:
        yield _rank_check("result", rule.rank, lambda call: call.results)
    if rule.argument_rank is not None:
        yield _rank_check("argument", rule.argument_rank, lambda call: call.arguments)
    if rule.static is not None:
        otherwise = f"sizes that {'vary' if rule.static else 'are all known'}"
        yield lambda call: None if call.is_static == rule.static else otherwise
    if rule.nbytes is not None:
        yield lambda call: _nbytes_outside(rule, call)
    for text in rule.where if rule.match is None else ():
        yield _condition_check(compile_condition(SourceText(text, f"{title} of the partitioning"), CONDITION_NAMES))


def _module_unlike(rule: TakingRule, call: CallFacts) -> str | None:
    paths = module_paths(call.node)
    if agree(rule.module, paths):
        return None
    return f"it comes from {paths[-1] or 'the model itself' if paths else 'no module'}, not from {_listed(rule.module)}"


def _dtype_check(what: str, wanted: list[torch.dtype], values: Callable[[CallFacts], Iterable[torch.Tensor]]) -> Check:
    names = _listed(map(dtype_name, wanted))

    def check(call: CallFacts) -> str | None:
        found = next((one.dtype for one in values(call) if one.dtype not in wanted), None)
        return None if found is None else f"{what} of {dtype_name(found)}, not {names}"

    return check


def _rank_check(what: str, wanted: RankRange, values: Callable[[CallFacts], Iterable[torch.Tensor]]) -> Check:
    def check(call: CallFacts) -> str | None:
        found = next((one.ndim for one in values(call) if not wanted.admits(one.ndim)), None)
        return None if found is None else f"{what} of {found} dimensions, not {_range_text(wanted)}"

    return check


def _nbytes_outside(rule: TakingRule, call: CallFacts) -> str | None:
    assert rule.nbytes is not None, "the rule asks for it"
    if call.nbytes == float("inf"):
        return "results whose sizes have no bound"
    if rule.nbytes.admits(int(call.nbytes)):
        return None
    return f"results of {int(call.nbytes)} bytes, not {_range_text(rule.nbytes)}"


def _condition_check(condition: Condition) -> Check:
    def check(call: CallFacts) -> str | None:
        names = {name: call.value_of(name) for name in condition.needs}
        try:
            holds = condition.holds(call.facts, **names)
        except ModelError as error:
            error.annotate(f"the call is %{call.node.name} of {call.operator}")
            raise
        if holds:
            return None
        numbers = ", ".join(f"{name} is {value}" for name, value in sorted(names.items()) if name != "x")
        return f"`{condition.text.value}` does not hold" + (f": {numbers}" if numbers else "")

    return check


def _range_text(found: object) -> str:
    low, high = getattr(found, "at_least", 0), getattr(found, "at_most", None)
    if high is None:
        return f"at least {low}"
    return f"at most {high}" if not low else f"{low} to {high}"


def _listed(names: Iterable[str]) -> str:
    return " or ".join(names)


_STORED = ("param", "buffer", "const")


@dataclass(frozen=True)
class FoundPartition:
    """Calls that go to a backend together.

    Attributes:
        backend: Name of the backend.
        compile_specs: What is compiled for: keys and values.
        nodes: The calls, in graph order.
        rules: Places of the rules that took them, in order.
        calls: The same as rules see them, without those that take a result out of several.
        stays: Why it stays in the program, as the sort of reason and the reason; None if it is taken.
    """

    backend: str
    compile_specs: tuple[tuple[str, str], ...]
    nodes: tuple[Node, ...]
    rules: tuple[int, ...]
    calls: tuple[CallFacts, ...] = field(repr=False)
    stays: tuple[str, str] | None = None

    def size(self, unit: str) -> float:
        """Return how many `nodes`, `elements`, `macs`, `nbytes` or bytes of `weights` its calls have."""
        return size_of(self.calls, unit)


def size_of(calls: Sequence[CallFacts], unit: str) -> float:
    """Return how much calls are together."""
    if unit == "nodes":
        return len(calls)
    if unit == "weights":
        return sum(_stored_nbytes(calls).values())
    return sum(float(call.value_of(unit)) for call in calls)


def limited(partition: FoundPartition, minimum: Minimum, maximum: Maximum) -> FoundPartition:
    """Return a partition with the reason why it stays, if it is too small or too large."""
    for unit in Minimum.model_fields:
        least = getattr(minimum, unit)
        # What is not asked for is not computed.
        if least and (size := partition.size(unit)) < least:
            text = f"its partition is below the minimum: {int(size)} of {least} {_IN_WORDS.get(unit, unit)}"
            return replace(partition, stays=("too_small", text))
    for unit, most in _limits(maximum).items():
        size = partition.size(unit)
        if size > most:
            amount = "an unknown number" if math.isinf(size) else int(size)
            text = f"it is above the maximum of a partition by itself: {amount} of {most} {_IN_WORDS.get(unit, unit)}"
            return replace(partition, stays=("too_large", text))
    return partition


def fewest(partitions: Sequence[FoundPartition], most: int | None) -> list[FoundPartition]:
    """Return partitions, of which those that compute the least stay if there are more than so many."""
    taken = [one for one in partitions if one.stays is None]
    if most is None or len(taken) <= most:
        return list(partitions)
    ranked = sorted(taken, key=lambda one: (-one.size("macs"), -one.size("elements"), -one.size("nodes")))
    dropped = {id(one) for one in ranked[most:]}
    text = f"there are {len(taken)} partitions, {most} of which may be taken; those that compute the most are"
    return [replace(one, stays=("too_many", text)) if id(one) in dropped else one for one in partitions]


def pieces(
    nodes: Sequence[Node],
    together: Iterable[Sequence[Node]],
    calls: Mapping[Node, CallFacts],
    maximum: Maximum,
) -> list[list[Node]]:
    """Cut a partition into pieces that are not above the maximum, each as large as it can be.

    Pieces follow each other: none waits for a later one, so none waits for itself.

    Args:
        nodes: The partition, in graph order.
        together: Nodes that must not be parted, such as those of a match.
        calls: What is known of calls.
        maximum: What a piece may have. A unit that is above it by itself is a piece.
    """
    limits = _limits(maximum)
    if not limits or not any(size_of([calls[one] for one in nodes if one in calls], unit) > most
                             for unit, most in limits.items()):  # fmt: skip
        return [list(nodes)]
    made: list[list[Node]] = []
    load = _Load()
    for unit in _ordered_units(nodes, together):
        inside = [calls[one] for one in unit if one in calls]
        grown = load.with_calls(inside, limits)
        if not made or any(grown.sizes[name] > most for name, most in limits.items()):
            made.append([])
            grown = _Load().with_calls(inside, limits)
        made[-1] += unit
        load = grown
    place = {node: at for at, node in enumerate(nodes)}
    return [sorted(one, key=place.__getitem__) for one in made]


@dataclass(frozen=True)
class _Load:
    """What a piece has so far, so that it is not added up again for every call."""

    sizes: Mapping[str, float] = field(default_factory=dict)
    stored: Mapping[Node, int] = field(default_factory=dict)

    def with_calls(self, calls: Sequence[CallFacts], units: Iterable[str]) -> _Load:
        """Return the load with further calls."""
        new = {node: nbytes for node, nbytes in _stored_nbytes(calls).items() if node not in self.stored}
        more = {unit: sum(new.values()) if unit == "weights" else size_of(calls, unit) for unit in units}
        sizes = {unit: self.sizes.get(unit, 0) + size for unit, size in more.items()}
        return _Load(sizes, {**self.stored, **new} if new else self.stored)


def _ordered_units(nodes: Sequence[Node], together: Iterable[Sequence[Node]]) -> list[list[Node]]:
    """Return what must not be parted, each before what uses it; of several that can be next, the first in the graph."""
    import networkx

    unit_of: dict[Node, int] = {}
    for number, match in enumerate(together):
        unit_of.update((node, number) for node in match)
    for node in nodes:
        # The results of a call go where it goes.
        source = node.args[0] if is_result_of_several(node) else None
        known = unit_of.get(source) if isinstance(source, Node) else None
        if node not in unit_of:
            unit_of[node] = known if known is not None else -1 - len(unit_of)
    units: dict[int, list[Node]] = {}
    for node in nodes:
        units.setdefault(unit_of[node], []).append(node)
    inside = set(nodes)
    waiting = networkx.DiGraph()
    waiting.add_nodes_from(units)
    for node in nodes:
        sources = (unit_of[source] for source in node.all_input_nodes if source in inside)
        waiting.add_edges_from((source, unit_of[node]) for source in sources if source != unit_of[node])
    place = {key: at for at, key in enumerate(units)}
    # Matches that wait for each other were given up before.
    return [units[key] for key in networkx.lexicographical_topological_sort(waiting, key=place.__getitem__)]


def _limits(maximum: Maximum) -> dict[str, int]:
    units = {unit: getattr(maximum, unit) for unit in ("nodes", "nbytes", "weights")}
    return {unit: most for unit, most in units.items() if most is not None}


def _stored_nbytes(calls: Sequence[CallFacts]) -> dict[Node, int]:
    """Return the bytes of parameters, buffers and constants that calls read, each once."""
    found: dict[Node, int] = {}
    for call in calls:
        for source in call.node.all_input_nodes:
            value = source.meta.get("val")
            if source.op != "placeholder" or not isinstance(value, torch.Tensor) or source in found:
                continue
            if any(call.facts.is_kind(source, kind) for kind in _STORED):
                found[source] = int(value.numel()) * value.element_size()
    return found


# After so many rounds in which one match of each cycle is given up, all that are on cycles are.
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
        cycles: Matches that were given up, since they would wait for themselves or for other matches.
        partitions: What goes to backends, and what would if it were of another size, in the order of first calls.
    """

    calls: dict[Node, CallFacts] = field(default_factory=dict)
    claims: dict[Node, Claim] = field(default_factory=dict)
    cycles: list[Claim] = field(default_factory=list)
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
            cycles = cycles_among(graph, [one.nodes for one in matches])
            if not cycles:
                break
            # The last one of a cycle is the one that was found by the rule that is asked last.
            dropped = [cycle if round_number == _ROUNDS - 1 else cycle[-1:] for cycle in cycles]
            lost = [matches[number] for cycle in dropped for number in cycle]
            given_up.update((one.place, one.nodes[0]) for one in lost)
            decision.cycles += lost
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
        free = {node: None for node in decision.calls if why_not_delegable(node) is None}
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
                if all(rule.rejection(decision.calls[one]) is None for one in nodes):
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


def nearest_rejections(decision: Decision, decider: Decider, node: Node) -> list[Rejection]:
    """Return how near each rule came that names the operator of a call, the nearest first."""
    call = decision.calls[node]
    found: list[Rejection] = []
    for rule in decider.rules:
        if rule.rule.leave or not rule.speaks_of(call.operator):
            continue
        rejection = rule.rejection(call)
        if rule.pattern is not None and rejection is None:
            rejection = Rejection(rule.place, 1, _mismatch(rule, decision, call))
        if rejection is not None:
            found.append(rejection)
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
