"""What users name to be inserted: patterns of the rule language, models with inputs, and rules."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from exirkit.ir import Diagnostic, ModelError, UsageError
from exirkit.patterns import CompiledRule, Rule, book_from_rules

from .models import ModelPatterns
from .sources import PatternSource, RulePatterns

Pattern: TypeAlias = "Mapping[str, Any] | CompiledRule"
"""A pattern as rules have it, a mapping with `vars`, `match` and perhaps `where`, `let`; or the one of a rule."""

_KEYS = ("vars", "match", "where", "unless", "gen")


def sources_of(
    pattern: Pattern | Sequence[Pattern] = (),
    examples: Iterable[tuple[Any, Sequence[Any]]] = (),
    rules: Iterable[CompiledRule] = (),
) -> list[PatternSource]:
    """Return what is to be inserted in programs.

    Args:
        pattern: A pattern, or several.
        examples: Models, each with its inputs.
        rules: Rules whose patterns are insertion.

    Raises:
        ModelError: What is wrong with a pattern, as in a rule: EK210 and following.
        UsageError: EK875, a model cannot be inserted; EK876, something is not a pattern or not a pair.
    """
    listed = list(pattern) if isinstance(pattern, list | tuple) else [pattern]
    sources: list[PatternSource] = [RulePatterns(one) for one in rules if one.pattern.kind not in ("input", "output")]
    sources += [_of_pattern(one, number) for number, one in enumerate(listed, 1)]
    for given in examples:
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise _neither(f"an example is {type(given).__name__}", "a pair of a model and a tuple of its inputs")
        model, inputs = given
        sources.append(ModelPatterns(model, inputs if isinstance(inputs, tuple | list) else (inputs,)))
    return sources


def _of_pattern(given: Any, number: int) -> RulePatterns:
    """Return candidates of a pattern; a pass promises nothing for infinities."""
    if isinstance(given, CompiledRule):
        return RulePatterns(given, is_special=False)
    if not isinstance(given, Mapping) or "match" not in given or not set(given) <= set(_KEYS):
        shown = ", ".join(map(str, given)) if isinstance(given, Mapping) else type(given).__name__
        raise _neither(f"a pattern is {shown}", f"a mapping with some of the keys {', '.join(_KEYS)}, or a rule")
    variables = dict(given.get("vars", {}))
    match = str(given["match"])
    first = next(iter(variables), None)
    if first is None:
        raise _neither("a pattern has no variables", "`vars` with the types of the names in `match`")
    # A rule needs a replacement, which nothing examines.
    results = ", ".join([first] * _number_of_results(match))
    rule = Rule(id=f"pattern.{number}", match=match, replace=f"return {results}", **_rest(given))
    book = book_from_rules([rule])
    if book.errors:
        raise ModelError(book.errors)
    return RulePatterns(book.rules[0], is_special=False)


def _rest(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key != "match"}


def _number_of_results(match: str) -> int:
    try:
        last = ast.parse(match.strip() if "\n" in match else f"def f():\n {match}").body[-1]
    except SyntaxError:
        return 1
    returned = [one for one in ast.walk(last) if isinstance(one, ast.Return)]
    value = returned[-1].value if returned else None
    return len(value.elts) if isinstance(value, ast.Tuple) else 1


def _neither(message: str, expected: str) -> UsageError:
    return UsageError(Diagnostic(code="EK876", message=f"{message}, which cannot be inserted", expected=expected))
