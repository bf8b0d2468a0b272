"""Which values of a graph a quantizer quantizes, and which of them share their parameters."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from networkx.utils import UnionFind
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from exirkit.ir import (
    Diagnostic,
    GraphEditor,
    ModelError,
    choices_hint,
    locate,
    module_paths,
    module_types,
    program_of_module,
)
from exirkit.passes.config.policies import agree, full_names, operator_names
from exirkit.patterns import FailureTrace, ProgramFacts, SourceText, StandalonePattern

from .model import RESULT, AnnotatingRule, ModuleSelector, QuantizedAs, QuantizerPolicy, compiled, holds

CARRIED = "carry"
"""Stands for the rule of calls that carry on the parameters of what they are given."""


@dataclass(frozen=True)
class Point:
    """Where a value is quantized.

    Attributes:
        value: The node that computes or stores the value.
        reader: The call that reads it quantized; None if it is quantized as it is computed, for all that read it.
    """

    value: Node
    reader: Node | None = None

    def __str__(self) -> str:
        return f"%{self.value.name}" + (f" as %{self.reader.name} reads it" if self.reader else "")


@dataclass(frozen=True)
class Annotation:
    """What a rule says of the calls of one match.

    Attributes:
        rule: Name of the rule, or `carry`.
        calls: The calls, the last one first.
        points: Where values are quantized, by the names of the rule.
        ways: How, by name; calls that carry parameters have none of their own.
    """

    rule: str
    calls: tuple[Node, ...]
    points: Mapping[str, tuple[Point, ...]]
    ways: Mapping[str, QuantizedAs] = field(default_factory=dict)


@dataclass(frozen=True)
class QuantizationPlan:
    """What a quantizer says of a graph.

    Attributes:
        annotations: What its rules say, in the order of rules, then what is carried on, in graph order.
        ways: How values are quantized, at each point of which a rule says it.
        groups: Points that share their parameters, under the first of each group; a point by itself as well.
    """

    annotations: tuple[Annotation, ...]
    ways: Mapping[Point, QuantizedAs]
    groups: Mapping[Point, tuple[Point, ...]]

    @cached_property
    def by_call(self) -> dict[Node, Annotation]:
        """The annotation of each call that has one."""
        return {call: one for one in self.annotations for call in one.calls}

    @cached_property
    def group_of(self) -> dict[Point, Point]:
        """The first point of the group of each point."""
        return {point: first for first, group in self.groups.items() for point in group}

    def way_at(self, point: Point) -> QuantizedAs:
        """Return how the value at a point is quantized."""
        return self.ways[self.group_of[point]]


class Annotator:
    """A quantizer, ready for graphs.

    Args:
        policy: The quantizer.
        settings: Choices of the user.

    Raises:
        UsageError: EK440, there is no such setting.
        ModelError: EK440 and EK210 and following, the policy was made in Python and is wrong.
    """

    def __init__(self, policy: QuantizerPolicy, settings: Mapping[str, bool] | None = None) -> None:
        self.policy = policy
        self.settings = policy.chosen(settings or {})
        self.carry = frozenset(full_names(policy.carry))
        self.patterns = {
            rule.name: compiled(policy, place, lambda path, text: SourceText(text, f"quantizer {policy.id}"))
            for place, rule in enumerate(policy.rules)
        }

    @property
    def rules(self) -> Iterator[tuple[AnnotatingRule, StandalonePattern]]:
        """The rules that the settings leave, with their patterns."""
        for rule in self.policy.rules:
            if holds(rule.when, self.settings):
                yield rule, self.patterns[rule.name]

    def way(self, spec: str) -> QuantizedAs | None:
        """Return what an entry of `specs` is with these settings; None if the value stays as it is."""
        return next((one for one in self.policy.specs[spec] if holds(one.when, self.settings)), None)

    def carries(self, call: Node) -> bool:
        """Whether a call only moves or chooses elements."""
        return bool(self.carry.intersection(operator_names(call)))

    def plan(self, module: GraphModule) -> QuantizationPlan:
        """Return what is quantized in a graph; the graph is not changed.

        Args:
            module: What `ExportedProgram.module()` gives.

        Raises:
            ModelError: EK469, values that share their parameters are to be quantized differently; EK477, a selector
                means no module of the model.
        """
        search = Search(self, module)
        _raise(list(self._idle_selectors(module)))
        for rule, pattern in self.rules:
            for call in search.calls:
                search.annotate(rule, pattern, call)
        search.carry_on()
        return search.finished()

    def _idle_selectors(self, module: GraphModule) -> Iterator[Diagnostic]:
        paths = sorted({path for node in module.graph.nodes for path in module_paths(node) if path})
        types = sorted({name for node in module.graph.nodes for name in module_types(node)})
        used: list[tuple[str, ModuleSelector]] = [(f"rule {rule.name!r}", rule) for rule, _ in self.rules]
        used += [("`leave`", one) for one in self.policy.leave]
        for title, selector in used:
            names = f"{title} of quantizer {self.policy.id} names"
            for glob in selector.module:
                if not agree([glob], paths):
                    message = f"{names} module {glob!r}, which the model does not have"
                    yield Diagnostic.of("EK477", message, hint=choices_hint(glob, paths, "its modules are"))
            for glob in selector.type:
                if not _has_type([glob], types):
                    message = f"{names} class {glob!r}, of which the model has no module"
                    short = sorted({name.rpartition(".")[2] for name in types})
                    yield Diagnostic.of("EK477", message, hint=choices_hint(glob, short, "its classes are"))


class Search:
    """The matches of rules in one graph, while they are looked for.

    Args:
        annotator: The quantizer.
        module: The graph; a copy of it is searched, in which stored tensors are inputs.
    """

    def __init__(self, annotator: Annotator, module: GraphModule) -> None:
        self.annotator, self.module = annotator, module
        program = program_of_module(module)
        self.facts = ProgramFacts(GraphEditor(program))
        calls = [node for node in program.graph.nodes if node.op == "call_function"]
        originals = [node for node in module.graph.nodes if node.op == "call_function"]
        self.original: dict[Node, Node] = dict(zip(calls, originals, strict=True))
        for copied, node in list(self.original.items()):
            pairs = zip(_nodes_in([copied.args, copied.kwargs]), _nodes_in([node.args, node.kwargs]), strict=True)
            self.original.update(pairs)
        used = _used(program.graph)
        # What nothing uses is not computed either, once the model is lowered.
        self.calls = [call for call in calls if call in used]
        self.claims: dict[Node, str] = {}
        self.annotations: list[Annotation] = []
        self._shared: list[tuple[Point, ...]] = []
        self._joined: list[Point] = []

    def annotate(self, rule: AnnotatingRule, pattern: StandalonePattern, call: Node) -> None:
        """Annotate the match of a rule that ends at a call, if there is one and no other rule has its calls."""
        if self._mismatch(rule, pattern, call, None) is not None:
            return
        found = pattern.find(call, self.facts)
        assert found is not None, "nothing stands against it"
        names = {name: self._points(found.calls, found.root, name, found.names.get(name)) for name in rule.annotate}
        ways = {name: way for name, spec in rule.annotate.items() if (way := self.annotator.way(spec)) is not None}
        points = {name: names[name] for name in ways if names[name]}
        self.claims.update(dict.fromkeys(found.calls, rule.name))
        calls = tuple(self.original[one] for one in found.calls)
        self.annotations.append(Annotation(rule.name, calls, points, {name: ways[name] for name in points}))
        self._shared += [tuple(point for name in group for point in points.get(name, ())) for group in rule.share]
        self._joined += [point for name in rule.join for point in points.get(name, ())]

    def why_not(self, rule: AnnotatingRule, pattern: StandalonePattern, call: Node) -> str | None:
        """Return what stands against a match of a rule that ends at a call; None if nothing does."""
        return self._mismatch(rule, pattern, call, FailureTrace())

    def _mismatch(
        self, rule: AnnotatingRule, pattern: StandalonePattern, call: Node, trace: FailureTrace | None
    ) -> str | None:
        found = pattern.find(call, self.facts, trace)
        if found is None:
            return trace.failures[0].reason if trace and trace.failures else "its pattern does not match"
        for one in found.calls:
            if one in self.claims:
                return f"its pattern matches, but rule {self.claims[one]!r} has %{self.original[one].name}"
            if self._is_left(one):
                return f"its pattern matches, but `leave` means the module of %{self.original[one].name}"
            if (rule.module or rule.type) and not is_from(one, rule):
                return f"its pattern matches, but %{self.original[one].name} comes from another module"
        for name in rule.annotate:
            for point in self._points(found.calls, found.root, name, found.names.get(name)):
                if (dtype := _dtype_of(point.value)) is None or not dtype.is_floating_point:
                    return f"%{point.value.name} is {dtype or 'not a tensor'}: only floats are quantized"
        return None

    def _is_left(self, call: Node) -> bool:
        return any(is_from(call, one) for one in self.annotator.policy.leave)

    def _points(self, calls: Sequence[Node], root: Node, name: str, value: Any) -> tuple[Point, ...]:
        """Return where the value of a name is quantized: where calls of the match read it."""
        if name == RESULT:
            return (Point(self.original[root]),)
        read = [
            Point(self.original[one], self.original[call])
            for one in _nodes_in(value) for call in calls if one in call.all_input_nodes
        ]  # fmt: skip
        return tuple(dict.fromkeys(read))

    def carry_on(self) -> None:
        """Annotate calls that carry the parameters of what they are given, if it is quantized."""
        quantized = {point for one in self.annotations for group in one.points.values() for point in group}
        for call in self.calls:
            source = call.args[0] if call.args else None
            if call in self.claims or not self.annotator.carries(call) or not isinstance(source, Node):
                continue
            node, value = self.original[call], self.original[source]
            if Point(value) not in quantized or self._is_left(call) or _dtype_of(node) is None:
                continue
            points = {"input": (Point(value, node),), RESULT: (Point(node),)}
            self.claims[call] = CARRIED
            self.annotations.append(Annotation(CARRIED, (node,), points))
            self._shared.append((Point(value), Point(value, node), Point(node)))
            quantized.add(Point(node))

    def finished(self) -> QuantizationPlan:
        """Return all annotations, with the points that share their parameters.

        Raises:
            ModelError: EK469, points of a group are to be quantized differently.
        """
        rules = {point: one for one in self.annotations for group in one.points.values() for point in group}
        ways = {
            point: one.ways[name]
            for one in self.annotations for name, group in one.points.items() if name in one.ways for point in group
        }  # fmt: skip
        sets: UnionFind[Point] = UnionFind(rules)
        for group in self._shared:
            if len(group) > 1:
                sets.union(*group)
        for point in self._joined:
            if Point(point.value) in rules:
                sets.union(Point(point.value), point)
        # The first of a group is one of which a rule says how it is quantized: the one that torchao meets first. What
        # refers to one that it has not met is an error of torchao.
        met = {node: place for place, node in enumerate(self.module.graph.nodes)}
        listed_rules = {point: place for place, point in enumerate(rules)}

        def order(point: Point) -> tuple[bool, int, bool, int]:
            place = met[point.reader or point.value]
            return point not in ways, place, point.reader is None, listed_rules[point]

        groups: dict[Point, tuple[Point, ...]] = {}
        found: list[Diagnostic] = []
        for members in sets.to_sets():
            listed = sorted(members, key=order)
            groups[listed[0]] = tuple(listed)
            found += _conflicts([one for one in listed if one in ways], ways, rules)
        _raise(found)
        return QuantizationPlan(tuple(self.annotations), ways, groups)


def _conflicts(
    points: Sequence[Point], ways: Mapping[Point, QuantizedAs], rules: Mapping[Point, Annotation]
) -> Iterator[Diagnostic]:
    first = points[0]
    for other in points[1:]:
        if _same_way(ways[first], ways[other]):
            continue
        yield Diagnostic.of(
            "EK469",
            f"{other} shares the parameters of {first}, but is to be quantized differently",
            location=locate(other.reader or other.value),
            notes=tuple(
                f"rule {rules[one].rule!r} quantizes {one} as {ways[one].describe()}" for one in (first, other)
            ),
        )  # fmt: skip
        return


def _same_way(one: QuantizedAs, other: QuantizedAs) -> bool:
    return one.model_copy(update={"when": None}) == other.model_copy(update={"when": None})


def is_from(node: Node, selector: ModuleSelector) -> bool:
    """Whether a node comes from a module that a selector means."""
    which = slice(-1, None) if selector.own else slice(None)
    if selector.module and not agree(selector.module, module_paths(node)[which]):
        return False
    return not selector.type or _has_type(selector.type, module_types(node)[which])


def _has_type(globs: Iterable[str], types: Iterable[str]) -> bool:
    """Whether a class is meant, by its full name or by its own."""
    return any(
        fnmatch.fnmatchcase(name if "." in glob else name.rpartition(".")[2], glob) for glob in globs for name in types
    )


def _used(graph: Graph) -> set[Node]:
    """Return the nodes of which a result of the graph, or an effect, depends."""
    used: set[Node] = set()
    for node in reversed(graph.nodes):
        if node in used or node.op == "output" or node.is_impure():
            used.update([node, *node.all_input_nodes])
    return used


def _nodes_in(value: Any) -> list[Node]:
    """Return the nodes in arguments, one that stands twice twice."""
    found: list[Node] = []
    map_arg(value, lambda node: found.append(node) or node)  # type: ignore[func-returns-value]
    return found


def _dtype_of(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _raise(found: Sequence[Diagnostic]) -> None:
    if found:
        raise ModelError(list(found))
