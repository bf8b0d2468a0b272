"""Comprehensions in patterns: `[f(x, p) for x in xs]` is a list all of whose elements are of one form."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from exirkit.patterns.syntax.terms import (
    Alternatives,
    Anything,
    Call,
    Each,
    Element,
    EveryUser,
    OperatorCall,
    Optional,
    Part,
    Splat,
    Through,
    children,
    walk,
)
from exirkit.patterns.types.lists import ListVariable
from exirkit.patterns.types.tensors import TensorListVariable

if TYPE_CHECKING:
    from exirkit.patterns.syntax.pattern_parser import PatternParser

_FORM = "write [aten.exp.default(x) for x in xs], with `xs: list of f32 [*S]` under `vars`"


def parse_each(parser: PatternParser, node: ast.ListComp | ast.GeneratorExp) -> Each:
    """Return the term of a comprehension.

    Args:
        parser: Of the pattern.
        node: The comprehension.

    Raises:
        PatternError: It is not one that a pattern can have; the diagnostic is in the scope.
    """
    if len(node.generators) != 1:
        raise parser.fail("a comprehension in a pattern has one `for`", node, hint=_FORM)
    loop = node.generators[0]
    if loop.ifs:
        raise parser.fail(
            "a comprehension in a pattern has no `if`: every element has to match", loop.ifs[0],
            hint="what holds for each goes into `where`: `all(rank(x) == 2 for x in xs)`; elements before and after the"
            " others are `[*before, *[... for x in xs], *rest]`",
        )  # fmt: skip
    names = names_of(parser, loop.target)
    lists = lists_of(parser, _lists(parser, loop.iter), loop.iter, len(names))
    return Each(element_of(parser, node, names, lists), names, lists, parser.place(node))


def element_of(
    parser: PatternParser,
    node: ast.ListComp | ast.GeneratorExp,
    names: tuple[str, ...],
    lists: tuple[str, ...],
    *,
    first_is_tensor: bool = False,
) -> Any:
    """Return the term of an element.

    Args:
        parser: Of the pattern.
        node: The comprehension.
        names: Names that stand for something else in every element.
        lists: Variables that they run over.
        first_is_tensor: The first name stands for a tensor, and runs over none of them.

    Raises:
        PatternError: It is not one that a comprehension can have.
    """
    place = parser.place(node.generators[0].target)
    kinds: list[Any] = ["tensor"] if first_is_tensor else []
    kinds += [getattr(parser.scope.variables[one], "element", None) for one in lists]
    elements = {
        name: Element(name, kind if isinstance(kind, str) else "tensor", place)
        for name, kind in zip(names, kinds, strict=True)
    }
    element = parser.term_with(node.elt, elements)
    _check(parser, node, element, names)
    return element


def names_of(parser: PatternParser, target: ast.expr) -> tuple[str, ...]:
    """Return the names of a comprehension.

    Raises:
        PatternError: They are not names, or mean something else already.
    """
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    if len(names) != len(parts) or len(set(names)) != len(names):
        raise parser.fail("the variable of a comprehension is a name, or several different ones", target, hint=_FORM)
    for name in names:
        if name in parser.scope.variables or name in parser.scope.symbols or name in parser.named:
            raise parser.fail(
                f"{name!r} means something else already", target, hint="choose another name for the element"
            )
    return tuple(names)


def _lists(parser: PatternParser, source: ast.expr) -> list[ast.expr]:
    match source:
        case ast.Name():
            return [source]
        case ast.Call(func=ast.Name(id="zip"), args=args, keywords=[]) if args:
            return list(args)
    raise parser.fail("a comprehension in a pattern runs over a variable, or `zip` of several", source, hint=_FORM)


def lists_of(parser: PatternParser, parts: Sequence[ast.expr], source: ast.expr, count: int) -> tuple[str, ...]:
    """Return the variables that a comprehension runs over.

    Args:
        parser: Of the pattern.
        parts: As they are written.
        source: All of them.
        count: How many names there are for their elements.

    Raises:
        PatternError: They are not lists, or others than there are names.
    """
    if len(parts) != count:
        raise parser.fail(f"{count} names for the elements of {len(parts)} lists", source)
    lists: list[str] = []
    for part in parts:
        variable = parser.scope.variables.get(part.id) if isinstance(part, ast.Name) else None
        if not isinstance(part, ast.Name) or not isinstance(variable, ListVariable | TensorListVariable):
            what = ast.unparse(part)
            raise parser.fail(
                f"{what} is not a list: its type under `vars` is {variable or 'missing'}", part,
                code="EK211" if variable is not None else "EK212",
                hint=f"declare `{what}: list of f32 [*S]`, or `{what}: ints len(xs)` for numbers",
            )  # fmt: skip
        lists.append(part.id)
    if len(set(lists)) != len(lists):
        raise parser.fail("a list runs along itself", source)
    return tuple(lists)


def _check(parser: PatternParser, node: ast.ListComp | ast.GeneratorExp, element: Part, names: tuple[str, ...]) -> None:
    """Reject what trials could not draw for every element on its own: then a rule would be tried for less than it says.

    Raises:
        PatternError: There is such a part.
    """
    terms = list(walk(element))
    for one in terms:
        is_open = isinstance(one, Anything) or (isinstance(one, Call) and one.is_open)
        if is_open or isinstance(one, Alternatives | Optional | Through):
            what = "`_` and `...`" if is_open else "`alt`, `opt` and `thru`"
            raise parser.fail(
                f"{what} cannot stand in a comprehension: elements could differ in it, and trials would not show it",
                node.elt, hint="write a name; one that differs by element runs over a list of its own, with `zip`",
            )  # fmt: skip
    if not isinstance(element, Call | OperatorCall):
        raise parser.fail("the element of a comprehension is a call", node.elt, hint=_FORM)
    missing = [name for name in names if not any(isinstance(one, Element) and one.name == name for one in terms)]
    if missing:
        raise parser.fail(f"the element does not use {missing[0]!r}", node.elt)


def comprehensions(parts: Iterable[Part]) -> Iterator[Each | EveryUser]:
    """Yield the comprehensions among terms."""
    return (part for part in parts if isinstance(part, Each | EveryUser))


def own_terms(each: Each | EveryUser) -> frozenset[int]:
    """Return the identities of the terms that are matched for every element again: those without a name."""
    own: set[int] = set()
    pending: list[Part] = [each.element]
    while pending:
        term = pending.pop()
        if getattr(term, "name", None) is None or isinstance(term, Element):
            own.add(id(term))
            pending += children(term)
    return frozenset(own)


def has_anchor(items: Sequence[Part]) -> bool:
    """Whether a list needs to be divided by its elements: it has a comprehension, or a `*` on either side of one."""
    splats = [item for item in items if isinstance(item, Splat)]
    return len(splats) > 1 or any(isinstance(item.term, Each) for item in splats)


def is_valid_list(items: Sequence[Part]) -> bool:
    """Whether something stands between any two `*` of a list, which divides it: an element, or one comprehension."""
    kinds = ["*" if isinstance(item, Splat) and not isinstance(item.term, Each) else "" for item in items]
    if kinds.count("*") > 2 or sum(isinstance(getattr(item, "term", None), Each) for item in items) > 1:
        return False
    whole = any(isinstance(item, Splat) and isinstance(item.term, Call) for item in items)
    places = [index for index, kind in enumerate(kinds) if kind]
    return len(places) < 2 or (places[1] - places[0] > 1 and not whole)
