"""Rules from traces of functions that take lists of tensors, and of sizes that vary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tests.patterns.exported_programs import Computes

from exirkit import to_edge
from exirkit.ir import GraphEditor, UsageError, copy_program
from exirkit.patterns import RuleEngine, check_book, parse_book, trace_rule

PAIR = [torch.randn(2, 3), torch.randn(2, 3)]
X = torch.randn(6, 3)
Function = Callable[..., Any]


def edge(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    return to_edge(program).exported_program()


def traced(pattern: Function, replacement: Function, examples: dict[str, Any], **options: Any) -> Any:
    """Make a rule in which every literal is meant as it is."""
    open_ = trace_rule(pattern, replacement, examples, rule_id="mine.it", lower=edge, **options).undecided
    decide = dict.fromkeys(open_, "exact")
    return trace_rule(pattern, replacement, examples, rule_id="mine.it", lower=edge, decide=decide, **options)


def accepted(made: Any) -> list[Any]:
    book = parse_book(made.text).require_valid()
    verdict = check_book(book, trials=30)
    assert verdict.is_accepted, [one.render() for each in verdict.rules for one in each.found]
    return list(book.rules)


def fired(rules: Sequence[Any], function: Function, *given: torch.Tensor, shapes: Any = None) -> int:
    program = edge(torch.export.export(Computes(lambda _, *args: function(*args)), given, dynamic_shapes=shapes))
    editor = GraphEditor(copy_program(program))
    report = RuleEngine(rules).run(editor)
    torch.testing.assert_close(editor.program.module()(*given), program.module()(*given))
    return len(report.journal)


def test_a_list_is_a_comprehension() -> None:
    """What two tensors have shown holds for any number of them."""
    made = traced(
        lambda xs: torch.cat([x.permute(1, 0) for x in xs], 0),
        lambda xs: torch.cat(xs, 1).permute(1, 0),
        {"xs": PAIR},
    )
    assert made.rule.vars == {"xs": "list of f32 [N, K]"}
    assert made.rule.match == ("return aten.cat.default([aten.permute_copy.default(x, [1, 0]) for x in xs])\n")
    assert made.rule.replace == "return aten.permute_copy.default(aten.cat.default(xs, 1), [1, 0])\n"
    rules = accepted(made)

    def three(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.cat([one.permute(1, 0) for one in (a, b, c)], 0)

    def other(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.cat([a.permute(1, 0), b.permute(1, 0), c], 0)

    assert fired(rules, three, *(torch.randn(4, 5) for _ in range(3))) == 1
    assert fired(rules, other, torch.randn(4, 5), torch.randn(4, 5), torch.randn(5, 4)) == 0


def test_lists_run_along_between_other_tensors() -> None:
    made = traced(
        lambda a, xs, ys: torch.cat([a, *[x.exp() * y for x, y in zip(xs, ys, strict=True)], a]),
        lambda a, xs, ys: torch.cat([a, *[y * x.exp() for x, y in zip(xs, ys, strict=True)], a]),
        {"a": X, "xs": PAIR, "ys": PAIR},
    )
    inside = "aten.mul.Tensor(aten.exp.default(x), y) for x, y in zip(xs, ys)"
    assert made.rule.match == f"return aten.cat.default([a, *[{inside}], a])\n"
    accepted(made)


def test_what_all_elements_share_is_one_value() -> None:
    """Numbers of each call are one literal, and a tensor beside the list is one name."""
    made = traced(
        lambda k, xs: (lambda e: torch.cat([x * 2.5 + e for x in xs]))(k.exp()),
        lambda k, xs: torch.cat(xs) * 2.5 + torch.cat([k.exp() for _ in xs]),
        {"k": PAIR[0], "xs": PAIR},
    )
    assert made.rule.match.endswith("aten.add.Tensor(aten.mul.Tensor(x, 2.5), exp) for x in xs])\n")
    with pytest.raises(UsageError, match="does not treat all elements of xs alike"):
        trace_rule(
            lambda xs: torch.cat([xs[0] * 2.5, xs[1] * 3.5]), torch.cat, {"xs": PAIR}, rule_id="mine.it", lower=edge
        )


def test_replacements_take_lists_apart() -> None:
    made = trace_rule(
        lambda xs: torch.cat([x.exp() for x in xs]),
        lambda xs: torch.cat([xs[1].exp(), xs[0].exp() + xs[1]]),
        {"xs": PAIR}, rule_id="mine.it", lower=edge,
    )  # fmt: skip
    one, other = "aten.exp.default(xs[1])", "aten.add.Tensor(aten.exp.default(xs[0]), xs[1])"
    assert made.rule.replace == f"return aten.cat.default([{one}, {other}])\n"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (lambda xs: torch.cat([xs[0].exp(), xs[1]]), "does not treat all elements of xs alike"),
        (lambda xs: torch.cat([xs[1], xs[0]]), "does not treat all elements of xs alike"),
        (lambda xs: torch.cat([xs[0], xs[1], xs[0]]), "does not treat all elements of xs alike"),
        (lambda xs: xs[0] + xs[1], "does not treat all elements of xs alike"),
        (lambda xs: xs[0].exp(), "does not use its argument 'xs'"),
        (lambda xs: torch.cat([x.max(0)[0] for x in xs]), "an element of a list calls aten.max.dim"),
        (lambda xs: torch.cat([e * e for e in (x.exp() for x in xs)]), "computes twice"),
    ],
)
def test_patterns_that_are_not_about_any_number(pattern: Function, said: str) -> None:
    with pytest.raises(UsageError) as error:
        trace_rule(pattern, torch.cat, {"xs": PAIR}, rule_id="mine.it", lower=edge)
    assert error.value.code == "EK266"
    assert said in str(error.value)


@pytest.mark.parametrize("example", [PAIR[:1], [PAIR[0], X], [PAIR[0], 2], [PAIR[0], PAIR[1].double()]])
def test_examples_that_are_not_lists_of_one_type(example: Any) -> None:
    with pytest.raises(UsageError) as error:
        trace_rule(torch.cat, torch.cat, {"xs": example}, rule_id="mine.it")
    assert error.value.code == "EK256"


# Sizes that vary


@pytest.mark.parametrize(
    ("pattern", "replacement", "match", "replace"),
    [
        (
            lambda x: x.reshape(x.shape[0] * 3).exp(),
            lambda x: x.exp().reshape(x.shape[0] * 3),
            "return aten.exp.default(aten.view_copy.default(x, [(N * 3)]))\n",
            "return aten.view_copy.default(aten.exp.default(x), [(N * 3)])\n",
        ),
        (
            lambda x: x.exp()[: x.shape[0] // 2],
            lambda x: x[: x.shape[0] // 2].exp(),
            "return aten.slice_copy.Tensor(aten.exp.default(x), 0, None, (N // 2))\n",
            "return aten.exp.default(aten.slice_copy.Tensor(x, 0, None, (N // 2)))\n",
        ),
    ],
)
def test_sizes_are_computed_by_the_rule(pattern: Function, replacement: Function, match: str, replace: str) -> None:
    made = traced(pattern, replacement, {"x": X}, varying=["N"])
    assert (made.rule.match, made.rule.replace, made.rule.varying) == (match, replace, ("N",))
    rules = accepted(made)
    assert fired(rules, pattern, torch.randn(5, 3), shapes=(({0: torch.export.Dim.DYNAMIC},),)) == 1
    assert fired(rules, pattern, torch.randn(5, 3)) == 1


def test_a_size_becomes_a_tensor() -> None:
    made = traced(
        lambda x: x.mean(0, keepdim=True), lambda x: x.sum(0, keepdim=True) * (1.0 / x.shape[0]), {"x": X},
        varying=["N"],
    )  # fmt: skip
    total = "aten.sum.dim_IntList(x, [0], True)"
    assert made.rule.replace == f"return aten.mul.Tensor({total}, scalar((1.0 / N), f32))\n"
    inexact = made.text + "  equiv: {rtol: 1.0e-5, atol: 1.0e-6}\n"
    assert check_book(parse_book(inexact).require_valid(), trials=30).is_accepted


@pytest.mark.parametrize(
    ("varying", "pattern", "code", "said"),
    [
        ("M", torch.exp, "EK265", "no example has a size 'M'"),
        ("K", lambda x: x.reshape(-1, 3).exp(), "EK266", "torch.export failed"),
        ("N", lambda x: x.exp()[: (x.shape[0] + 1) ** 2 // 2], "EK266", "computes a size by"),
    ],
)
def test_sizes_that_cannot_vary(varying: str, pattern: Function, code: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        trace_rule(pattern, torch.exp, {"x": X}, rule_id="mine.it", lower=edge, varying=[varying])
    assert error.value.code == code
    assert said in str(error.value)


def test_sizes_of_values_of_the_program_do_not_vary() -> None:
    with pytest.raises(UsageError, match=r"sizes of input\(\.\.\.\) cannot vary"):
        trace_rule(lambda x: x, torch.exp, {"x": X}, rule_id="mine.it", root="input", varying=["N"])
