"""What stops a match: what a rule asks for at a place, and what the program has there."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import ATTRIBUTE_KEYS, Diagnostic, SourceText, locate, underlying
from exirkit.patterns.engine.application import RejectedError
from exirkit.patterns.engine.program_facts import ProgramFacts
from exirkit.patterns.explain.value_descriptions import described, shape_text, shown
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.matching.state import CompiledGuard, Failure, MatchedNames, State
from exirkit.patterns.operators.table import OperatorTable, name_of
from exirkit.patterns.syntax.expressions import (
    ExpressionCompiler,
    ExpressionError,
    UndecidedError,
    parse_expression,
    truth,
)
from exirkit.patterns.syntax.programs import ProgramCalls, Scope
from exirkit.patterns.syntax.terms import (
    Applied,
    Attributed,
    Body,
    Call,
    Chain,
    Element,
    EveryUser,
    Item,
    Literal,
    OperatorCall,
    Parameter,
    Place,
    Splat,
    Symbol,
    Through,
    Variable,
    walk,
)
from exirkit.patterns.syntax.terms import Sequence as ListTerm
from exirkit.patterns.types.sizes import dims_text
from exirkit.patterns.types.tensors import TensorVariable


@dataclass(frozen=True)
class Mismatch:
    """What stops a match.

    Attributes:
        kind: `operator`, `literal`, `default`, `dtype`, `shape`, `elements`, `qualifier`, `type`, `repeated`, `size`,
            `list`, `result`, `argument`, `body`, `effects`, `guard`, `users`, `unless` or `replacement`.
        message: What is wrong, in a few words.
        expected: What the rule asks for.
        found: What is there.
        values: Values of what the condition, or the type, speaks of.
        also: Further conditions that do not hold either.
        text: The text of the rule that asks.
        place: Where in that text.
        used_by: Lines of the model that use a value inside the match.
    """

    kind: str
    message: str
    expected: str
    found: str
    text: SourceText = field(compare=False)
    place: Place = field(default=Place(), compare=False)
    values: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()

    def diagnostic(self, message: str, notes: Sequence[str], hint: str | None) -> Diagnostic:
        """Return a note that points into the rule."""
        own = [f"found: {self.found}", *(f"{name} is {text}" for name, text in self.values.items())]
        return self.text.diagnostic(
            "EK260",
            message,
            line=self.place.line,
            offset=self.place.offset,
            length=self.place.length,
            expected=self.expected,
            notes=(*own, *self._further(), *notes),
            hint=hint,
        ).model_copy(update={"severity": "note"})

    def _further(self) -> list[str]:
        also = [f"`{text}` does not hold either" for text in self.also]
        return [*also, *(f"used by {one}" for one in self.used_by)]


def mismatch_of(rule: CompiledRule, stops: Sequence[Failure], facts: ProgramFacts) -> Mismatch:
    """Return what stopped the ways that got furthest; where several operators would do, all of them are expected."""
    found = [_mismatch(rule, stop, facts) for stop in stops]
    first = found[0]
    alike = [one for one in found if (one.kind, one.found) == (first.kind, first.found)]
    expected = list(dict.fromkeys(one.expected for one in alike))
    if first.kind != "operator" or len(expected) == 1:
        return first
    return Mismatch(first.kind, first.message, " or ".join(expected), first.found, first.text, first.place)


def rejected(rule: CompiledRule, error: RejectedError) -> Mismatch:
    """Return why a match is not replaced."""
    text = rule.texts.cases[0][2]
    message = "the pattern matches, but the result does not fit" if error.is_fault else "it cannot be replaced"
    return Mismatch("replacement", message, "a replacement that can stand there", error.reason, text, _whole(text))


def _mismatch(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    if stop.progress[0]:
        return _around(rule, stop, facts)
    if stop.guard is not None:
        return _guard(rule, stop, facts)
    explain = AT_A_TERM.get(type(stop.term))
    if explain is not None:
        return explain(rule, stop, facts)
    if stop.term is None and rule.pattern.kind != "calls":
        return _value(rule, stop, facts)
    return _plain(rule, stop, facts, "argument", f"{_argument(rule, stop)} does not fit")


def _plain(rule: CompiledRule, stop: Failure, facts: ProgramFacts, kind: str, message: str) -> Mismatch:
    text = rule.texts.match
    expected = stop.reason.removesuffix(" is expected")
    return Mismatch(kind, message, expected, described(stop.value, facts), text, _place(stop, text))


# Terms


def _value(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    """A value of the program that a rule is about is not one that it may replace."""
    text = rule.texts.match
    expected = _VALUES[rule.pattern.kind]
    if rule.pattern.kind == "stored" and rule.rule.graphs == "program" and not rule.rule.shared:
        expected += ", that one call uses; or `shared: all`"
    message = f"this value is not replaced: {stop.reason}"
    return Mismatch("value", message, expected, described(stop.value, facts), text, _whole(text))


_VALUES = {
    "stored": "a tensor that the program stores and does not write to",
    "input": "an input that the program does not write to",
    "output": "an output of the program that is computed by a call",
}


def _attribute(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    text, term = rule.texts.match, stop.term
    found = described(stop.value, facts)
    keys = stop.value.meta.get(ATTRIBUTE_KEYS, ()) if isinstance(stop.value, Node) else ()
    names = [one.name for one in rule.attributes.values() if one.key in keys]
    found += f", which has {' and '.join(names)}" if names else ", which has none"
    message = f"{_argument(rule, stop)} does not have attribute {term.attribute.name}"
    expected = f"attribute {term.attribute.name}, in the metadata as {term.attribute.key!r}"
    return Mismatch("attribute", message, expected, found, text, _place(stop, text))


def _chain(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    text, term = rule.texts.match, stop.term
    expected = f"{stop.reason}, or any number of calls behind it: {', '.join(map(name_of, term.ops[:_FEW]))}"
    expected += f" and {len(term.ops) - _FEW} more" if len(term.ops) > _FEW else ""
    message = f"the chain {term.name} does not fit"
    return Mismatch("chain", message, expected, described(stop.value, facts), text, _place(stop, text))


_FEW = 4


def _size(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    return _plain(rule, stop, facts, "size", f"{_argument(rule, stop)} is another size")


def _list(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    return _plain(rule, stop, facts, "list", f"{_argument(rule, stop)} is another list")


def _result(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    return _plain(rule, stop, facts, "result", f"{_argument(rule, stop)} is another result")


def _through(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    return _plain(rule, stop, facts, "operator", f"{_argument(rule, stop)} is another call")


def _element(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    return _plain(rule, stop, facts, "element", f"an element is not what {stop.term.name!r} stands for")


def _users(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    which = "at least one of its users matches" if stop.term.is_some else "all of its users match"
    text = rule.texts.match
    message = "the users of this value do not match"
    return Mismatch("every user", message, which, described(stop.value, facts), text, _place(stop, text))


def _body(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    return _plain(rule, stop, facts, "body", f"{_argument(rule, stop)} is another body")


def _applied(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    return _plain(rule, stop, facts, "body", f"{stop.term.function.name} would stand for more than the pattern says")


def _parameter(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    return _plain(rule, stop, facts, "body", f"a body reads something else than {stop.term.name} here")


def _literal(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    term = stop.term
    kind = "default" if term.is_default else "literal"
    expected = shown(term.value)
    if term.is_default:
        expected += ", the default of an argument that the pattern leaves out"
    message = f"{_argument(rule, stop)} is not {shown(term.value)}"
    text = rule.texts.match
    return Mismatch(kind, message, expected, described(stop.value, facts), text, _place(stop, text))


def _call(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    text, term = rule.texts.match, stop.term
    found = described(stop.value, facts)
    if stop.reason.endswith("is another value"):
        return _repeated(rule, stop, facts, term.name)
    if stop.reason.startswith("bodies "):
        return _plain(rule, stop, facts, "effects", "its bodies do more than to compute values")
    if "matched already" in stop.reason:
        found += ", which stands for another call of the pattern"
    wanted = name_of(term.op) if isinstance(term, Call) else stop.reason
    if stop.reason.startswith(f"{getattr(term, 'variable', '')} is not `"):
        wanted = f"{term.variable}: {rule.variables[term.variable]}"
    argument = _argument(rule, stop)
    message = "this is another call" if argument == "the value" else f"{argument} is another call"
    return Mismatch("operator", _about_user(rule, term) or message, wanted, found, text, _place(stop, text))


def _about_user(rule: CompiledRule, term: Any) -> str | None:
    """Return what is wrong with one user of a value, of which all have to match."""
    for root in rule.pattern.roots:
        if isinstance(root, EveryUser) and any(one is term for one in walk(root.element)):
            of = getattr(root.of, "name", None) or "the value"
            return f"a user of {of} is another call" + ("" if root.is_some else f"; `users({of})` is about all of them")
    return None


def _variable(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    name = stop.term.name
    if stop.reason.endswith(("is another value", "is another body")):
        return _repeated(rule, stop, facts, name)
    if stop.reason.endswith("reads nothing but its operands"):
        return _plain(rule, stop, facts, "body", f"{_argument(rule, stop)} reads something else, or has an effect")
    variable = rule.variables[name]
    text = rule.texts.vars[name]
    value = stop.value.meta.get("val") if isinstance(stop.value, Node) else stop.value
    found = described(stop.value, facts)
    kind, expected = "type", f"{name}: {variable}"
    values: dict[str, str] = {}
    if stop.reason != f"{name} is not `{variable}`":
        wanted = stop.reason.removeprefix(f"{name} is not ")
        message = f"{_argument(rule, stop)} is not {wanted}"
        return Mismatch("qualifier", message, f"{name}: {variable}", found, text, _whole(text))
    if isinstance(variable, TensorVariable) and isinstance(value, torch.Tensor):
        kind, expected, values = _tensor_mismatch(variable, value, stop.names)
    message = f"{_argument(rule, stop)} has another {kind} than {name}"
    return Mismatch(kind, message, expected, found, text, _whole(text), values)


def _tensor_mismatch(
    variable: TensorVariable, value: torch.Tensor, names: Mapping[str, Any]
) -> tuple[str, str, dict[str, str]]:
    same_as = variable.dtypes.same_as
    if same_as is not None:
        other = names.get(same_as)
        other = other.meta.get("val") if isinstance(other, Node) else other
        if isinstance(other, torch.Tensor) and value.dtype != other.dtype:
            return "dtype", f"{shown(other.dtype)}, the dtype of {same_as}", {same_as: shown(other)}
    elif value.dtype not in variable.dtypes.member_set:
        return "dtype", f"{variable.name}: {variable}", {}
    if variable.dims is None or variable.domain is not None:
        return "elements", f"{variable.name}: {variable}", {}
    known = {
        name: shape_text(names[name]) if isinstance(names[name], list | tuple) else shown(names[name])
        for name in sorted({*variable.binds, *variable.depends_on} & names.keys())
    }
    return "shape", f"{variable.name}: {dims_text(variable.dims)}", known


def _repeated(rule: CompiledRule, stop: Failure, facts: ProgramFacts, name: str) -> Mismatch:
    text = rule.texts.match
    expected = f"{name} again, which is {described(stop.names.get(name), facts)}"
    message = f"{_argument(rule, stop)} is not {name}"
    return Mismatch("repeated", message, expected, described(stop.value, facts), text, _place(stop, text))


def _argument(rule: CompiledRule, stop: Failure) -> str:
    """Return the name of the argument that is compared, or what to call it."""
    calls = (one for root in rule.pattern.roots for one in walk(root) if isinstance(one, Call))
    for call in calls:
        for name, argument in call.arguments.items():
            if argument is stop.term:
                return f"{name!r} of {name_of(call.op)}"
    return "the value"


def _place(stop: Failure, text: SourceText) -> Place:
    return getattr(stop.term, "place", None) or _whole(text)


def _whole(text: SourceText) -> Place:
    return Place(1, 0, max(1, len(text.value.split("\n")[0])))


AT_A_TERM: dict[type, Callable[[CompiledRule, Failure, ProgramFacts], Mismatch]] = {
    Literal: _literal,
    Variable: _variable,
    Call: _call,
    OperatorCall: _call,
    Parameter: _parameter,
    Symbol: _size,
    ListTerm: _list,
    Item: _result,
    Applied: _applied,
    Attributed: _attribute,
    Body: _body,
    Chain: _chain,
    Through: _through,
    Splat: _list,
    Element: _element,
    EveryUser: _users,
}
"""What is reported of a failure at a term of each kind."""

EXPLAINED_ELSEWHERE: dict[str, str] = {
    "Alternatives": "each branch fails for itself, and all of them are expected",
    "Optional": "without its call, what it is called on is compared",
    "Computed": "it is compared as a condition",
    "Anything": "it fits everything",
    "Each": "its elements, and the list that it stands in, are compared",
    "Rest": "the call before it is compared",
}
"""Terms at which no match fails, and what does instead."""


def unexplained(rule: CompiledRule) -> Mismatch:
    """Return what is reported if nothing is known of why a rule does not match."""
    text = rule.texts.match
    return Mismatch("argument", "the pattern does not match", "a match", "none", text, _whole(text))


# Conditions


def _guard(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    guard = stop.guard
    assert guard is not None, "a condition was asked"
    at = next((index for index, one in enumerate(rule.guards) if one is guard), None)
    if at is None:
        # A value in the pattern that follows from others.
        return _plain(rule, stop, facts, "computed", f"this is not {guard.text}")
    text, written = rule.texts.where[at], rule.rule.where[at]
    found, message = "it does not hold", "a condition does not hold"
    if "do not decide" in stop.reason:
        found, message = "the sizes, which vary, do not decide it", "a condition cannot be decided"
    elif "cannot be computed" in stop.reason:
        found = stop.reason.partition("` ")[2]
    also = tuple(one.text for one in rule.guards if one is not guard and _fails(one, stop, facts))
    expected = guard.text if written.why is None else f"{guard.text} ({written.why})"
    values = {name: described(stop.names[name], facts) for name in sorted(guard.needs & stop.names.keys())}
    values.update(_parts(rule, guard.text, stop, facts))
    return Mismatch("guard", message, expected, found, text, _whole(text), values, also)


def _fails(guard: CompiledGuard, stop: Failure, facts: ProgramFacts) -> bool:
    """Whether another condition, which was not asked, is known to be false."""
    if not guard.needs <= stop.names.keys():
        return False
    try:
        return truth(guard.compiled(MatchedNames(State(facts, dict(stop.names))))) is False
    except (ExpressionError, UndecidedError, TypeError):
        return False


def _parts(rule: CompiledRule, text: str, stop: Failure, facts: ProgramFacts) -> dict[str, str]:
    """Return the values of what a condition compares, as far as they can be computed."""
    symbols = frozenset(name for variable in rule.variables.values() for name in variable.binds)
    compiler = ExpressionCompiler(ProgramCalls(Scope(OperatorTable(), rule.variables, symbols), allows_operators=False))
    names = MatchedNames(State(facts, dict(stop.names)))
    found: dict[str, str] = {}
    for node in ast.walk(parse_expression(text)):
        for side in (node.left, *node.comparators) if isinstance(node, ast.Compare) else ():
            if isinstance(side, ast.Name) or not any(isinstance(one, ast.Name) for one in ast.walk(side)):
                continue
            try:
                found[ast.unparse(side)] = shown(compiler.compile(side)(names))
            except (ExpressionError, UndecidedError, TypeError):
                continue
    return found


def _around(rule: CompiledRule, stop: Failure, facts: ProgramFacts) -> Mismatch:
    """What is around a match stops it: users of values inside it, or a pattern that must not match."""
    if "`unless`" in stop.reason:
        state = [State(facts, dict(stop.names)) for _ in rule.unless]
        matching = [unwanted(stop.value, one) for unwanted, one in zip(rule.unless, state, strict=True)]
        text = rule.texts.unless[matching.index(True)]
        return Mismatch(
            "unless", "a pattern under `unless` matches", "no match of it", described(stop.value, facts), text,
            _whole(text),
        )  # fmt: skip
    text, node = rule.texts.match, stop.value
    assert isinstance(node, Node), "what is used elsewhere is a node"
    others = [user for user in node.users if user not in stop.nodes]
    name = next((key for key, value in stop.names.items() if value is node), None)
    term = rule.pattern.named.get(name or "") or next(iter(_inner_calls(rule, node)), None)
    return Mismatch(
        "users",
        "a value inside the match is used elsewhere too",
        "all users of it inside the match, or the value under `keep`",
        f"{described(node, facts)}, with {len(node.users)} users",
        text,
        getattr(term, "place", None) or _whole(text),
        used_by=tuple(_user(user) for user in others),
    )


def _inner_calls(rule: CompiledRule, node: Node) -> list[Call]:
    """Return the calls inside a pattern that a node can stand for."""
    terms = [one for root in rule.pattern.roots for one in walk(root) if one is not root]
    return [one for one in terms if isinstance(one, Call) and one.op is underlying(node.target)]


def _user(node: Node) -> str:
    line = locate(node).origin()
    return f"%{node.name}" + (f", {line}" if line else "")
