"""Sizes that are known at run time only, as numbers and tensors of replacements."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.patterns.replacements.test_loops import Whole

from exirkit import ApplyRules, to_edge
from exirkit.patterns import builder, check_book, parse_book
from exirkit.patterns.checking.trials.rule_trials import RuleTrials
from exirkit.patterns.checking.trials.varying import varying_findings


@builder("frozen_size")
def frozen_size(make: Any, x: Any) -> Any:
    """Multiply by the size that an example had, over the size at run time."""
    size = make.shape(x)[0]
    number = size.node.hint if isinstance(size, torch.SymInt) else int(size)
    ratio = make.call(
        "aten.div.Tensor",
        make.call("aten.full.default", [1], float(number)),
        make.call("aten.scalar_tensor.default", size),
    )
    return make.call("aten.mul.Tensor", make.call("aten.exp.default", x), ratio)


DIM = torch.export.Dim("batch", min=2, max=64)
EXP = """rulebook: 1
rules:
- id: one
  vars: {{x: 'f32 [N, M]'}}
  varying: [N]
  match: return aten.exp.default(x)
  measure: once
  replace: return {}
"""
# Numbers of sizes; each rule divides by the number that it multiplies by.
NUMBERS = {
    "size(x, 0)": "sym_size",
    "N + M": "add",
    "N * N - 1": "mul",
    "N // 2 + 1": "floordiv",
    "N % 3 + 1": "mod",
    "1.0 / N": "truediv",
    "max(N, 7)": "sym_max",
    "min(5, size(x, -2))": "sym_min",
    "float(N) * 0.5": "sym_float",
    "ceil(N / 4)": "ceil",
    "floor(N / 2) + 1": "floor",
    "N ** 2": "pow",
    "prod(shape(x))": "sym_size",
}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("form", ["scalar({}, f32)", "{}"])
def test_numbers_at_run_time(number: str, form: str) -> None:
    written = form.format(number)
    text = EXP.format(
        f"aten.mul.Tensor(aten.exp.default(aten.mul.Tensor(aten.div.Tensor(x, {written}), {written})), 1.0)"
    )
    book = parse_book(text, "book.yaml")
    assert not book.found, [one.render() for one in book.found]
    exported = torch.export.export(Whole(torch.exp), (torch.randn(6, 3),), dynamic_shapes=(({0: DIM},),))
    program = to_edge(exported).transform([ApplyRules(book)])
    rewritten = program.exported_program()
    calls = [str(node.target) for node in rewritten.graph.nodes if node.op == "call_function"]
    assert any(NUMBERS[number] in call for call in calls), calls
    for count in (2, 6, 13):
        x = torch.randn(count, 3)
        torch.testing.assert_close(rewritten.module()(x), x.exp(), rtol=1e-5, atol=1e-5)
    program.to_executorch()


def findings(text: str, trials: int = 20) -> list[str]:
    verdict = check_book(parse_book(text, "book.yaml"), trials=trials)
    found = [*verdict.found, *(one for rule in verdict.rules for one in rule.found)]
    return [f"{one.code} {one.message}" for one in found if one.severity == "error"]


def test_what_is_declared_is_tried() -> None:
    good = EXP.format("aten.exp.default(aten.mul.Tensor(x, scalar(max(N, 1) // max(N, 1), f32)))")
    assert findings(good) == []


WRONG = {
    "aten.exp.default(x) if N < 4 else aten.exp.default(aten.neg.default(aten.neg.default(x)))": "EK228",
    "aten.exp.default(aten.cat.default([x] + [aten.slice.Tensor(x, 0, 0, 0) for i in range(N)], 0))": "EK228",
    "aten.exp.default(aten.view.default(x, [N, M + 0 * int(scalar(N, f32))]))": "EK",
    "aten.exp.default(aten.mul.Tensor(x, scalar(N, f32, 1)))": "EK221",
    "aten.exp.default(aten.mul.Tensor(x, scalar(x, f32)))": "EK219",
    "aten.exp.default(aten.mul.Tensor(x, scalar(N, 3)))": "EK219",
}


@pytest.mark.parametrize("replacement", WRONG)
def test_what_fixes_sizes_or_is_not_in_the_language(replacement: str) -> None:
    found = findings(EXP.format(replacement))
    assert found
    assert found[0].startswith(WRONG[replacement]), found


def test_conditions_that_hold_for_some_sizes_only() -> None:
    text = EXP.format("aten.exp.default(aten.neg.default(aten.neg.default(x)))").replace(
        "  measure", "  where: {expr: N < 100, kind: profit}\n  measure"
    )
    assert findings(text) == ["EK228 rule one, where N varies, is not applied: a condition does not hold for all sizes"]
    assert findings(text.replace("  varying: [N]\n", "")) == []


NAMES = {
    "varying: [K]": "'K' cannot vary: it is not a size of a tensor",
    "varying: x": "'x' cannot vary: it is not a size of a tensor",
    "varying: C": "'C' cannot vary: c is a stored tensor",
    "varying: H": "'H' cannot vary: no tensor has a dim of this size alone",
}


@pytest.mark.parametrize("declared", NAMES)
def test_names_that_cannot_vary(declared: str) -> None:
    text = f"""rulebook: 1
rules:
- id: one
  vars: {{x: 'f32 [N, 2 * H]', c: 'const f32 [C]'}}
  {declared}
  match: return aten.add.Tensor(aten.exp.default(x), aten.neg.default(c))
  replace: return aten.sub.Tensor(aten.exp.default(x), c)
"""
    found = parse_book(text, "book.yaml").found
    assert [one.code for one in found] == ["EK227"]
    assert NAMES[declared] in found[0].message


def test_sequences_and_broadcasting_sizes_vary() -> None:
    text = """rulebook: 1
rules:
- id: one
  vars: {x: 'f32 [*S]', y: 'f32 [~S]', S: 'dims'}
  varying: S
  match: return aten.mul.Tensor(x, y)
  replace: return aten.mul.Tensor(y, x)
  measure: once
"""
    text = text.replace(", S: 'dims'", "")
    assert findings(text) == []


def test_wrong_results_at_other_sizes_are_found() -> None:
    # A constant that is right for the size with which a program was exported: no trial of one size shows it.
    book = parse_book(EXP.format("build.frozen_size(x)"), "book.yaml")
    (found,) = varying_findings(RuleTrials(book.rules[0]))
    assert found.code == "EK228"
    assert "is wrong for N = " in found.message
