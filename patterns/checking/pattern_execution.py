"""Running a pattern as a program: on tensors for trials, on symbolic ones for checks, on nodes for examples."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Listed
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch

from exirkit.patterns.operators.arguments import default_of
from exirkit.patterns.operators.control_flow import distributed
from exirkit.patterns.operators.links import Link, drawn_link
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.attributes import attributed_terms
from exirkit.patterns.syntax.chains import key_of
from exirkit.patterns.syntax.comprehensions import own_terms
from exirkit.patterns.syntax.every_user import USERS
from exirkit.patterns.syntax.expressions import ExpressionError, UndecidedError
from exirkit.patterns.syntax.programs import Builder
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Anything,
    Applied,
    Attributed,
    Body,
    Call,
    Chain,
    Computed,
    Each,
    Element,
    EveryUser,
    Item,
    Literal,
    OperatorCall,
    Optional,
    Parameter,
    Part,
    Pattern,
    Rest,
    Sequence,
    Splat,
    Symbol,
    Through,
    Variable,
    children,
    optional_names,
    walk,
)


class CannotRunError(Exception):
    """A pattern leaves open what it would be run with."""


@dataclass(frozen=True)
class Shape:
    """One way through the alternatives of a pattern.

    Attributes:
        branches: Index of the branch taken, by the identity of the `alt`.
        present: Whether the optional call is there, by the identity of the `opt`.
        passes: How many calls are looked through, by the identity of the `thru`, and which operator.
        opened: Values of arguments that the pattern leaves open, by the identity of the call and name.
        chains: How many links a chain has, and the seed of their arguments, by the identity of the `chain`.
        carried: Attributes, with their fields, that calls have without the pattern's naming them, by identity; links by
            that of their chain and their number.
    """

    branches: Mapping[int, int] = field(default_factory=dict)
    present: Mapping[int, bool] = field(default_factory=dict)
    passes: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    text: str = ""
    opened: Mapping[tuple[int, str], Any] = field(default_factory=dict)
    chains: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    carried: Mapping[int | tuple[int, int], tuple[Any, Mapping[str, Any]]] = field(default_factory=dict)


def shapes_of(pattern: Pattern, *, limit: int = 64) -> Iterator[Shape]:
    """Yield the ways through a pattern: every branch, optional calls there and missing, and so on."""
    alternatives: dict[int, Alternatives] = {}
    optionals: dict[int, Optional | Attributed] = {}
    throughs: dict[int, Through] = {}
    for root in pattern.roots:
        for term in walk(root):
            if isinstance(term, Alternatives):
                alternatives[id(term)] = term
            elif isinstance(term, Optional) or (isinstance(term, Attributed) and term.is_optional):
                optionals[id(term)] = term
            elif isinstance(term, Through):
                throughs[id(term)] = term
    choices: list[list[tuple[str, int, Any, str]]] = []
    for key, alternative in alternatives.items():
        choices.append([("alt", key, index, f"{tag}") for index, (tag, _) in enumerate(alternative.branches)])
    choices += [[("opt", key, True, ""), ("opt", key, False, "without")] for key in optionals]
    for key, through in throughs.items():
        ways = [("thru", key, (0, 0), "")]
        ways += [("thru", key, (1 + index % 2, index), "through") for index in range(len(through.ops))]
        choices.append(ways)
    for count, chosen in enumerate(product(*choices)):
        if count >= limit:
            return
        yield Shape(
            {key: value for kind, key, value, _ in chosen if kind == "alt"},
            {key: value for kind, key, value, _ in chosen if kind == "opt"},
            {key: value for kind, key, value, _ in chosen if kind == "thru"},
            " ".join(text for *_, text in chosen if text),
        )


def terms_on_way(pattern: Pattern, shape: Shape) -> Iterator[tuple[Part, list[Part]]]:
    """Yield the terms on one way through a pattern, each with those right below it.

    A call that several others use is yielded once, a variable as often as it occurs.
    """
    seen: set[int] = set()
    pending: list[Part] = list(pattern.roots)
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        if not isinstance(one, Variable):
            seen.add(id(one))
        below = list(children(one))
        if isinstance(one, Alternatives):
            below = [one.branches[shape.branches.get(id(one), 0)][1]]
        yield one, below
        pending += below


def mark_of(name: str, attribute: str) -> str:
    """Return the key under which a run notes that a tensor has the value that its attribute means."""
    return f"${name} @ {attribute}"


def raw_name(name: str) -> str:
    """Return the key under which a run keeps the value that a tensor had before its attribute was applied."""
    return f"${name} without an attribute"


class PatternRun:
    """One run of a pattern.

    Args:
        pattern: What to run.
        names: Values of variables and sizes; those of named terms and tags are added.
        shape: Which way to take.
        builder: Meaning of calls.
        changed: Literals to take instead of others, by identity of the term: for near misses.
        split: Value for the second and later occurrences of variables, by name: likewise.

    Attributes:
        was_changed: Whether the run came to one of those.
    """

    def __init__(
        self,
        pattern: Pattern,
        names: dict[str, Any],
        shape: Shape,
        builder: Builder,
        *,
        changed: Mapping[int, Any] | None = None,
        split: Mapping[str, Any] | None = None,
    ) -> None:
        self.pattern = pattern
        self.names = names
        self.shape = shape
        self.builder = builder
        self.changed = dict(changed or {})
        self.split = dict(split or {})
        self.functions: Mapping[int, Any] = {}
        self._done: dict[int, Any] = {}
        self._met: set[str] = set()
        self.was_changed = False

    def run(self) -> list[Any]:
        """Return the values of the roots.

        Raises:
            CannotRunError: Something is left open that has no default.
        """
        results: list[Any] = []
        for term in attributed_terms(self.pattern.terms):
            if isinstance(term.inner, Variable):
                self._give(term, term.inner.name)
        for root in self.pattern.roots:
            value = self.value(root)
            if self.pattern.is_variadic:
                return list(value)
            results.append(value)
        return results

    def value(self, term: Part) -> Any:
        """Return the value of a term; a term that is reached twice is computed once."""
        if isinstance(term, Variable):
            return self._variable(term)
        key = id(term)
        if key not in self._done:
            self._done[key] = self._compute(term)
            name = getattr(term, "name", None)
            if name is not None and not isinstance(term, Symbol):
                self.names[name] = self._done[key]
        return self._done[key]

    def _variable(self, term: Variable) -> Any:
        if term.name in self.split and term.name in self._met:
            self.was_changed = True
            return self.split[term.name]
        self._met.add(term.name)
        if term.name not in self.names:
            raise CannotRunError(f"{term.name} has no value")
        return self.names[term.name]

    def _compute(self, term: Any) -> Any:
        compute: dict[type, Callable[[Any], Any]] = {
            Literal: self._literal,
            Computed: self._computed,
            Symbol: lambda one: self.names[one.name],
            Element: lambda one: self.names[one.name],
            Each: self._each,
            Item: lambda one: self.value(one.base)[one.index],
            Rest: lambda one: list(self.value(one.base))[one.start :],
            Parameter: lambda one: self.names[one.key],
            Applied: self._applied_body,
            Body: self._body,
            Sequence: self._list,
            Call: self._call,
            OperatorCall: self._operator_call,
            Alternatives: self._alternative,
            Optional: self._optional,
            Through: self._through,
            Attributed: self._attributed,
            Chain: self._chain,
            EveryUser: self._every_user,
        }
        if type(term) not in compute:
            raise CannotRunError("`_` stands where an argument is needed")
        return compute[type(term)](term)

    def _computed(self, term: Computed) -> Any:
        missing = sorted(term.needs - self.names.keys())
        if missing:
            raise CannotRunError(f"`{term.text}` needs {', '.join(missing)}, which has no value yet")
        try:
            value = term.compute(self.names)
        except (ExpressionError, UndecidedError) as error:
            raise CannotRunError(f"`{term.text}` cannot be computed: {error}") from None
        return list(value) if isinstance(value, tuple) else value

    def _every_user(self, term: EveryUser) -> list[Any]:
        """Return the results of all users of a value, of which there are one to three, or as many as a list has."""
        value = self.value(term.of)
        lists = [self.names[name] for name in term.lists]
        count = len(lists[0]) if lists else self.names.get(USERS) or 1 + self.shape.chains.get(id(term), (1, 0))[0] % 3
        if not count or any(len(one) != count for one in lists):
            raise CannotRunError(f"{' and '.join(term.lists)} are empty or of different lengths")
        self.names[USERS] = count
        own = own_terms(term)
        made: list[Any] = []
        for index in range(count):
            self.names[term.user] = value
            self.names.update(zip(term.names, (one[index] for one in lists), strict=True))
            for key in own & self._done.keys():
                del self._done[key]
            made.append(self.value(term.element))
        for name in (term.user, *term.names):
            self.names.pop(name, None)
        return made

    def _chain(self, term: Chain) -> Any:
        """Return the last value of a chain; its links are drawn when it is computed for the first time."""
        value = self.value(term.inner)
        key = key_of(term.name or "")
        if key in self.names:
            for number, link in enumerate(self.names[key]):
                value = self._with_carried((id(term), number), link.called(value, self.builder))
            return value
        count, seed = self.shape.chains.get(id(term), (0, 0))
        rng, links = random.Random(seed), list[Link]()
        for _ in range(count):
            link = drawn_link(rng.choice(term.ops), value, rng) if isinstance(value, torch.Tensor) else None
            if link is None:
                break
            value = self._with_carried((id(term), len(links)), link.called(value, self.builder))
            links.append(link)
        self.names[key] = tuple(links)
        return value

    def _give(self, term: Attributed, name: str) -> None:
        """Make the value of a tensor one that its attribute can have given."""
        mark = mark_of(name, term.attribute.name)
        if id(term) in self.changed:
            self.was_changed = True
            self.names[name] = self.names.get(raw_name(name), self.names.get(name))
        elif name in self.names and not self.names.get(mark):
            self.names.setdefault(raw_name(name), self.names[name])
            self.names[name] = self._meant(term, self.names[name])
            self.names[mark] = True

    def _attributed(self, term: Attributed) -> Any:
        value = self.value(term.inner)
        if isinstance(term.inner, Variable):
            return value
        if id(term) in self.changed:
            self.was_changed = True
            return value
        return self._meant(term, value)

    def _meant(self, term: Attributed, value: Any) -> Any:
        names = [one.name for one in term.fields.values() if isinstance(one, Variable)]
        is_present = self.shape.present.get(id(term), True)
        if term.is_optional and not (is_present and all(self.names.get(name) is not None for name in names)):
            self.names.update(dict.fromkeys(names))
            return value
        fields = {key: self.value(one) for key, one in term.fields.items()}
        return self._applied(term.attribute, value, fields)

    def _applied(self, attribute: Any, value: Any, fields: Mapping[str, Any]) -> Any:
        try:
            return attribute.applied(value, fields, self.builder)
        except ExpressionError as error:
            raise CannotRunError(f"attribute {attribute.name} cannot be computed: {error}") from None

    def _body(self, term: Body) -> PatternBody:
        # Which occurrence of a variable is which follows from the text, not from what is run how often.
        functions = {id(one): self._variable(one.function) for one in walk(term.result) if isinstance(one, Applied)}
        return PatternBody(self, term, functions)

    def _applied_body(self, term: Applied) -> Any:
        args: list[Any] = []
        for one in term.arguments:
            if isinstance(one, Splat) and one.term is not None:
                args.extend(self.value(one.term))
            else:
                args.append(self.value(one))
        body = self.functions[id(term)]
        if id(term) in self.changed:
            self.was_changed = True
            read = [self.names[one.key] for one in self.changed[id(term)]]
            body = body.reading([each for one in read for each in (one if isinstance(one, list) else [one])])
        results = body.results(self.builder, args)
        return results[0] if len(results) == 1 and getattr(body, "gives_one", False) else results

    def _literal(self, term: Literal) -> Any:
        if id(term) not in self.changed:
            return term.value
        self.was_changed = True
        return self.changed[id(term)]

    def _list(self, term: Sequence) -> list[Any]:
        made: list[Any] = []
        for item in term.items:
            if not isinstance(item, Splat):
                made.append(self.value(item))
            elif item.term is not None:
                made.extend(self.value(item.term))
            elif item.name is not None:
                made.extend(self.names[item.name])
        return made

    def _each(self, term: Each) -> list[Any]:
        """Return the elements of a comprehension; what they do not share is computed for each of them."""
        missing = [name for name in term.lists if self.names.get(name) is None]
        if missing:
            raise CannotRunError(f"{missing[0]} has no value")
        lists = [self.names[name] for name in term.lists]
        if len({len(one) for one in lists}) != 1:
            raise CannotRunError(f"{' and '.join(term.lists)} are of different lengths")
        own = own_terms(term)
        made: list[Any] = []
        for values in zip(*lists, strict=True):
            self.names.update(zip(term.names, values, strict=True))
            for key in own & self._done.keys():
                del self._done[key]
            made.append(self.value(term.element))
        for name in term.names:
            self.names.pop(name, None)
        return made

    def _call(self, term: Call) -> Any:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        is_gap = False
        for argument in term.op._schema.arguments:
            written = term.arguments.get(argument.name)
            if written is None or isinstance(written, Anything):
                key = (id(term), argument.name)
                if key not in self.shape.opened and not argument.has_default_value():
                    raise CannotRunError(
                        f"argument {argument.name!r} of {name_of(term.op)} is left open, and nothing is known to draw"
                        " for it: give it a name with a type"
                    )
                value = self.shape.opened[key] if key in self.shape.opened else default_of(argument)
            else:
                value = self.value(written)
            if argument.kwarg_only or is_gap:
                if isinstance(written, Literal) and written.is_default and id(written) not in self.changed:
                    continue
                named[argument.name] = value
            else:
                positional.append(value)
        try:
            return self._with_carried(id(term), self.builder.call(term.op, tuple(positional), named))
        except Exception as error:
            # Readers of the error need to know which call of the pattern it was; the innermost one is noted first.
            if not hasattr(error, "__notes__"):
                left = [f"{key!r}" for call, key in self.shape.opened if call == id(term)]
                opened = f", whose argument {left[0]} is left open: give it a name with a type" if left else ""
                error.add_note(f"in {name_of(term.op)}{opened}")
            raise

    def _operator_call(self, term: OperatorCall) -> Any:
        op = self.names[term.variable]
        arguments = [self.value(argument) for argument in term.arguments]
        if term.rest is not None:
            self.names.setdefault(term.rest, [])
        result = self.builder.call(op, (*arguments, *(self.names[term.rest] if term.rest else ())), {})
        return self._with_carried(id(term), result)

    def _with_carried(self, key: int | tuple[int, int], result: Any) -> Any:
        held = self.shape.carried.get(key)
        return result if held is None else self._applied(held[0], result, held[1])

    def _alternative(self, term: Alternatives) -> Any:
        tag, branch = term.branches[self.shape.branches.get(id(term), 0)]
        if term.name is not None:
            self.names[f"{term.name}.alt"] = tag
        return self.value(branch)

    def _optional(self, term: Optional) -> Any:
        absent = optional_names(term)
        is_present = self.shape.present.get(id(term), True)
        if is_present and all(self.names.get(name) is not None for name in absent):
            return self.value(term.inner)
        self.names.update(dict.fromkeys(absent))
        return self.value(next(iter(term.inner.arguments.values())))

    def _through(self, term: Through) -> Any:
        value = self.value(term.inner)
        count, index = self.shape.passes.get(id(term), (0, 0))
        for _ in range(count):
            op = term.ops[index]
            if any(not argument.has_default_value() for argument in op._schema.arguments[1:]):
                raise CannotRunError(f"{op} needs arguments to be looked through")
            value = self.builder.call(op, (value,), {})
        return value


class PatternBody:
    """A body that a pattern describes, as a function.

    Args:
        run: The run around.
        term: The body.
        functions: What its body variables stand for, by the identity of where they are applied.
    """

    def __init__(self, run: PatternRun, term: Body, functions: Mapping[int, Any]) -> None:
        self.run = run
        self.term = term
        self.functions = functions

    def results(self, builder: Builder, args: Listed[Any]) -> list[Any]:
        """Return what the body gives for arguments.

        Raises:
            CannotRunError: It has another number of parameters.
        """
        term, run = self.term, self.run
        first, last = [one.name for one in term.first], [one.name for one in term.last]
        places = distributed(len(args), first, term.rest.name if term.rest else None, last)
        if places is None:
            raise CannotRunError(f"a body with {len(first) + len(last)} parameters is given {len(args)}")
        names = dict(run.names)
        for one, place in zip(term.parameters, places, strict=True):
            names[one.key] = [args[at] for at in place] if isinstance(place, list) else args[place]
        inner = PatternRun(run.pattern, names, run.shape, builder, changed=run.changed, split=run.split)
        inner.functions = self.functions
        found = inner.value(term.result)
        run.was_changed |= inner.was_changed
        return list(found) if isinstance(found, list | tuple) else [found]
