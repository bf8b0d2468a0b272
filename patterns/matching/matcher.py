"""The matcher: terms compiled to closures that backtrack, through guards as well, until everything holds.

Every closure takes a value and a state and calls the next one; when that fails it undoes what it bound and tries its
next choice. So a search is complete: if there is a way to match, it is found, and always the same one first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from exirkit.patterns.forms.catalogue import Forms
from exirkit.patterns.matching.arguments import is_kind, literal_agrees, same_bound, same_number, scalar_shown
from exirkit.patterns.matching.calls import (
    compile_alternatives,
    compile_call,
    compile_item,
    compile_list,
    compile_operator_call,
    compile_optional,
    compile_through,
)
from exirkit.patterns.operators.seen_through import behind
from exirkit.patterns.syntax.expressions import ExpressionError
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Anything,
    Call,
    Computed,
    Item,
    Literal,
    Operator,
    OperatorCall,
    Optional,
    Pattern,
    Splat,
    Symbol,
    Term,
    Through,
    Variable,
)
from exirkit.patterns.syntax.terms import Sequence as ListTerm
from exirkit.patterns.syntax.undecided import UndecidedError, compare, truth
from exirkit.patterns.types.tensors import TensorVariable
from exirkit.patterns.types.variable import admit

from .state import CompiledGuard, MatchedNames, Matcher, State, Then, numbers_read


class PatternCompiler:
    """Compiles one pattern.

    Args:
        pattern: Its terms.
        variables: Types of its variables.
        guards: Conditions; each is asked as soon as the last of its names is bound.
        forms: Other forms of the operators of the pattern; none: it is matched as it is written.
    """

    def __init__(
        self,
        pattern: Pattern,
        variables: Mapping[str, Any],
        guards: Sequence[CompiledGuard],
        forms: Mapping[Operator, Forms] | None = None,
    ) -> None:
        self.pattern = pattern
        self.forms = forms
        self.variables = variables
        self.guards = list(guards)
        self._watching: dict[str, list[CompiledGuard]] = {}
        for guard in guards:
            for name in guard.needs:
                self._watching.setdefault(name, []).append(guard)

    def compile(self) -> Callable[[Node, State], bool]:
        """Return a closure that matches the first root's call; on success the state holds the match."""
        from .roots import compile_roots

        return compile_roots(self, self._finish)

    def _finish(self, state: State) -> bool:
        for guard in self.guards:
            if not guard.needs <= state.names.keys() and not self._holds(guard, state):
                return False
        return True

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
            case ListTerm():
                return compile_list(self, term, then)
            case Through():
                return compile_through(self, term, then)
        raise AssertionError(f"no such term: {term}")

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
}
