"""One tree of questions for a whole set of rules: which of them can match at a node, at a cost that rules share.

The tree is a filter. It asks for operators at positions below the node, each once however many rules want to know, and
leaves out the rules that cannot match; at its leaves, types and literals leave out further ones. The rules that remain
are tried by their matchers. So it may be too generous, never too strict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from exirkit.ir import EdgeOpOverload, underlying
from exirkit.patterns.forms.composites import FoundComposites
from exirkit.patterns.forms.readers import Operand, Screen
from exirkit.patterns.functions.graph import GraphFacts
from exirkit.patterns.matching.pattern_questions import AT_VALUE, Anchored, Asked, Path, Question, Reading, WaysToMatch
from exirkit.patterns.matching.value_checks import Check, JointGuard, LiteralCheck, Named
from exirkit.patterns.operators.arguments import argument_of, behind, passing_operators, source_of

# Questions of a tree, for every way of matching: those of a large pattern, each asked of calls that are met in several
# forms, would be a tree that grows with every one of them by a factor.
_QUESTIONS_EACH = 64


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A check of what stands at certain places; rules that ask the same have the same one.

    Attributes:
        path: The place of the value that it is about.
        check: The check.
        others: The places of further values.
    """

    path: Path
    check: Check | JointGuard
    others: tuple[Path, ...] = ()

    def rejects(self, seen: dict[Path, Any]) -> bool:
        """Whether what stands at several places is certainly not what is asked for."""
        path = self.path
        value = seen[path] if path in seen else _value_at(path, seen)
        further = [seen[one] if one in seen else _value_at(one, seen) for one in self.others]
        return self.check.rejects(value, *further)


Entry = tuple[dict[Path, Question], tuple[Placed, ...], int]
"""Operators that a rule still asks for, its checks, and its rank."""


class _Several(tuple[Any, ...]):
    """Values of which any may be an operand."""

    __slots__ = ()


@dataclass
class TreeNode:
    """One question.

    Attributes:
        path: Where to look.
        by_operator: What follows, by the identity of the operator found there.
        otherwise: What follows for rules that do not ask this.
        rules: Rules for which nothing is left to ask, by their rank.
        checked: Rules for which only checks are left, by their rank, and the checks with their places.
        screened: Further trees, each with what a call must pass; at the root alone.
        read: Further trees, each with how a call is read as one of another operator; at the root alone. They ask about
            the arguments that are read.
        parts: Likewise, by the identity of an operator that is recognized in its parts, of which the call is the last.
        ranks: Ranks of all rules that may be found here; at the root alone.
        unbuilt: What each way of matching still asks, and how many questions the tree may have, until it is asked.
    """

    path: Path | None = None
    by_operator: dict[int, TreeNode] = field(default_factory=dict)
    otherwise: TreeNode | None = None
    rules: tuple[int, ...] = ()
    checked: tuple[tuple[int, tuple[Placed, ...]], ...] = ()
    screened: tuple[tuple[Screen, TreeNode], ...] = ()
    read: tuple[tuple[Reading, TreeNode], ...] = ()
    parts: dict[int, tuple[Reading, TreeNode]] = field(default_factory=dict)
    ranks: frozenset[int] = frozenset()
    unbuilt: tuple[list[Entry], float] | None = None

    def build(self) -> TreeNode:
        """Work out the question, unless that was done; what follows is left until it is asked, which is seldom."""
        if self.unbuilt is not None:
            variants, room = self.unbuilt
            _fill(self, variants, room)
            self.unbuilt = None
        return self

    def add(self, condition: Screen | Reading, entries: list[Entry]) -> None:
        """Add a tree that is asked under a condition."""
        tree = _build(entries)
        tree.ranks = frozenset(rank for _, _, rank in entries)
        if not isinstance(condition, Reading):
            self.screened += ((condition, tree),)
        elif condition.is_composed:
            self.parts[id(condition.forms.op)] = condition, tree
        else:
            self.read += ((condition, tree),)


_Roots = dict[int, TreeNode | None]
"""Where to start, by how far away what has changed is."""


class PredicateTree:
    """Finds the rules that may match at a node.

    Far from a change only rules with tall patterns can match that did not before, so there is a tree for them alone.

    Args:
        anchored: For every rule, in order of rank.

    Attributes:
        reaches: How many calls above a change each rule may match because of it.
        too_far: By identity of a target, how far from a change no rule is asked about calls of it, as far as is known.
    """

    def __init__(self, anchored: Sequence[Anchored]) -> None:
        self.reaches = tuple(one.reach for one in anchored)
        self._variants: dict[Any, list[Entry]] = {}
        self._further: dict[Any, dict[Screen | Reading, list[Entry]]] = {}
        checks: dict[Any, Placed] = {}
        for rank, rule in enumerate(anchored):
            ways = WaysToMatch(rule)
            for operator in rule.operators or (None,):
                for condition, asked in ways.starts(rule.root, operator):
                    made = self._variants.setdefault(operator, [])
                    if condition is not None:
                        made = self._further.setdefault(operator, {}).setdefault(condition, [])
                    made.append(_entry(asked, rank, ways.joint, checks))
        self._anywhere = self._variants.pop(None, [])
        # Operators that nothing is asked about share what is asked of all calls.
        self._roots: dict[Any, _Roots] = {operator: {} for operator in self._variants}
        self._others: _Roots = {}
        # By identity, since torch computes the hash of an operator in Python; the target is kept so that it lives.
        self._of_target: dict[int, tuple[_Roots, Any, Any]] = {}
        self.too_far: dict[int, int] = {}

    @property
    def operators(self) -> frozenset[Any] | None:
        """Operators at which some rule may match; None if that is all."""
        return None if self._anywhere else frozenset(self._roots)

    def root_of(self, target: Any, away: int = 0) -> TreeNode | None:
        """Return where to start for a call of `target`; None if no rule can match there.

        Args:
            target: The target.
            away: How many calls below it is what has changed; of rules that match near a change alone nothing is asked.
        """
        known = self._of_target.get(id(target))
        if known is None:
            operator = underlying(target)
            roots = self._roots.get(operator)
            known = (self._others, None, target) if roots is None else (roots, operator, target)
            self._of_target[id(target)] = known
        roots = known[0]
        if away not in roots:
            roots[away] = self._root(known[1], away)
        root = roots[away]
        if root is None and away < self.too_far.get(id(target), away + 1):
            self.too_far[id(target)] = away
        return root

    def _root(self, operator: Any, away: int) -> TreeNode | None:
        """Build the tree of the rules about an operator that may match so far from a change."""

        def near(entries: Sequence[Entry]) -> list[Entry]:
            return [one for one in entries if self.reaches[one[2]] > away]

        entries = near([*self._variants.get(operator, ()), *self._anywhere])
        further = {condition: near(own) for condition, own in self._further.get(operator, {}).items()}
        further = {condition: own for condition, own in further.items() if own}
        if not entries and not further:
            return None
        root = _build(entries)
        root.ranks = frozenset(rank for own in (entries, *further.values()) for _, _, rank in own)
        for condition, own in further.items():
            root.add(condition, own)
        return root

    def candidates(
        self,
        node: Node,
        root: TreeNode,
        composites: FoundComposites | None = None,
        passed: dict[Screen, bool] | None = None,
    ) -> Sequence[int]:
        """Return the ranks of the rules that may match at a call, lowest first.

        Args:
            node: The call.
            root: Where to start.
            composites: Operators that are recognized in their parts; without it, any may be.
            passed: Results of quick checks of the call, to which others are added.
        """
        passed = {} if passed is None else passed
        trees = [root, *_screened(node, root, passed)] if root.screened else [root]
        read = root.read
        if root.parts:
            possible = root.parts if composites is None else composites.possible(node, passed)
            read = (*read, *(root.parts[key] for key in possible if key in root.parts))
        if root.path is None and not read and not root.checked and trees[-1] is root:
            return root.rules
        found: set[int] = set()
        facts = composites.facts if composites is not None and composites.knows_stored else None
        _ask(trees, {(): node}, found, facts)
        for condition, tree in read:
            if tree.ranks <= found:
                continue
            if composites is None:
                found |= tree.ranks
            elif condition.may_read(node, passed):
                for arguments in condition.arguments(node, composites):
                    _ask([tree], {(): node, **arguments}, found, facts)
        return sorted(found) if found else ()


def _screened(node: Node, root: TreeNode, passed: dict[Screen, bool]) -> list[TreeNode]:
    """Return the trees under quick looks that a call passes; what each shows is noted."""
    found = []
    for screen, tree in root.screened:
        if screen not in passed:
            passed[screen] = screen(node)
        if passed[screen]:
            found.append(tree)
    return found


def _ask(pending: list[TreeNode], seen: dict[Path, Any], found: set[int], facts: GraphFacts | None) -> None:
    """Ask the questions of trees about a call; add the ranks of the rules that are left.

    Args:
        pending: The trees.
        seen: Values by their place, to which those that are looked up are added; at first the call.
        found: Ranks of the rules found so far.
        facts: What is known of the graph.
    """
    passing = passing_operators()
    rejected: dict[Placed, bool] = {}
    while pending:
        one: TreeNode | None = pending.pop()
        while one is not None:
            if one.unbuilt is not None:
                one.build()
            if one.rules:
                found.update(one.rules)
            if one.checked:
                _add_passing(one.checked, seen, rejected, found, facts)
            path = one.path
            if path is None:
                break
            value = seen[path] if path in seen else _value_at(path, seen)
            if type(value) is _Several:
                pending += _following(one, value)
            while type(value) is Node and value.op == "call_function":
                target = value.target
                key = id(target._op if type(target) is EdgeOpOverload else underlying(target))
                if key in one.by_operator:
                    pending.append(one.by_operator[key])
                # Calls that give back what they were given are looked through.
                value = source_of(value) if key in passing else None
            one = one.otherwise


def _add_passing(
    checked: tuple[tuple[int, tuple[Placed, ...]], ...],
    seen: dict[Path, Any],
    rejected: dict[Placed, bool],
    found: set[int],
    facts: GraphFacts | None,
) -> None:
    """Add the ranks of rules of which no check rejects anything; each check is asked once."""
    for rank, checks in checked:
        if rank in found:
            continue
        for check in checks:
            if check not in rejected:
                # Most checks are about one value, and this is asked very often.
                path = check.path
                rejected[check] = (
                    check.rejects(seen)
                    if check.others
                    else check.check.rejects(seen[path] if path in seen else _value_at(path, seen), facts)
                )
            if rejected[check]:
                break
        else:
            found.add(rank)


def _following(one: TreeNode, values: _Several) -> list[TreeNode]:
    """Return what follows for any of several values, each once."""
    passing = passing_operators()
    found: dict[int, TreeNode] = {}
    for each in values:
        value = each
        while type(value) is Node and value.op == "call_function":
            key = id(underlying(value.target))
            if key in one.by_operator:
                found[id(one.by_operator[key])] = one.by_operator[key]
            value = source_of(value) if key in passing else None
    return list(found.values())


def _value_at(path: Path, seen: dict[Path, Any]) -> Any:
    above_path, step = path[:-1], path[-1]
    value: Any = None
    if not above_path and type(step) is str:
        # Most are arguments of the call itself.
        value = seen[path] = argument_of(seen[()], step) if seen[()].op == "call_function" else None
        return value
    above = seen[above_path] if above_path in seen else _value_at(above_path, seen)
    if type(above) is _Several:
        value = _Several(_below(behind(one) if type(one) is Node else one, step) for one in above)
    else:
        value = _below(behind(above) if above_path and type(above) is Node else above, step)
    seen[path] = value
    return value


def _below(above: Any, step: str | int | Operand) -> Any:
    """Return what is one step below a value."""
    if type(above) is Node and above.op == "call_function":
        if type(step) is str:
            return argument_of(above, step)
        return _Several(step.find(above)) if type(step) is Operand else None
    if isinstance(above, list | tuple) and type(step) is int:
        return above[step] if -len(above) <= step < len(above) else None
    return None


def _build(variants: list[Entry]) -> TreeNode:
    """Return the tree for what some ways of matching ask; it may have as many questions as there are for so many."""
    return TreeNode(unbuilt=(variants, float(_QUESTIONS_EACH * len(variants)))).build()


def _fill(node: TreeNode, variants: list[Entry], room: float) -> None:
    """Ask first what most rules want to know, near the root before far from it.

    Args:
        node: Where this is asked.
        variants: What each way of matching asks.
        room: How many questions the tree may have. Where it is used up, rules are left in that further questions might
            have left out.
    """
    if room < 1:
        node.rules = tuple(sorted({rank for _, _, rank in variants}))
        return
    done = tuple(sorted({rank for questions, checks, rank in variants if not questions and not checks}))
    # Two ways of one rule may ask the same.
    checked = tuple(dict.fromkeys((rank, checks) for questions, checks, rank in variants if not questions and checks))
    asking = [each for each in variants if each[0]]
    node.rules, node.checked = done, tuple(each for each in checked if each[0] not in done)
    if not asking:
        return
    counts = Counter(path for questions, _, _ in asking for path in questions)
    path = min(counts, key=lambda each: (-counts[each], len(each), str(each)))
    # By identity, since torch computes the hash of an operator in Python. Rules keep their operators alive.
    groups: dict[int, list[Entry]] = {}
    others: list[Entry] = []
    for each in asking:
        questions, checks, rank = each
        if path not in questions:
            others.append(each)
            continue
        alike, unlike = questions[path]
        if alike:
            rest = ({key: value for key, value in questions.items() if key != path}, checks, rank)
            for operator in alike:
                groups.setdefault(id(operator), []).append(rest)
        if unlike:
            # What is read as a call of another operator has its arguments elsewhere.
            outside = (
                {key: value for key, value in questions.items() if key[: len(path)] != path},
                tuple(one for one in checks if all(place[: len(path)] != path for place in (one.path, *one.others))),
                rank,
            )
            for operator in unlike:
                groups.setdefault(id(operator), []).append(outside)
    # Operators of which the same follows share it.
    alone: dict[tuple[int, ...], list[Entry]] = {}
    keys = {operator: tuple(map(id, group)) for operator, group in groups.items()}
    for operator, group in groups.items():
        alone.setdefault(keys[operator], group)
    parts = [*alone.values(), others]
    sizes = [sum(1 + len(questions) for questions, _, _ in part) for part in parts]
    each_room = [(room - 1) * size / sum(sizes) for size in sizes]
    below = {key: TreeNode(unbuilt=(part, own)) for (key, part), own in zip(alone.items(), each_room, strict=False)}
    node.by_operator = {operator: below[key] for operator, key in keys.items()}
    node.otherwise = TreeNode(unbuilt=(others, each_room[-1])) if others else None
    node.path = path


def _entry(asked: Asked, rank: int, joint: Sequence[JointGuard], known: dict[Any, Placed]) -> Entry:
    """Return what one way of matching asks.

    Args:
        asked: By place.
        rank: Of the rule.
        joint: Its conditions on several names.
        known: Checks of all rules, to which new ones are added.
    """
    questions = {path: one for path, one in asked.items() if isinstance(one, tuple)}
    checks: list[Placed] = []
    places: dict[str, Path] = {}

    def add(path: Path, check: Check | JointGuard, others: tuple[Path, ...] = ()) -> None:
        said = check.said if isinstance(check, LiteralCheck) else check
        checks.append(known.setdefault((path, said, others), Placed(path, check, others)))

    for path, one in asked.items():
        if isinstance(one, Named):
            places[one.name] = path[:-1]
        elif not isinstance(one, tuple):
            add(path[:-1] if path and path[-1] in AT_VALUE else path, one)
    for guard in joint:
        if all(name in places for name in guard.names):
            first, *others = (places[name] for name in guard.names)
            add(first, guard, tuple(others))
    return questions, tuple(checks), rank
