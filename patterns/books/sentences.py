"""What a rule says, in sentences: words of its pattern, what it promises about results, and its further keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from exirkit.patterns.books.model import Equivalence, Rule
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Applied,
    Attributed,
    Body,
    Chain,
    Each,
    EveryUser,
    OperatorCall,
    Optional,
    Rest,
    Splat,
    Through,
)

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|])")


def plain(text: str) -> str:
    """Return text on one line that is shown as it is; what stands in single backticks is code."""
    parts = re.split(r"(`[^`\n]+`)", " ".join(text.split()))
    return "".join(part if at % 2 else _SPECIAL.sub(r"\\\1", part) for at, part in enumerate(parts))


def code(text: str) -> str:
    """Return text as code inside a line; a table may be around it."""
    text = " ".join(text.split())
    ticks = "`" * (longest_ticks(text) + 1)
    padded = f" {text} " if text.startswith("`") or text.endswith("`") else text
    return f"{ticks}{padded}{ticks}" if text else ""


def longest_ticks(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


# Words of patterns and replacements

_FEW = 5


def words(rule: CompiledRule) -> list[str]:
    """Return in sentences what the words mean that a rule uses beside calls, names and literals."""
    said: list[str] = []
    if rule.pattern.kind in _ROOTS:
        said.append(_ROOTS[rule.pattern.kind])
    if rule.rule.shared:
        said.append("Tensors that several calls use are replaced as well.")
    if rule.rule.graphs == "bodies":
        said.append("Only where bodies of control flow use the tensor; calls make its values there.")
    for term in {id(one): one for one in rule.pattern.terms}.values():
        tell = TOLD.get(type(term))
        said += [] if tell is None else [tell(term)]
    for case in rule.cases:
        said += [f"The loop {code(loop.text)} makes one turn for each element." for loop in case.replace.loops]
    texts = " ".join([*(one.replace for one in rule.rule.cases), *(guard.expr for guard in rule.rule.where)])
    said += [sentence for word, sentence in CALLED.items() if re.search(rf"\b{word}\(", texts)]
    said += [f"Table {code(name)} is asked, of which every row is tried." for name in rule.tables]
    return list(dict.fromkeys(said))


_ROOTS = {
    "stored": "It is about a tensor that the program stores: a parameter, buffer or constant that nothing writes to.",
    "input": "It is about what callers give: they give what `replace` computes. Only `ChangeInterface` applies it.",
    "output": "It is about what callers get: they get what `replace` computes. Only `ChangeInterface` applies it.",
}


def _name(term: object) -> str:
    name = getattr(term, "name", None)
    return code(name) if name else "a value"


def _operators(ops: tuple[object, ...]) -> str:
    more = f" and {len(ops) - _FEW} more" if len(ops) > _FEW else ""
    return ", ".join(code(name_of(one)) for one in ops[:_FEW]) + more


def _of_attribute(term: Attributed) -> str:
    may = "may have" if term.is_optional else "has"
    return f"{_name(term.inner)} {may} attribute {code(term.attribute.name)} with {', '.join(map(code, term.fields))}."


def _of_chain(term: Chain) -> str:
    alone = "; nothing else uses the values in between" if term.is_private else ""
    begin = _name(term.inner)
    return f"{_name(term)} is any number of calls behind {begin}, none included, of {_operators(term.ops)}{alone}."


def _of_users(term: EveryUser) -> str:
    if term.is_some:
        return f"Those users of {_name(term.of)} that are of this form are replaced, others are left alone."
    return f"Every user of {_name(term.of)} is of this form, and each is replaced."


def _of_elements(term: Each) -> str:
    return f"Every element of {', '.join(map(code, term.lists))} is of one form."


def _of_splat(term: Splat) -> str:
    return f"{_name(term)} is any number of elements next to each other, none included."


def _of_through(term: Through) -> str:
    return f"Calls of {_operators(term.ops)} are looked through."


def _of_optional(term: Optional) -> str:
    return f"The call of {code(name_of(term.inner.op))} may be missing; names that only it has are none then."


def _of_alternatives(term: Alternatives) -> str:
    tags = ", ".join(code(tag) for tag, _ in term.branches)
    name = f"; {code(f'{term.name}.alt')} says which" if term.name else ""
    return f"One of several calls, {tags}{name}."


def _of_operator(term: OperatorCall) -> str:
    return f"{code(term.variable)} stands for an operator, which its type names."


def _of_body(term: Body) -> str:
    names = ", ".join(code(one.name) for one in (*term.first, *([term.rest] if term.rest else []), *term.last))
    return f"A body of control flow with parameters {names} is of this form; operands stand in any order."


def _of_applied(term: Applied) -> str:
    return f"{code(term.function.name)} stands for any calls in a body, which use nothing but what it is given."


def _of_rest(term: Rest) -> str:
    return f"{_name(term)} is any number of further results, none included; those before are used by nothing else."


TOLD: dict[type, Callable[..., str]] = {
    Body: _of_body,
    Applied: _of_applied,
    Rest: _of_rest,
    Attributed: _of_attribute,
    Chain: _of_chain,
    EveryUser: _of_users,
    Each: _of_elements,
    Splat: _of_splat,
    Through: _of_through,
    Optional: _of_optional,
    Alternatives: _of_alternatives,
    OperatorCall: _of_operator,
}
"""Sentences about the terms of patterns."""

CALLED: dict[str, str] = {
    "traced": "`traced(call)` is what torch decomposes the call into, for the values at hand.",
    "along": "`along(v, e)` makes the calls of the chain on another value.",
    "links": "`links(v)` is the number of calls of a chain.",
    "range": "`range(x)` is what analyses of the whole graph know of the values of a tensor: `lo`, `hi`.",
    "grid": "`grid(x)` is the grid of a quantized value, as the analyses of the graph know it: scale, zero point ...",
    "elements": "`elements(s)` are the elements of a stored tensor of one dim.",
    "on_axis": "`on_axis(g, d)` is a grid per channel whose channels are another dim.",
    "attr": "`attr(y, act)` is the attribute of a matched call.",
    "no": "`no(y, act)` holds where a matched call has no such attribute.",
    "scalar": "`scalar(n, dtype)` is a number as a tensor, also one that is known at run time only.",
}
"""Sentences about words of conditions and replacements."""


# What a rule promises, and its further keys


def contract(equiv: Equivalence) -> list[str]:
    """Return in sentences what a rule promises about its results."""
    said: list[str] = []
    if equiv.rng == "any":
        said.append("Random numbers are drawn; only dtype and shape are the same.")
    elif equiv.mode == "exact":
        said.append("Results are equal bit for bit.")
    elif equiv.is_exact:
        said.append("Results are equal up to the last bits that kernels round.")
    else:
        bounds = [_tolerance("relative", equiv.rtol), _tolerance("absolute", equiv.atol)]
        bounds += [f"{equiv.lsb} steps of an integer"] if equiv.lsb is not None else []
        within = " and ".join(one for one in bounds if one)
        said.append(f"Results are equal within {within}." if within else "Results are about equal.")
    if equiv.lhs_nan == "any":
        said.append("Where the pattern gives NaN the replacement may give anything.")
    if equiv.values == "normal":
        said.append("Nothing is promised for infinities and NaN.")
    if equiv.strides:
        said.append("The layout in memory is the same too.")
    if equiv.why:
        said.append(f"The reason: {plain(equiv.why)}")
    return said


def _tolerance(what: str, value: float | Mapping[str, float] | None) -> str | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return f"{what} {', '.join(f'{bound:g} for {plain(dtype)}' for dtype, bound in value.items())}"
    return f"{what} {value:g}"


def facts(rule: Rule, compiled: CompiledRule) -> list[str]:
    """Return in sentences what the keys of a rule say beside pattern, conditions, replacement and contract."""
    operators = sorted(compiled.anchor_names)
    said = [f"A match starts at {', '.join(code(one) for one in operators)}."] if operators else []
    if rule.dialect.source != "any" or rule.dialect.target != "same":
        target = "" if rule.dialect.target == "same" else f", to {code(rule.dialect.target)}"
        said.append(f"Dialect: {code(rule.dialect.source)}{target}.")
    if rule.kept:
        said.append(f"May stay for other users: {', '.join(code(name) for name in rule.kept)}.")
    said += [f"Attribute {code(name)} of matched calls: {_CARRIED[which]}." for name, which in rule.carried.items()]
    if rule.priority:
        said.append(f"Priority {rule.priority}.")
    said += [f"Group {code(rule.group)}."] if rule.group else []
    said += [f"Phase {rule.phase}: rules of lower phases go first."] if rule.phase else []
    said += _ways(rule)
    if rule.measure is not None:
        measure = rule.measure if isinstance(rule.measure, str) else f"at most {rule.measure.bound} times in a row"
        said.append(f"Ends by: {plain(measure)}.")
    said += _metadata(rule) + _trials(rule)
    said += [f"Need not matter: {plain(one.what)}, since {plain(one.why)}" for one in rule.verify.skip]
    said += [f"Tags: {', '.join(code(tag) for tag in rule.tags)}."] if rule.tags else []
    said += [f"Owner: {plain(rule.owner)}."] if rule.owner else []
    said += [f"Since {plain(rule.since)}."] if rule.since else []
    return said + [f"See {_url(link)}" for link in rule.links]


_CARRIED = {
    "first": "the result gets that of the first of them",
    "last": "the result gets that of the last of them",
    "none": "it is dropped",
}


def _ways(rule: Rule) -> list[str]:
    """Return when a match is rewritten, and which variants of the rule there are."""
    said = ["Applied where the description of the target says that it gains."] if rule.choose == "cost" else []
    for name, values in rule.tune.items():
        said.append(f"{code(name)} is one of {', '.join(map(str, values))}: the first for which there is memory.")
    said += ["May be applied to its own results."] if rule.recursive else []
    if rule.varying:
        said.append(f"Applied also where {', '.join(map(code, rule.varying))} vary at run time.")
    if rule.quantized:
        named = ", ".join(f"{code(name)} {plain(how)}" for name, how in rule.quantized.items())
        said.append(f"Variants of it are about quantized values: {named}.")
    return said


def _metadata(rule: Rule) -> list[str]:
    said = [f"New calls take the source line of {code(rule.meta.anchor)}."] if rule.meta.anchor else []
    said += ["New calls answer for the replaced calls only."] if rule.meta.debug == "root" else []
    tags = ", ".join(f"{code(name)} = {plain(str(value))}" for name, value in rule.meta.tags.items())
    return said + ([f"New calls are marked {tags}."] if tags else [])


def _trials(rule: Rule) -> list[str]:
    verify = rule.verify
    said = [f"Trials keep to {code(rule.gen)}."] if rule.gen else []
    said += [f"Tried {verify.trials} times."] if verify.trials else []
    said += [f"Tried on {verify.values} values."] if verify.values else []
    said += [f"Tried with sizes {', '.join(map(str, verify.dims))}."] if verify.dims else []
    said += [f"Must hold for {len(verify.examples)} examples of its own."] if verify.examples else []
    return said


def _url(link: str) -> str:
    """Return a link as one that can be followed if it is on the web, and as text otherwise."""
    is_web = link.startswith(("https://", "http://")) and not set(link) & set("<> \n\"'`")
    return f"<{link}>" if is_web else plain(link)
