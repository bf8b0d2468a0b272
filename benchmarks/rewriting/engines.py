"""The engines that the rewriting benchmark compares, each doing the same rewrites in its own idiom.

Every engine is prepared with the rules once; a run rewrites one program in place and returns the sites that it found,
as pairs of the rule's name and the name of the replaced node.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

import torch
from torch._inductor import pattern_matcher as inductor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.subgraph_rewriter import replace_pattern_with_filters

from benchmarks.rewriting.graphs import SIDE
from benchmarks.rewriting.rules import FusionRule, Term, book_text, is_float32_of_one_size, traced
from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns import RuleEngine, parse_book

Found = list[tuple[str, str]]
FLOOR = "edits alone"


class Engine(Protocol):
    """Something that applies rules.

    Attributes:
        is_eager: It gets an ordinary module, whose code is generated at every `recompile`; the others get one whose
            code is generated when it is next needed, and so are not charged for that.
    """

    is_eager: bool

    def __init__(self, rules: tuple[FusionRule, ...]) -> None: ...

    def prepare(self, program: ExportedProgram) -> None:
        """Examine the program that will be rewritten; this time is not counted."""
        return

    def run(self, program: ExportedProgram) -> Found:
        """Rewrite a program in place and return the sites."""
        ...


class Ours(Engine):
    """The rule engine: types checked, values inferred, results verified, everything in a transaction."""

    is_eager = False

    def __init__(self, rules: tuple[FusionRule, ...]) -> None:
        self.engine = RuleEngine(parse_book(book_text(rules)).require_valid().rules)

    def run(self, program: ExportedProgram) -> Found:
        report = self.engine.run(GraphEditor(program))
        return [(application.rule, application.root) for application in report.journal]


class FxRewriter(Engine):
    """`torch.fx` `replace_pattern_with_filters`, once for every rule; patterns are traced beforehand."""

    is_eager = True

    def __init__(self, rules: tuple[FusionRule, ...]) -> None:
        self.rules = [(rule, traced(rule, is_fused=False), traced(rule, is_fused=True)) for rule in rules]

    def run(self, program: ExportedProgram) -> Found:
        found: Found = []
        module = program.graph_module
        for rule, pattern, replacement in self.rules:
            replace_pattern_with_filters(module, pattern, replacement, [_recording_filter(rule.name, found)])
        return found


class LazyFxRewriter(FxRewriter):
    """The same without generating code after every rule, which torch can do for modules made in a private way."""

    is_eager = False


def _recording_filter(name: str, found: Found) -> Callable[..., bool]:
    def is_wanted(match: Any, original: Any, pattern: Any) -> bool:
        if not is_float32_of_one_size([_value(node) for node in match.placeholder_nodes]):
            return False
        found.append((name, match.returning_nodes[0].name))
        return True

    return is_wanted


def _value(node: Any) -> Any:
    # The rewriter records no values for the nodes that it makes; a later rule has to take them as they come.
    return node.meta.get("val") if isinstance(node, Node) else None


class InductorHandlers(Engine):
    """Inductor's `PatternMatcherPass` with patterns written by hand and handlers that edit the graph."""

    is_eager = False

    def __init__(self, rules: tuple[FusionRule, ...]) -> None:
        self.matcher = inductor.PatternMatcherPass(pass_name="benchmark")
        self.found: Found = []
        for rule in rules:
            self._register(rule)

    def _register(self, rule: FusionRule) -> None:
        def call(term: Term, args: tuple[Any, ...]) -> Any:
            users = inductor.MULTIPLE if term is rule.term else 1
            return inductor.CallFunction(term.op, *args, _users=users)

        def is_wanted(match: inductor.Match) -> bool:
            return is_float32_of_one_size([_value(match.kwargs[name]) for name in rule.variables])

        def rewrite(match: inductor.Match, **inputs: Node) -> None:
            root = match.output_node()
            self.found.append((rule.name, root.name))
            new = match.graph.call_function(rule.fused, tuple(inputs[name] for name in rule.variables))
            new.meta.update(root.meta)
            root.replace_all_uses_with(new)
            match.erase_nodes()

        pattern = rule.term.build(inductor.KeywordArg, call)
        inductor.register_graph_pattern(pattern, is_wanted, pass_dict=self.matcher)(rewrite)

    def run(self, program: ExportedProgram) -> Found:
        self.found = []
        self.matcher.apply(program.graph_module)
        return self.found


class InductorReplacements(Engine):
    """Inductor's `PatternMatcherPass` with `register_replacement`: pattern and replacement are traced functions."""

    is_eager = False

    def __init__(self, rules: tuple[FusionRule, ...]) -> None:
        self.matcher = inductor.PatternMatcherPass(pass_name="benchmark")
        self.found: Found = []
        for rule in rules:
            self._register(rule)

    def _register(self, rule: FusionRule) -> None:
        def search(*args: Any) -> Any:
            values = dict(zip(rule.variables, args, strict=True))
            return rule.term.build(values.__getitem__, lambda term, made: term.op(*made))

        def replace(*args: Any) -> Any:
            return rule.fused(*args)

        def is_wanted(match: inductor.Match) -> bool:
            if not is_float32_of_one_size([_value(match.kwargs[name]) for name in rule.variables]):
                return False
            self.found.append((rule.name, match.output_node().name))
            return True

        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in rule.variables]
        for function in (search, replace):
            function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        inputs = [torch.empty(SIDE, SIDE) for _ in rule.variables]
        # Without decompositions the patterns are what they say; programs before Inductor's own are not decomposed.
        inductor.register_replacement(
            search, replace, inputs, inductor.fwd_only, self.matcher, is_wanted, get_decomp_fn=dict
        )

    def run(self, program: ExportedProgram) -> Found:
        self.found = []
        self.matcher.apply(program.graph_module)
        return self.found


class OfficialExportPass(Engine):
    """An `ExportPass` of the official package: while a call is made again, its producers are examined."""

    is_eager = False

    def __init__(self, rules: tuple[FusionRule, ...]) -> None:
        self.make = _export_pass()
        self.by_operator: dict[Any, list[FusionRule]] = defaultdict(list)
        for rule in rules:
            self.by_operator[rule.term.op].append(rule)

    def run(self, program: ExportedProgram) -> Found:
        peephole = self.make(self.by_operator)
        result = peephole(program.graph_module)
        assert result is not None
        module: GraphModule = result.graph_module
        module.graph.eliminate_dead_code()
        program._graph_module = module
        found: Found = peephole.found
        return found


class EditsAlone(Engine):
    """Not an engine: gets the sites, and does to the graph what cannot be left out.

    One new node for every site, and the old ones taken out. What is faster than this does not use `torch.fx`.
    """

    is_eager = False

    def __init__(self, rules: tuple[FusionRule, ...]) -> None:
        self.finder = Ours(rules)
        self.fused = {rule.name: rule for rule in rules}
        self.sites: list[tuple[FusionRule, Node, tuple[Node, ...], list[Node]]] = []

    def prepare(self, program: ExportedProgram) -> None:
        """Find the sites in a copy."""
        nodes = {node.name: node for node in program.graph.nodes}
        report = self.finder.engine.run(GraphEditor(copy_program(program)))
        self.sites = []
        for application in report.journal:
            rule = self.fused[application.rule]
            inputs = tuple(nodes[application.bindings[name].removeprefix("%")] for name in rule.variables)
            old = [nodes[name] for name in application.before]
            self.sites.append((rule, nodes[application.root], inputs, old))

    def run(self, program: ExportedProgram) -> Found:
        graph = program.graph
        for rule, root, inputs, old in self.sites:
            with graph.inserting_before(root):
                new = graph.call_function(rule.fused, inputs)
            new.meta.update(root.meta)
            root.replace_all_uses_with(new)
            for node in old:
                graph.erase_node(node)
        return [(rule.name, root.name) for rule, root, _, _ in self.sites]


def fresh_copy(program: ExportedProgram, *, is_eager: bool) -> ExportedProgram:
    """Return a copy of a program that an engine may rewrite."""
    copied = copy_program(program)
    if is_eager:
        module = copied.graph_module
        copied._graph_module = GraphModule(module, module.graph)
    return copied


def _export_pass() -> Callable[..., Any]:
    base: Any = import_module("executorch.exir.pass_base").ExportPass

    class Peephole(base):  # type: ignore[misc]
        def __init__(self, by_operator: dict[Any, list[FusionRule]]) -> None:
            super().__init__()
            self.by_operator = by_operator
            self.values: dict[Node, Any] = {}
            self.found: Found = []

        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            for rule in self.by_operator.get(op, ()):
                bound: dict[str, Any] = {}
                plain = tuple(arg.node if hasattr(arg, "node") else arg for arg in args)
                if not kwargs and _bind(rule.term, plain, bound):
                    inputs: list[Any] = [self.values.get(bound[name]) for name in rule.variables]
                    if None not in inputs and is_float32_of_one_size([one.data for one in inputs]):
                        self.found.append((rule.name, meta.data["made_as"]))
                        op, args = rule.fused, tuple(inputs)
                        break
            result = super().call_operator(op, args, kwargs, meta)
            self.values[result.node] = result
            return result

    return Peephole


def _bind(term: Term, args: tuple[Any, ...], bound: dict[str, Any]) -> bool:
    """Match arguments of a call with those of a term, as a user writes it for a pass."""
    if len(args) != len(term.args):
        return False
    for wanted, value in zip(term.args, args, strict=True):
        if isinstance(wanted, str):
            if not isinstance(value, Node) or bound.setdefault(wanted, value) is not value:
                return False
        elif isinstance(wanted, Term):
            if not isinstance(value, Node) or value.target is not wanted.op or value.kwargs:
                return False
            if not _bind(wanted, value.args, bound):
                return False
        elif (tuple(value) if isinstance(value, list) else value) != wanted:
            return False
    return True


ENGINES: dict[str, type[Engine]] = {
    "exirkit": Ours,
    "fx": FxRewriter,
    "fx-lazy": LazyFxRewriter,
    "inductor": InductorHandlers,
    "inductor-replace": InductorReplacements,
    "ExportPass": OfficialExportPass,
    FLOOR: EditsAlone,
}
