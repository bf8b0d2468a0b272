"""One tree of questions for a whole set of rules: which of them can match at a node, at a cost that rules share.

The tree is a filter. It asks for operators at positions below the node, each once however many rules want to know, and
leaves out the rules that cannot match; the ones that remain are tried by their matchers. So it may be too generous,
never too strict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from torch.fx import Node

from exirkit.ir import underlying
from exirkit.patterns.forms.catalogue import Forms
from exirkit.patterns.forms.composites import FoundComposites
from exirkit.patterns.forms.readers import Screen
from exirkit.patterns.operators.arguments import (
    argument_of,
    behind,
    may_pass,
    passing_operators,
    source_of,
)
from exirkit.patterns.operators.table import traits_of
from exirkit.patterns.syntax.terms import Alternatives, Call, Item, Operator, OperatorCall, Term
from exirkit.patterns.syntax.terms import Sequence as ListTerm

Path = tuple[str | int, ...]
"""Steps from a node to an argument: names of arguments, and places in lists."""

_MOST_VARIANTS = 64
Entry = tuple[dict[Path, "Question"], int]
"""What a rule still asks, and its rank."""


@dataclass
class TreeNode:
    """One question.

    Attributes:
        path: Where to look.
        by_operator: What follows, by the identity of the operator found there.
        otherwise: What follows for rules that do not ask this.
        rules: Rules for which nothing is left to ask, by their rank.
        screened: Further trees, each with what a call must pass; at the root alone.
        composed: Further trees, each with the operator of which a call must be the last part; at the root alone.
    """

    path: Path | None = None
    by_operator: dict[int, TreeNode] = field(default_factory=dict)
    otherwise: TreeNode | None = None
    rules: tuple[int, ...] = ()
    screened: tuple[tuple[Screen, TreeNode], ...] = ()
    composed: tuple[tuple[Operator, TreeNode], ...] = ()


Question = tuple[frozenset[Any], frozenset[Any]]
"""Operators that a call may have whose arguments are asked about too, and others that it may have."""


class PredicateTree:
    """Finds the rules that may match at a node.

    Args:
        anchored: For every rule, in order of rank: the operators its first root can have (none: any), the term that the
            call behind the first root must match, and other forms of the operators in it.
    """

    def __init__(self, anchored: Sequence[tuple[frozenset[Any], Term, Mapping[Any, Forms] | None]]) -> None:
        variants: dict[Any, list[Entry]] = {}
        further: dict[Any, dict[Screen | _Composed, list[Entry]]] = {}
        for rank, (operators, term, forms) in enumerate(anchored):
            for operator in operators or (None,):
                for condition, questions in _starts(term, operator, forms or {}):
                    made = variants.setdefault(operator, [])
                    if condition is not None:
                        made = further.setdefault(operator, {}).setdefault(condition, [])
                    made.append((questions, rank))
        anywhere = variants.pop(None, [])
        self._roots = {operator: _build([*own, *anywhere]) for operator, own in variants.items()}
        for operator, by_condition in further.items():
            root = self._roots[operator]
            for condition, own in by_condition.items():
                if isinstance(condition, _Composed):
                    root.composed += ((condition.op, _build(own)),)
                else:
                    root.screened += ((condition, _build(own)),)
        self._anywhere = _build(anywhere) if anywhere else None
        # By identity, since torch computes the hash of an operator in Python; the target is kept so that it lives.
        self._of_target: dict[int, tuple[TreeNode | None, Any]] = {}

    @property
    def operators(self) -> frozenset[Any] | None:
        """Operators at which some rule may match; None if that is all."""
        return None if self._anywhere is not None else frozenset(self._roots)

    def root_of(self, target: Any) -> TreeNode | None:
        """Return where to start for a call of `target`."""
        known = self._of_target.get(id(target))
        if known is None:
            known = self._roots.get(underlying(target), self._anywhere), target
            self._of_target[id(target)] = known
        return known[0]

    def candidates(self, node: Node, root: TreeNode, composites: FoundComposites | None = None) -> Sequence[int]:
        """Return the ranks of the rules that may match at a call, lowest first.

        Args:
            node: The call.
            root: Where to start.
            composites: Operators that are recognized in their parts; without it, any may be.
        """
        trees = [root]
        for screen, tree in root.screened:
            if screen(node):
                trees.append(tree)
        for op, tree in root.composed:
            if composites is None or composites.at(node, op):
                trees.append(tree)
        if root.path is None and len(trees) == 1:
            return root.rules
        return _asked(node, trees)


def _asked(node: Node, pending: list[TreeNode]) -> Sequence[int]:
    """Ask the questions of trees about a call; return the ranks of the rules that are left, lowest first."""
    found: set[int] = set()
    seen: dict[Path, Any] = {(): node}
    passing = passing_operators()
    while pending:
        one: TreeNode | None = pending.pop()
        while one is not None:
            if one.rules:
                found.update(one.rules)
            path = one.path
            if path is None:
                break
            value = seen[path] if path in seen else _value_at(path, seen)
            while type(value) is Node and value.op == "call_function":
                key = id(underlying(value.target))
                if key in one.by_operator:
                    pending.append(one.by_operator[key])
                # Calls that give back what they were given are looked through.
                value = source_of(value) if key in passing else None
            one = one.otherwise
    return sorted(found) if found else ()


def _value_at(path: Path, seen: dict[Path, Any]) -> Any:
    above_path, step = path[:-1], path[-1]
    above = seen[above_path] if above_path in seen else _value_at(above_path, seen)
    value: Any = None
    if above_path and type(above) is Node:
        above = behind(above)
    if type(above) is Node and type(step) is str:
        value = argument_of(above, step) if above.op == "call_function" else None
    elif isinstance(above, list | tuple) and type(step) is int:
        value = above[step] if -len(above) <= step < len(above) else None
    seen[path] = value
    return value


def _build(variants: list[Entry]) -> TreeNode:
    """Ask first what most rules want to know, near the root before far from it."""
    done = tuple(sorted({rank for questions, rank in variants if not questions}))
    asking = [(questions, rank) for questions, rank in variants if questions]
    node = TreeNode(rules=done)
    if not asking:
        return node
    counts = Counter(path for questions, _ in asking for path in questions)
    path = min(counts, key=lambda each: (-counts[each], len(each), str(each)))
    node.path = path
    groups: dict[Any, list[Entry]] = {}
    others: list[Entry] = []
    for questions, rank in asking:
        if path in questions:
            alike, unlike = questions[path]
            rest = ({key: value for key, value in questions.items() if key != path}, rank)
            # What is read as a call of another operator has its arguments elsewhere.
            outside = ({key: value for key, value in rest[0].items() if key[: len(path)] != path}, rank)
            for operators, entry in ((alike, rest), (unlike, outside)):
                for operator in operators:
                    groups.setdefault(operator, []).append(entry)
        else:
            others.append((questions, rank))
    # Rules keep their operators alive. Operators of which the same follows share it.
    built: dict[tuple[int, ...], TreeNode] = {}
    for operator, group in groups.items():
        key = tuple(map(id, group))
        if key not in built:
            built[key] = _build(group)
        node.by_operator[id(operator)] = built[key]
    node.otherwise = _build(others) if others else None
    return node


@dataclass(frozen=True)
class _Composed:
    """The condition that a call is the last part of an operator."""

    op: Operator


_Start = tuple["Screen | _Composed | None", dict[Path, Question]]
"""A condition on a call, and what must be found below it if that holds."""


def _starts(term: Term, operator: Any, forms: Mapping[Any, Forms]) -> Iterator[_Start]:
    """Yield what must hold of calls of an operator for a root to match there, one for every way to match."""
    if isinstance(term, Alternatives):
        for _, branch in term.branches:
            if isinstance(branch, Item):
                yield None, {}
            else:
                yield from _starts(branch, operator, forms)
        return
    call = term.base if isinstance(term, Item) else term
    found = forms.get(call.op) if isinstance(call, Call) else None
    if found is not None and operator in found.composed:
        yield _Composed(found.op), {}
    is_read = found is not None and operator is not found.op and operator in found.readers
    screen = found.screen(operator) if found is not None and is_read else None
    for questions in _variants(term, operator, forms):
        yield screen, questions


def _variants(term: Term, operator: Any, forms: Mapping[Any, Forms]) -> Iterator[dict[Path, Question]]:
    """Yield what must be found below a node for a term to match there, one for every way to match."""
    made = list(_ways(term, (), forms, operator))
    if len(made) > _MOST_VARIANTS:
        yield {}
        return
    seen: set[tuple[Any, ...]] = set()
    for questions in made:
        key = tuple(sorted(((path, sorted(map(str, one[0] | one[1]))) for path, one in questions.items()), key=str))
        text = tuple((path, tuple(names)) for path, names in key)
        if text not in seen:
            seen.add(text)
            yield {path: one for path, one in questions.items() if path}


def _ways(term: Any, path: Path, forms: Mapping[Any, Forms], operator: Any = None) -> Iterator[dict[Path, Question]]:
    match term:
        case Item() if not path:
            yield from _ways(term.base, path, forms, operator)
        case Call():
            yield from _ways_of_call(term, path, forms, operator)
        case Alternatives():
            for _, branch in term.branches:
                if isinstance(branch, Item):
                    yield {}
                else:
                    yield from _ways(branch, path, forms, operator)
        case ListTerm() if path:
            yield from _ways_of_list(term, path, forms)
        case OperatorCall() if not path:
            yield {}
        case _:
            # Variables, literals behind constants, and what may be missing or looked through: nothing is certain.
            yield {}


def _ways_of_call(term: Call, path: Path, forms: Mapping[Any, Forms], operator: Any) -> Iterator[dict[Path, Question]]:
    found = forms.get(term.op)
    alike = frozenset({term.op}) if found is None else found.same
    unlike = frozenset() if found is None else found.others
    if found is not None and term.op in found.operators and not _asks_only_of_kept(term, found):
        # Read in its second way a call has its arguments elsewhere.
        unlike |= {term.op}
    if operator is not None and operator not in alike:
        if found is not None and operator in found.readers:
            kept = found.kept(operator)
            for below in _ways_of_arguments(term, path, forms):
                yield {path: (alike, unlike), **{key: one for key, one in below.items() if key[len(path)] in kept}}
        return
    # What a call is looked through to has arguments of its own.
    if path and may_pass(term.op):
        yield {path: (alike, unlike)}
        return
    for below in _ways_of_arguments(term, path, forms):
        yield {path: (alike, unlike), **below}


def _asks_only_of_kept(term: Call, forms: Forms) -> bool:
    """Whether all that may be asked of the arguments of a call is asked of those that its second reading keeps."""
    return term.op not in forms.composed and all(
        name in forms.kept(term.op)
        for name, argument in term.arguments.items()
        if isinstance(argument, Call | Alternatives | ListTerm)
    )


def _ways_of_arguments(term: Call, path: Path, forms: Mapping[Any, Forms]) -> Iterator[dict[Path, Question]]:
    for renamed in _orders(term):
        parts = [
            list(_ways(argument, (*path, renamed.get(name, name)), forms)) for name, argument in term.arguments.items()
        ]
        yield from _combined(parts)


def _ways_of_list(term: ListTerm, path: Path, forms: Mapping[Any, Forms]) -> Iterator[dict[Path, Question]]:
    from exirkit.patterns.syntax.terms import Splat

    places = [index for index, item in enumerate(term.items) if isinstance(item, Splat)]
    limit = places[0] if places else len(term.items)
    parts = [list(_ways(item, (*path, index), forms)) for index, item in enumerate(term.items[:limit])]
    yield from _combined(parts)


def _combined(parts: Sequence[Sequence[dict[Path, Question]]]) -> Iterator[dict[Path, Question]]:
    count = 1
    for part in parts:
        count *= max(1, len(part))
    if count > _MOST_VARIANTS:
        yield {}
        return
    for choice in product(*parts):
        merged: dict[Path, Question] = {}
        for one in choice:
            merged.update(one)
        yield merged


def _orders(term: Call) -> Iterator[Mapping[str, str]]:
    yield {}
    for left, right, _ in traits_of(term.op).commutes:
        if left in term.arguments and right in term.arguments:
            yield {left: right, right: left}
