"""Matching chains: as many links as there are, and fewer until what they begin at matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.fx import Node

from exirkit.ir import underlying
from exirkit.patterns.forms.catalogue import Forms, forms_of
from exirkit.patterns.matching.state import Matcher, State, Then
from exirkit.patterns.operators.arguments import is_remark
from exirkit.patterns.operators.links import Link
from exirkit.patterns.syntax.chains import key_of
from exirkit.patterns.syntax.terms import Chain, Variable

if TYPE_CHECKING:
    from exirkit.patterns.matching.matcher import PatternCompiler

_LONGEST = 64


def compile_chain(compiler: PatternCompiler, term: Chain, then: Then) -> Matcher:
    """Match the calls of a chain and what it begins at; its name is the last of them, or the beginning itself."""
    begin = compiler.term(term.inner, then)
    ops = frozenset(map(id, term.ops))
    others = _forms(compiler, term)
    name, key = term.name, key_of(term.name or "")
    # What the whole rule begins at may be used by others: it stays.
    is_private = term.is_private and id(term) not in compiler.loose
    is_inner_private = is_private and not isinstance(term.inner, Variable)

    def match(value: Any, state: State) -> bool:
        passed = _links(value, ops, others, is_private, state)
        beside = state.beside
        for count in range(len(passed), -1, -1):
            nodes = passed[:count]
            start = nodes[-1].args[0] if nodes else value
            if is_inner_private and not _is_used_once(start):
                state.fail("a value that nothing else uses", start, term)
                continue
            links = tuple(
                Link(underlying(node.target), tuple(node.args[1:]), dict(node.kwargs)) for node in nodes[::-1]
            )
            state.beside = beside
            state.nodes.extend(nodes)

            def found(inner: State, start: Any = start, links: tuple[Link, ...] = links) -> bool:
                return compiler.bound(key, links, inner, lambda last: begin(start, last))

            if compiler.bound(name, value, state, found):
                return True
            del state.nodes[len(state.nodes) - len(nodes) :]
        return False

    return match


def _forms(compiler: PatternCompiler, term: Chain) -> dict[int, list[Forms]]:
    """Return other forms of the links, where the dialect is open, by the identities of their operators."""
    found: dict[int, list[Forms]] = {}
    for op in term.ops if compiler.forms is not None else ():
        forms = forms_of(op)
        for other in forms.operators - forms.composed if forms is not None else ():
            found.setdefault(id(other), []).append(forms)  # type: ignore[arg-type]
    return found


def _is_link(node: Node, ops: frozenset[int], others: dict[int, list[Forms]], state: State) -> bool:
    target = underlying(node.target)
    if id(target) in ops:
        return True
    readings = (one for forms in others.get(id(target), ()) for one in forms.readings(node, target, state.composites))
    return next(iter(readings), None) is not None


def _links(
    value: Any, ops: frozenset[int], others: dict[int, list[Forms]], is_private: bool, state: State
) -> list[Node]:
    """Return the calls behind a value that can be links, the last one first."""
    passed: list[Node] = []
    while len(passed) < _LONGEST and isinstance(value, Node) and value.op == "call_function":
        if value in state.nodes or not value.args or value.all_input_nodes[:1] != [value.args[0]]:
            break
        if not _is_link(value, ops, others, state):
            break
        if is_private and not _is_used_once(value):
            break
        passed.append(value)
        value = value.args[0]
    return passed


def _link(node: Node) -> Link:
    return Link(underlying(node.target), tuple(node.args[1:]), dict(node.kwargs))


def _is_used_once(value: Any) -> bool:
    return not isinstance(value, Node) or sum(not is_remark(user) for user in value.users) == 1
