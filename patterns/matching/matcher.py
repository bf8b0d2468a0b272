"""The matcher: terms compiled to closures that backtrack, through guards as well, until everything holds.

Every closure takes a value and a state and calls the next one; when that fails it undoes what it bound and tries its
next choice. So a search is complete: if there is a way to match, it is found, and always the same one first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import underlying
from exirkit.patterns.forms.catalogue import Forms
from exirkit.patterns.matching.arguments import is_kind, literal_agrees, same_bound, same_number, scalar_shown
from exirkit.patterns.matching.attributes import compile_attributed
from exirkit.patterns.matching.bodies import compile_applied, compile_parameter, order_key
from exirkit.patterns.matching.calls import (
    compile_alternatives,
    compile_call,
    compile_item,
    compile_list,
    compile_operator_call,
    compile_optional,
    compile_splat,
    compile_through,
)
from exirkit.patterns.matching.chains import compile_chain
from exirkit.patterns.matching.comprehensions import compile_element_name
from exirkit.patterns.matching.every_user import compile_every_user
from exirkit.patterns.matching.state import CompiledGuard, MatchedNames, Matcher, State, Then
from exirkit.patterns.operators.arguments import behind
from exirkit.patterns.operators.control_flow import ControlFlow
from exirkit.patterns.syntax.constant_names import numbers_read
from exirkit.patterns.syntax.expressions import ExpressionError, UndecidedError, compare, truth
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Anything,
    Applied,
    Attributed,
    Call,
    Chain,
    Computed,
    Element,
    EveryUser,
    Item,
    Literal,
    Operator,
    OperatorCall,
    Optional,
    Parameter,
    Part,
    Pattern,
    Rest,
    Splat,
    Symbol,
    Term,
    Through,
    Variable,
    children,
)  # fmt: skip
from exirkit.patterns.syntax.terms import Sequence as ListTerm
from exirkit.patterns.types.bodies import gives_one
from exirkit.patterns.types.scalars import OperatorVariable
from exirkit.patterns.types.tensors import TensorVariable
from exirkit.patterns.types.variable import admit


class PatternCompiler:
    """Compiles one pattern.

    Args:
        pattern: Its terms.
        variables: Types of its variables.
        guards: Conditions; each is asked as soon as the last of its names is bound.
        forms: Other forms of the operators of the pattern; none: it is matched as it is written.
        loose: Identities of chains, and of terms about all users of a value, that do not ask who else uses it.
    """

    def __init__(
        self,
        pattern: Pattern,
        variables: Mapping[str, Any],
        guards: Sequence[CompiledGuard],
        forms: Mapping[Operator, Forms] | None = None,
        *,
        loose: frozenset[int] = frozenset(),
    ) -> None:
        self.pattern = pattern
        self.loose = loose
        self.forms = forms
        self.variables = variables
        self.guards = list(guards)
        self._watching: dict[str, list[CompiledGuard]] = {}
        for guard in guards:
            for name in guard.needs:
                self._watching.setdefault(name, []).append(guard)

    def compile(self) -> Callable[[Node, State], bool]:
        """Return a closure that matches the first root's call; on success the state holds the match."""
        return compile_roots(self, self._finish)

    def _finish(self, state: State) -> bool:
        for guard in self.guards:
            # What needs no name, such as `target.has(...)`, nothing that is bound has made anyone ask.
            is_asked = guard.needs and guard.needs <= state.names.keys()
            if not is_asked and not self._holds(guard, state):
                return False
        return True

    def without_forms(self) -> PatternCompiler:
        """Return a compiler of the same pattern for parts in which calls are matched as they are written."""
        other = copy(self)
        other.forms = None
        return other

    # Terms

    def term(self, term: Term, then: Then) -> Matcher:
        """Return the matcher of a term; after it, `then` is called."""
        compile_term = _CALLS.get(type(term))
        if compile_term is not None:
            return self._named(term, compile_term(self, term, then), then)
        match term:
            case Variable():
                return self.variable(term.name, then, term)
            case Symbol():
                return self._symbol(term, then)
            case Anything():
                return lambda value, state: then(state)
            case Literal():
                return self._literal(term, then)
            case Computed():
                return self._computed(term, then)
        if type(term) in _OTHERS:
            return _OTHERS[type(term)](self, term, then)
        raise AssertionError(f"no such term: {term}")

    def gives_one(self, term: Applied) -> bool:
        """Whether a body variable gives one value, and no list."""
        return gives_one(self.variables[term.function.name], self.variables)

    def splat(self, splat: Splat, then: Then) -> Matcher:
        """Return the matcher of a list that `*xs` stands for; after it, `then` is called."""
        return compile_splat(self, splat, then)

    def _named(self, term: Any, match: Matcher, then: Then) -> Matcher:
        """A term with a name that is met a second time is the same node."""
        name = term.name
        if name is None:
            return match

        def meet(value: Any, state: State) -> bool:
            if name in state.names:
                is_same = state.names[name] is value or is_same_value(state.names[name], value, state)
                return (is_same or state.fail(f"{name} is another value", value, term)) and then(state)
            return match(value, state)

        return meet

    def bound(self, name: str | None, value: Any, state: State, then: Then) -> bool:
        """Bind a name, ask the guards that waited for it, go on; undo if that fails."""
        if name is None:
            return then(state)
        state.names[name] = value
        if self.guards_hold((name,), state) and then(state):
            return True
        del state.names[name]
        return False

    def guards_hold(self, fresh: Sequence[str], state: State) -> bool:
        """Ask the conditions whose last name has just been bound."""
        asked: set[int] = set()
        for name in fresh:
            for guard in self._watching.get(name, ()):
                if id(guard) not in asked and guard.needs <= state.names.keys():
                    asked.add(id(guard))
                    if not self._holds(guard, state):
                        return False
        return True

    def _holds(self, guard: CompiledGuard, state: State) -> bool:
        try:
            known = truth(guard.compiled(MatchedNames(state)))
        except UndecidedError:
            return guard.assume or state.fail(f"the sizes do not decide `{guard.text}`", term=guard)
        except (ExpressionError, TypeError) as error:
            return state.fail(f"`{guard.text}` cannot be computed: {error}", term=guard)
        if known is True:
            return True
        if known is False:
            return state.fail(f"`{guard.text}` does not hold", term=guard)
        return guard.assume or state.fail(f"the sizes do not decide `{guard.text}`", term=guard)

    def variable(self, name: str, then: Then, term: Term | Splat) -> Matcher:
        """Match a typed variable, which is the term, or what `*name` stands for."""
        variable = self.variables[name]
        is_tensor = isinstance(variable, TensorVariable)
        needs_kind = tuple(sorted(getattr(variable, "qualifiers", ())))
        wants_value = bool(getattr(variable, "domain", None))
        # Reported whenever what follows fails, so it is formatted once.
        mismatch = f"{name} is not `{variable}`"

        def match(value: Any, state: State) -> bool:
            names = state.names
            if name in names:
                known = names[name]
                same = same_bound(known, value) or (
                    is_same_value(known, value, state) if is_tensor else _same_again(variable, known, value, state)
                )
                return (same or state.fail(f"{name} is another value", value, term)) and then(state)
            for kind in needs_kind if isinstance(value, Node) else ():
                if not is_kind(state.facts, value, kind):
                    return state.fail(f"{name} is not {kind}", value, term)
            value, shown = _shown_to_type(variable, value, state, is_tensor, wants_value)
            for extension in admit(variable, shown, names):
                fresh = {key: new for key, new in extension.items() if key not in names and key != name}
                names.update(fresh)
                names[name] = value
                if self.guards_hold((name, *fresh), state) and then(state):
                    return True
                for key in (name, *fresh):
                    names.pop(key, None)
            return state.fail(mismatch, value, term)

        return match

    def _symbol(self, term: Symbol, then: Then) -> Matcher:
        name = term.name

        def match(value: Any, state: State) -> bool:
            shown = value.meta.get("val") if isinstance(value, Node) else value
            if name in state.names:
                known = state.names[name]
                if type(shown) is bool or not isinstance(shown, int | torch.SymInt | list | tuple):
                    return state.fail(f"{name} is a size", value, term)
                return (compare("==", known, shown) is True or state.fail(f"{name} is {known}", value, term)) and then(
                    state
                )
            if type(shown) is bool or not isinstance(shown, int | torch.SymInt):
                return state.fail(f"{name} is a size", value, term)
            return self.bound(name, shown, state, then)

        return match

    def _computed(self, term: Computed, then: Then) -> Matcher:
        """A value that follows from names is compared when the last of them is bound."""
        key = f"${id(term)}"

        def agrees(names: Mapping[str, Any]) -> Any:
            assert isinstance(names, MatchedNames), "the matcher asks"
            state = names.state
            if key not in state.names:
                # The pattern has another branch here.
                return True
            value, beside = state.names[key]
            wanted = term.compute(names)
            wanted = list(wanted) if isinstance(wanted, tuple) else wanted
            if not isinstance(wanted, int | float) or type(wanted) is bool:
                return same_bound(wanted, value)
            around, state.beside = state.beside, beside
            agreed = same_bound(wanted, value) or literal_agrees(wanted, value, state)
            state.beside = around
            return agreed

        guard = CompiledGuard(term.text, agrees, term.needs | {key})
        self.guards.append(guard)
        for name in guard.needs:
            self._watching.setdefault(name, []).append(guard)

        def match(value: Any, state: State) -> bool:
            shown = value.meta.get("val") if isinstance(value, Node) else None
            read = shown if isinstance(shown, torch.SymInt) else numbers_read(value)
            return self.bound(key, (read, state.beside), state, then)

        return match

    def _literal(self, term: Literal, then: Then) -> Matcher:
        wanted = term.value

        def match(value: Any, state: State) -> bool:
            if literal_agrees(wanted, value, state):
                return then(state)
            what = "left out, so it must be the default" if term.is_default else "a literal"
            return state.fail(f"{wanted!r} ({what}) is expected", value, term)

        return match


def is_same_value(known: Any, value: Any, state: State) -> bool:
    """Whether two nodes are one value, but for calls that give back what they were given."""
    if not state.sees_through or not isinstance(known, Node) or not isinstance(value, Node):
        return False
    return behind(known) is behind(value)


def _shown_to_type(variable: Any, value: Any, state: State, is_tensor: bool, wants_value: bool) -> tuple[Any, Any]:
    """Return what a variable is bound to, and what its type is asked about: values for nodes, numbers for constants."""
    if isinstance(value, list | tuple):
        return value, [one.meta.get("val") if isinstance(one, Node) else one for one in value]
    if not is_tensor:
        number = scalar_shown(variable, value, state)
        return number, number
    if not isinstance(value, Node):
        return value, value
    known = state.facts.value(value) if wants_value and state.facts.is_constant(value) else None
    return value, value.meta.get("val") if known is None else known


def _same_again(variable: Any, known: Any, value: Any, state: State) -> bool:
    """Whether a name for a number is met again, written in another way or rounded to another dtype."""
    return not isinstance(value, list | tuple) and same_number(
        known, scalar_shown(variable, value, state), value, state
    )


_CALLS: dict[type, Callable[[PatternCompiler, Any, Then], Matcher]] = {
    Call: compile_call,
    OperatorCall: compile_operator_call,
    Item: compile_item,
    Alternatives: compile_alternatives,
    Optional: compile_optional,
    Attributed: compile_attributed,
    Chain: compile_chain,
}
"""Terms that may have names."""

_OTHERS: dict[type, Callable[[PatternCompiler, Any, Then], Matcher]] = {
    ListTerm: compile_list,
    Through: compile_through,
    Element: compile_element_name,
    Parameter: compile_parameter,
    Applied: compile_applied,
}


# How a match starts: from the call behind the first root down, and from there up to the other roots

RootMatcher = Callable[[Node, "State"], bool]


def compile_roots(compiler: PatternCompiler, then: Then) -> RootMatcher:
    """Return a closure that matches a pattern from the call behind its first root."""
    pattern = compiler.pattern
    first = pattern.roots[0]
    if isinstance(first, EveryUser):
        return compile_every_user(compiler, first, then)
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
        case Attributed():
            return anchors(term.inner, variables, forms)
        case EveryUser():
            return anchors(term.element, variables, forms)
        case Item() | Rest():
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
    if isinstance(op, ControlFlow):
        return frozenset({op.target})
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
    order = state.names.get(order_key(item.base))
    place = item.index if order is None or item.index >= len(order) else order[item.index]
    found = next((user for user in node.users if user.target is operator.getitem and user.args[1] == place), None)
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
    start = root.start if isinstance(root, Rest) else 0
    root = root.base if isinstance(root, Rest) else root
    assert isinstance(root, Call), "the parser lets only calls be variadic"

    def found(state: State) -> bool:
        node = state.terms[id(root)]
        values = node.meta.get("val")
        if not isinstance(values, list | tuple):
            return state.fail("a call with several results is expected", node, root)
        users = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        # The operands of control flow, and results with them, are matched in any order.
        order = state.names.get(order_key(root)) or range(len(values))
        results = [users.get(index) for index in order]
        if any(one is not None and one.users for one in results[:start]):
            return state.fail("a result that nothing uses is expected", node, root)
        state.roots = results[start:]
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
    pending: list[Part] = list(roots)
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
            (child, step) for child in children(term) if not isinstance(term, Through | Chain | Alternatives | Optional)
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
