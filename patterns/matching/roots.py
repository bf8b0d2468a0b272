"""How a match starts: from the call behind the first root down, and from there up to the other roots."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from exirkit.ir import underlying
from exirkit.patterns.forms.catalogue import Forms
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Call,
    Item,
    Operator,
    OperatorCall,
    Optional,
    Splat,
    Term,
    Through,
    Variable,
    children,
)  # fmt: skip
from exirkit.patterns.types.scalars import OperatorVariable

if TYPE_CHECKING:
    from .matcher import PatternCompiler
    from .state import State, Then

RootMatcher = Callable[[Node, "State"], bool]


def compile_roots(compiler: PatternCompiler, then: Then) -> RootMatcher:
    """Return a closure that matches a pattern from the call behind its first root."""
    pattern = compiler.pattern
    first = pattern.roots[0]
    if pattern.is_variadic:
        return _variadic(compiler, first, then)
    chain = then
    for index in reversed(range(1, len(pattern.roots))):
        chain = _further_root(compiler, index, chain)
    return _first_root(compiler, first, chain)


def anchors(term: Term, variables: Mapping[str, Any], forms: Mapping[Operator, Forms] | None = None) -> frozenset[Any]:
    """Return the operators that the call behind a root can have; an empty set means any."""
    forms = forms or {}
    match term:
        case Call():
            return _operators(term.op, forms)
        case Item():
            return _operators(term.base.op, forms)
        case Alternatives():
            parts = [_value_anchors(branch, variables, forms) for _, branch in term.branches]
            return frozenset() if not all(parts) else frozenset().union(*parts)
        case OperatorCall():
            variable = variables[term.variable]
            assert isinstance(variable, OperatorVariable)
            return frozenset(variable.operators())
        case Optional():
            passing = next(iter(term.inner.arguments.values()))
            inner = _value_anchors(passing, variables, forms)
            return _operators(term.inner.op, forms) | inner if inner else frozenset()
    return frozenset()


def _operators(op: Operator, forms: Mapping[Operator, Forms]) -> frozenset[Any]:
    return frozenset({op}) | forms[op].operators if op in forms else frozenset({op})


def _value_anchors(term: Term, variables: Mapping[str, Any], forms: Mapping[Operator, Forms]) -> frozenset[Any]:
    if isinstance(term, Item):
        others = forms[term.base.op].operators if term.base.op in forms and not term.index else frozenset()
        return frozenset({operator.getitem}) | others
    return anchors(term, variables, forms)


def _first_root(compiler: PatternCompiler, first: Term, then: Then) -> RootMatcher:
    if not isinstance(first, Item):

        def found(state: State) -> bool:
            return then(state)

        whole = compiler.term(first, found)

        def match(node: Node, state: State) -> bool:
            state.roots = [node]
            return whole(node, state)

        return match
    base = compiler.term(first.base, lambda state: _take_item(compiler, first, state, then))

    def match_base(node: Node, state: State) -> bool:
        state.roots = []
        return base(node, state)

    return match_base


def _take_item(compiler: PatternCompiler, item: Item, state: State, then: Then) -> bool:
    """Bind the node of a result whose call is matched; a result that nothing uses has none."""
    node = state.terms.get(id(item.base))
    assert node is not None, "the call is matched before its results"
    found = next((user for user in node.users if user.target is operator.getitem and user.args[1] == item.index), None)
    if isinstance(node.meta.get("val"), torch.Tensor):
        # A form of the call that has one result alone.
        found = node if item.index == 0 else None
    if found is None and len(compiler.pattern.roots) == 1:
        return state.fail(f"result {item.index} is not used", node, item)
    state.roots.append(found)
    if compiler.bound(item.name if item.name not in state.names else None, found, state, then):
        return True
    state.roots.pop()
    return False


def _variadic(compiler: PatternCompiler, root: Term, then: Then) -> RootMatcher:
    assert isinstance(root, Call), "the parser lets only calls be variadic"

    def found(state: State) -> bool:
        node = state.terms[id(root)]
        results = node.meta.get("val")
        if not isinstance(results, list | tuple):
            return state.fail("a call with several results is expected", node, root)
        users = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        state.roots = [users.get(index) for index in range(len(results))]
        return then(state)

    whole = compiler.term(root, found)
    return lambda node, state: whole(node, state)


def _further_root(compiler: PatternCompiler, index: int, then: Then) -> Then:
    root = compiler.pattern.roots[index]
    earlier = compiler.pattern.roots[:index]
    if isinstance(root, Item) and any(isinstance(one, Item) and one.base is root.base for one in earlier):
        return lambda state: _take_item(compiler, root, state, then)
    start, path = _way_up(root, _terms_of(earlier), compiler.forms or {})
    candidate: list[Node] = []

    def taken(state: State) -> bool:
        if candidate[-1] in state.roots:
            return state.fail("two roots are one node", candidate[-1], root)
        state.roots.append(candidate[-1])
        if then(state):
            return True
        state.roots.pop()
        return False

    whole = compiler.term(root, taken)

    def match(state: State) -> bool:
        at = state.names.get(start.name) if isinstance(start, Variable) else state.terms.get(id(start))
        if not isinstance(at, Node):
            return state.fail("the other root cannot be reached from here", at, root)
        for node in _climb(at, path):
            candidate.append(node)
            try:
                if whole(node, state):
                    return True
            finally:
                candidate.pop()
        return state.fail("no user leads to the other root", at, root)

    return match


def _terms_of(roots: Sequence[Term]) -> tuple[set[int], set[str]]:
    identities: set[int] = set()
    names: set[str] = set()
    pending: list[Term | Splat] = list(roots)
    while pending:
        term = pending.pop()
        identities.add(id(term))
        if isinstance(term, Variable):
            names.add(term.name)
        pending += list(children(term))
    return identities, names


class UnconnectedError(Exception):
    """Roots of a pattern share nothing, so that one cannot be found from the other."""


def _way_up(root: Term, known: tuple[set[int], set[str]], forms: Mapping[Operator, Forms]) -> tuple[Any, list[Any]]:
    """Return a term that is bound before, and the operators between it and the root, lowest first."""
    identities, names = known
    pending: list[tuple[Any, list[Any]]] = [(root, [])]
    while pending:
        term, above = pending.pop(0)
        if isinstance(term, Call) and id(term) in identities and above:
            return term, above[::-1]
        if isinstance(term, Variable) and term.name in names and above:
            return term, above[::-1]
        step = [*above, _step_of(term, forms)] if isinstance(term, Call | Item | OperatorCall) else above
        pending += [
            (child, step) for child in children(term) if not isinstance(term, Through | Alternatives | Optional)
        ]
    raise UnconnectedError


def _step_of(term: Call | Item | OperatorCall, forms: Mapping[Operator, Forms]) -> frozenset[Any] | None:
    if isinstance(term, Item):
        return frozenset({operator.getitem})
    return _operators(term.op, forms) if isinstance(term, Call) else None


def _climb(node: Node, path: Sequence[frozenset[Any] | None]) -> Iterator[Node]:
    if not path:
        yield node
        return
    for user in list(node.users):
        if path[0] is None or underlying(user.target) in path[0]:
            yield from _climb(user, path[1:])
