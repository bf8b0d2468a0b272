"""Programs for the rewriting benchmark: trees of typical operators in which sites of rules are planted."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputSpec, TensorArgument
from torch.fx import Node

from benchmarks.rewriting.rules import ABOVE, ATEN, COMMUTATIVE, UNARY, FusionRule, Term

SIDE = 8
_SEPARATORS = (ATEN.hardsigmoid.default, ATEN.erf.default)
_FILLERS = (ATEN.gelu.default, ATEN.hardswish.default, ATEN.cos.default, ATEN.sin.default)


@dataclass(frozen=True)
class Site:
    """A place where a rule must be applied.

    Attributes:
        rule: Name of the rule.
        root: Name of the node that the rule replaces.
        spelling: `as written`, `swapped` operands, dims `from the front`, or a default `spelled out`.
    """

    rule: str
    root: str
    spelling: str


@dataclass
class Planted:
    """A program and the places where rules must be applied.

    Attributes:
        program: The program; every call has its name under `meta["made_as"]`, for passes that make nodes again.
        sites: Places.
        traps: Places that look like sites, but a value inside is used elsewhere too.
    """

    program: ExportedProgram
    sites: list[Site] = field(default_factory=list)
    traps: list[Site] = field(default_factory=list)


class _Identity(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


class _Planter:
    """Adds operators to a program; what it adds is decided by the seed alone."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        exported = torch.export.export(_Identity(), (torch.randn(SIDE, SIDE),))
        self.planted = Planted(exported)
        self.graph = exported.graph_module.graph
        self.output = self.graph.output_node()
        first = self.output.args[0][0]
        assert isinstance(first, Node)
        self.pool = [first] * 4
        self.count = 1

    def call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Node:
        with self.graph.inserting_before(self.output):
            node = self.graph.call_function(op, args, kwargs or {})
        like = self.pool[0].meta["val"]
        with like.fake_mode:
            node.meta["val"] = torch.empty(SIDE, SIDE)
        node.meta["made_as"] = node.name
        self.count += 1
        return node

    def separated(self, node: Node) -> Node:
        """End a segment with an operator that is in no pattern and keeps values small."""
        return self.call(self.random.choice(_SEPARATORS), (node,))

    def site(self, rule: FusionRule) -> tuple[Node, Site]:
        """Write the expression of a rule, one time in five in other words."""
        spelling = self.random.choice(_spellings(rule.term)) if self.random.random() < 0.2 else "as written"
        values = {name: self.random.choice(self.pool[1:]) for name in rule.variables}
        values["x"] = self.pool[0]
        root = rule.term.build(values.__getitem__, lambda term, args: self.call(*_spelled(term, args, spelling)))
        return root, Site(rule.name, root.name, spelling)

    def trap(self, rule: FusionRule) -> tuple[Node, Site]:
        """Write the expression of a rule, and use a value inside it elsewhere."""
        root, site = self.site(rule)
        inside = next(arg for arg in root.args if isinstance(arg, Node) and arg not in self.pool)
        return self.call(ATEN.mm.default, (root, self.separated(inside))), site

    def filler(self) -> Node:
        """Write what no rule matches: other operators, roots of rules above them, patterns with other literals."""
        kind, first = self.random.random(), self.pool[0]
        if kind < 0.4:
            return self.call(self.random.choice(_FILLERS), (first,))
        inner = self.call(self.random.choice(_FILLERS), (first,))
        if kind < 0.7:
            return self.call(self.random.choice(UNARY), (inner,))
        if kind < 0.9:
            return self.call(self.random.choice(ABOVE), (inner, self.random.choice(self.pool)))
        near = (ATEN.hardtanh.default, (inner, 0.0, 1.0)), (ATEN.permute_copy.default, (inner, [0, 1]))
        return self.call(self.random.choice(UNARY), (self.call(*self.random.choice(near)),))

    def finish(self) -> Planted:
        """Let everything lead to the one output."""
        result = self.pool[0]
        for other in self.pool[1:]:
            result = self.call(ATEN.mm.default, (result, self.separated(other)))
        self.output.args = ((result,),)
        program = self.planted.program
        specs = program.graph_signature.output_specs
        specs[:] = [OutputSpec(specs[0].kind, TensorArgument(name=result.name), None)]
        program.graph_module.recompile()
        return self.planted


def plant(nodes: int, rules: tuple[FusionRule, ...], share: float, seed: int) -> Planted:
    """Make a program.

    Args:
        nodes: How many calls it has, about.
        rules: Rules whose sites are planted, one after another.
        share: Share of the segments that are sites; one in ten of these is a trap instead.
        seed: Decides everything.
    """
    planter = _Planter(seed)
    turn = 0
    while planter.count < nodes:
        planter.random.shuffle(planter.pool)
        if planter.random.random() >= share:
            made = planter.filler()
        else:
            rule = rules[turn % len(rules)]
            turn += 1
            if planter.random.random() < 0.1:
                made, site = planter.trap(rule)
                planter.planted.traps.append(site)
            else:
                made, site = planter.site(rule)
                planter.planted.sites.append(site)
        planter.pool[0] = planter.separated(made)
    return planter.finish()


def _spellings(term: Term) -> list[str]:
    found = ["as written"]
    for call in term.calls():
        if call.op in COMMUTATIVE and any(isinstance(arg, Term) for arg in call.args):
            found.append("swapped")
        if call.op in (ATEN.add.Tensor, ATEN.sub.Tensor):
            found.append("spelled out")
        if call.op in (ATEN.permute_copy.default, ATEN._softmax.default):
            found.append("from the other end")
    return found[1:] or found


def _spelled(term: Term, args: tuple[Any, ...], spelling: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return operator, arguments and keyword arguments of a call that means the same."""
    if spelling == "swapped" and term.op in COMMUTATIVE and any(isinstance(arg, Term) for arg in term.args):
        return term.op, args[::-1], {}
    if spelling == "spelled out" and term.op in (ATEN.add.Tensor, ATEN.sub.Tensor):
        return term.op, args, {"alpha": 1}
    if spelling == "from the other end" and term.op is ATEN.permute_copy.default:
        return term.op, (args[0], [-1, -2]), {}
    if spelling == "from the other end" and term.op is ATEN._softmax.default:
        return term.op, (args[0], 1, False), {}
    return term.op, args, {}
