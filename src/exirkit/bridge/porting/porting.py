"""A book from a pass: observed sites become rules, with marks where observation cannot decide."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import UsageError, underlying
from exirkit.patterns import (
    Equivalence,
    Rule,
    RuleBook,
    TracedLiteral,
    TracedRule,
    name_of,
    size_names,
    trace_rule,
    write_book,
)

from .observing import Observations, observe
from .sites import Site

_MOST_SITES = 6
_SHORT = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64", torch.bool: "bool",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
}  # fmt: skip
_SIZES = tuple(f"{letter}{number}" for number in ("", "2", "3") for letter in "NKMLPQRTUVWABCDE")
_STARS = ("S", "X", "Y", "Z")
_IDENTIFIER = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class PortedRule:
    """A rule that was made of sites.

    Attributes:
        rule: The rule; what is undecided is marked.
        sites: How many sites it was made of.
        undecided: Names of the literals that are marked.
        evidence: What decided the others, and what is left out; a line each.
    """

    rule: Rule
    sites: int
    undecided: tuple[str, ...]
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class PortedBook:
    """A book that was made of a pass.

    Attributes:
        target: `MODULE:CLASS`.
        rules: Its rules, those with the most sites first.
        left_out: Sites that could not be written as rules, by reason.
        programs: How many programs the pass was given ...
        changed: ... how many of them it changed ...
        wrong: ... and in how many it raised, or the results were not those of eager PyTorch afterwards.
        unclear: Changed programs in which no site was found.
    """

    target: str
    rules: tuple[PortedRule, ...]
    left_out: Mapping[str, int]
    programs: int
    changed: int
    wrong: int
    unclear: int

    @property
    def text(self) -> str:
        """The book as YAML, with what was observed above it."""
        lines = [
            f"Ported from {self.target}: {self.programs} programs, {self.changed} of them changed.",
            "It has what was observed, and generalises over it: check it, and compare it with the pass:",
            f"exirkit rule check BOOK, exirkit fuzz --against {self.target} --rules BOOK",
        ]
        if self.wrong:
            lines.append(f"In {self.wrong} programs the pass raised, or changed results; nothing was taken from these.")
        if self.unclear:
            lines.append(f"{self.unclear} programs were changed in a way in which no site was found.")
        lines += [f"Left out, {count} sites: {reason}" for reason, count in self.left_out.items()]
        for one in self.rules:
            lines.append(f"- {one.rule.id}: {one.sites} sites")
            lines += [f"  {line}" for line in one.evidence]
            lines += [f"  decide on {', '.join(one.undecided)}: a value, or a name with a type under `vars`"] * bool(
                one.undecided
            )
        book = write_book(RuleBook(rulebook=1, rules=tuple(one.rule for one in self.rules)))
        return "".join(f"# {line}\n" for line in lines) + book


def port_pass(
    target: str,
    *,
    seeds: int = 60,
    models: Sequence[str] = (),
    exact: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> PortedBook:
    """Start a book from a pass: run it on programs, examine what it changes, and generalise over that.

    Args:
        target: `MODULE:CLASS`, as for `exirkit fuzz --against`.
        seeds: How many programs.
        models: `MODULE:FACTORY` of models, which come first.
        exact: Keep the literals that nothing decides as they were seen, instead of marking them.
        progress: Called with what is being done.

    Raises:
        ModelError: EK863, there is no such pass.
        UsageError: EK766, EK767, the pass or a model cannot be used.
    """
    seen = observe(target, seeds=seeds, models=models, progress=progress)
    rules: list[PortedRule] = []
    left_out: Counter[str] = Counter()
    stem = _IDENTIFIER.sub("-", _hyphenated(target.rpartition(":")[2])).strip("-")
    ordered = sorted(seen.sites.items(), key=lambda one: (-len(one[1]), one[0]))
    for sites in (one for _, one in ordered):
        progress(f"rule {len(rules) + 1} of {len(ordered)}")
        try:
            rules.append(_rule_of(f"ported.{stem}-{len(rules) + 1}", sites, seen, exact=exact))
        except UsageError as error:
            left_out[error.diagnostics[0].message] += len(sites)
    return PortedBook(target, tuple(rules), dict(left_out), seen.programs, seen.changed, seen.wrong, seen.unclear)


def _value_in(trace: TracedRule, literal: TracedLiteral) -> str | None:
    """Return the value of a literal in the trace of another site; its default if it is left out there."""
    return next((one.value for one in trace.literals if one.name == literal.name), literal.default)


def _hyphenated(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


def _rule_of(rule_id: str, sites: Sequence[Site], seen: Observations, *, exact: bool) -> PortedRule:
    """Return the rule of sites of one skeleton.

    Raises:
        UsageError: EK266, a rule cannot have what is there.
    """
    traces = {one: _traced(rule_id, one, {}) for one in _chosen(sites)}
    # What has its default is left out of a trace: the one with the most literals has them all.
    base = max(traces, key=lambda one: len(traces[one].literals))
    chosen = [base, *(one for one in traces if one is not base)]
    literals = traces[base].literals
    values = {literal.name: [_value_in(traces[one], literal) for one in chosen] for literal in literals}
    decisions, evidence = _decisions(chosen, literals, values, _untouched_literals(base, seen.untouched))
    if exact:
        decisions.update({one.name: "exact" for one in literals if one.name not in decisions})
    traced = _decided(rule_id, base, decisions)
    rule = traced.rule
    types, said = _types(chosen, keeps_names=any(way == "sizes" for way in decisions.values()))
    rule = rule.model_copy(update={"vars": {**rule.vars, **types}})
    if not all(one.is_exact for one in sites):
        rule = rule.model_copy(update={"equiv": Equivalence(rtol=1e-4, atol=1e-5, why="last bits differed")})
    evidence += said
    return PortedRule(rule, len(sites), traced.undecided, tuple(evidence))


def _chosen(sites: Sequence[Site]) -> list[Site]:
    """Return a few sites that differ in forms, dtypes or literals, first one whose sizes coincide least."""
    by_form: dict[str, Site] = {}
    for one in sites:
        literals = [list(_literals(call)) for call in (*one.before, *one.after)]
        by_form.setdefault(str(([(each.dtype, each.shape) for each in one.examples], literals)), one)
    ordered = sorted(by_form.values(), key=lambda one: -len({size for each in one.examples for size in each.shape}))
    return ordered[:_MOST_SITES]


def _traced(rule_id: str, site: Site, decisions: Mapping[str, str]) -> TracedRule:
    before, after = site.functions()
    examples = {f"x{index}": one for index, one in enumerate(site.examples)}
    return trace_rule(before, after, examples, rule_id=rule_id, doc="Ported.", decide=decisions)


def _decided(rule_id: str, site: Site, decisions: dict[str, str]) -> TracedRule:
    """Trace with decisions; those that are not possible are left open."""
    while True:
        try:
            return _traced(rule_id, site, decisions)
        except UsageError as error:
            name = error.diagnostics[0].message.partition(" ")[0]
            # A trace that is impossible for another reason names no decision first.
            if name not in decisions:
                raise
            del decisions[name]


def _decisions(
    sites: Sequence[Site],
    literals: Sequence[TracedLiteral],
    values: Mapping[str, Sequence[str | None]],
    untouched: Mapping[str, set[str]],
) -> tuple[dict[str, str], list[str]]:
    """Return what observation decides, and why.

    A literal of the pattern that varies may be anything; one that was always the same, while the pass leaves alone
    calls with other values, has to be that. A literal of the replacement that varies with one of the pattern is that.
    """
    decisions: dict[str, str] = {}
    evidence: list[str] = []
    for one in literals:
        found = set(values[one.name])
        if one.is_pattern and len(found) > 1:
            decisions[one.name] = _permutation(sites, one, values[one.name]) or "any"
            evidence.append(f"{one.name} varies: {_listed(found)}")
        elif one.is_pattern and (others := untouched.get(one.argument, set())) and not others & found:
            decisions[one.name] = "exact"
            evidence.append(f"{one.name} is always {one.value}; calls with {_listed(others)} were left alone")
        elif not one.is_pattern:
            same = next(
                (name for name in decisions if len(set(values[name])) > 1 and values[name] == values[one.name]), ""
            )
            if same or (len(found) > 1 and _are_sizes(sites, values[one.name])):
                decisions[one.name] = same or "sizes"
                evidence.append(f"{one.name} varies with {same or 'sizes of inputs'}")
            elif len(found) == 1 and len(values[one.name]) > 2:
                decisions[one.name] = "exact"
                evidence.append(f"{one.name} is {one.value} in all sites")
    return decisions, evidence


def _permutation(sites: Sequence[Site], literal: TracedLiteral, values: Sequence[str | None]) -> str:
    """Return the type of a literal that is always a permutation of the dims of an input; empty if it is not."""
    op = literal.argument.rpartition(" of ")[2]
    for index in range(len(sites[0].inputs)):
        node = sites[0].inputs[index][0]
        if not any(node in call.args[:1] and name_of(underlying(call.target)) == op for call in sites[0].before):
            continue
        lists = [_numbers(one) for one in values]
        ranks = [site.examples[index].dim() for site in sites]
        if all(
            one is not None and rank and sorted(each + rank * (each < 0) for each in one) == list(range(rank))
            for one, rank in zip(lists, ranks, strict=True)
        ):
            return f"perm of x{index}"
    return ""


def _are_sizes(sites: Sequence[Site], values: Sequence[str | None]) -> bool:
    """Whether each element of a list is the size of the same dim of the same input in all sites, or a constant."""
    lists = [_numbers(one) for one in values]
    ranks = {tuple(one.dim() for one in site.examples) for site in sites}
    if None in lists or len({len(one or ()) for one in lists}) > 1 or len(ranks) > 1:
        return False
    columns = {
        tuple(site.examples[index].shape[place] for site in sites)
        for index, example in enumerate(sites[0].examples)
        for place in range(example.dim())
    }
    return all(len(set(column)) == 1 or column in columns for column in zip(*(one or () for one in lists), strict=True))


def _numbers(text: str | None) -> list[int] | None:
    """Return the integers of a list that is written as a literal, or None if it is not one."""
    try:
        found = ast.literal_eval(text or "")
    except (ValueError, SyntaxError):
        return None
    is_list = isinstance(found, list) and all(type(one) is int for one in found)
    return found if is_list else None


def _listed(values: Collection[str | None]) -> str:
    shown = sorted(map(str, values))[:4]
    return ", ".join(shown) + (" ..." if len(values) > len(shown) else "")


def _untouched_literals(site: Site, programs: Sequence[ExportedProgram]) -> dict[str, set[str]]:
    """Return the values of literals in places of untouched programs that have the operators of a site.

    By argument, as traces name it: `dim of aten.sum.dim_IntList`.
    """
    wanted = [one for one in site.before if hasattr(underlying(one.target), "_schema")]
    found: dict[str, set[str]] = {}
    for program in programs:
        for node in program.graph.nodes:
            for call in _alike(node, site.results[0]):
                for argument, value in _literals(call):
                    found.setdefault(argument, set()).add(str(value))
    return found if wanted else {}


def _alike(node: Node, result: Node) -> Iterator[Node]:
    """Yield the calls of a subgraph that has the operators of another one, as far as single operands lead."""
    pairs = [(node, result)]
    matched: list[Node] = []
    while pairs:
        left, right = pairs.pop()
        if right.op != "call_function" or left.op != "call_function":
            continue
        if underlying(left.target) is not underlying(right.target):
            return
        matched.append(left)
        if len(matched) == 1 or len(right.users) == 1:
            pairs += zip(left.all_input_nodes, right.all_input_nodes, strict=False)
        if len(matched) > len(result.graph.nodes):
            return
    yield from matched


def _literals(call: Node) -> Iterator[tuple[str, object]]:
    op = underlying(call.target)
    for index, argument in enumerate(getattr(getattr(op, "_schema", None), "arguments", ())):
        value = call.args[index] if index < len(call.args) else call.kwargs.get(argument.name, call)
        if isinstance(value, bool | int | float | str | list | tuple) and not _has_nodes(value):
            yield f"{argument.name} of {name_of(op)}", list(value) if isinstance(value, tuple) else value


def _has_nodes(value: object) -> bool:
    """Return whether a list has nodes in it."""
    return isinstance(value, list | tuple) and any(isinstance(one, Node) for one in value)


def _types(sites: Sequence[Site], *, keeps_names: bool) -> tuple[dict[str, str], list[str]]:
    """Return types of the inputs that all sites fit: sizes that were always equal have one name.

    Args:
        sites: The sites.
        keeps_names: The sizes of the first site have the names that its trace has given them, since the rule uses them.
    """
    count = len(sites[0].examples)
    columns = [[site.examples[index] for site in sites] for index in range(count)]
    shapes = [[tuple(one.shape) for one in column] for column in columns]
    names: dict[tuple[int, ...], str] = {}
    if keeps_names:
        given = size_names([one.shape for one in sites[0].examples], {f"x{index}" for index in range(count)})
        for column in shapes:
            for sizes in zip(*column, strict=True) if len({len(one) for one in column}) == 1 else ():
                if sizes[0] in given:
                    names[sizes] = given[sizes[0]]
    stars: dict[tuple[tuple[int, ...], ...], str] = {}
    types: dict[str, str] = {}
    evidence: list[str] = []
    for index, column in enumerate(shapes):
        found = sorted({_SHORT.get(one.dtype, "f32") for one in columns[index]})
        evidence.append(f"x{index} was {', '.join(found)}, of {_listed({str(len(one)) for one in column})} dims")
        if len({len(one) for one in column}) > 1:
            star = stars.setdefault(tuple(column), _STARS[len(stars) % len(_STARS)])
            types[f"x{index}"] = f"{'|'.join(found)} [*{star}]"
            continue
        dims = []
        for sizes in zip(*column, strict=True):
            free = next(one for one in _SIZES if one not in names.values())
            dims.append("1" if set(sizes) == {1} else names.setdefault(sizes, free))
        types[f"x{index}"] = f"{'|'.join(found)} [{', '.join(dims)}]"
    return types, evidence
