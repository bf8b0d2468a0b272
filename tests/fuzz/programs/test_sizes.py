"""Sizes as text: what is read, what it means, and what is an error."""

from __future__ import annotations

import pytest
import torch

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import build, parse_program, program_text
from exirkit.fuzz.programs.modules import linear_in, module_source
from exirkit.fuzz.programs.sizes import size_text, size_tree, size_value, symbols_of

PROGRAM = """program(1)
s0 = symbol(2, 9)

def forward(x: "f32[s0]"):
    a = aten.full.default([max(s0, 5)], 1.0)
    b = aten.full.default([min(s0, 5) + 1], 2.0)
    c = aten.full.default([s0 - s0 % 2], 3.0)
    d = aten.full.default([s0 ** 2], 4.0)
    e = aten.neg.default(d)
    return x, a, b, c, e

run("forward", s0=9, x=dyadic(1))
run("forward", s0=2, x=dyadic(2))
"""


@pytest.mark.parametrize(
    ("text", "value"),
    [("max(s0, 5) + 1", 8), ("min(s0, 5)", 5), ("s0 - s0 % 2", 6), ("s0 ** 2", 49), ("(s0 + 1) // 2", 4), ("3", 3)],
)
def test_sizes_are_read_and_written(text: str, value: int) -> None:
    assert size_text(text) == text
    assert size_value(text, {"s0": 7}) == value
    assert symbols_of(text) == (() if text == "3" else ("s0",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s0 % 0", "divided by positive"),
        ("s0 % s1", "divided by positive"),
        ("s0 ** 40", "a power of a size is one of 1 to 3"),
        ("s0 ** s0", "a power"),
        ("max(s0)", "max is of two sizes"),
        ("min(s0, 1, key=2)", "min is of two sizes"),
        ("abs(s0)", "not of `abs"),
        ("s0 / 2", "not of `s0 / 2`"),
    ],
)
def test_what_is_none_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        size_tree(text)


def test_only_multiples_and_sums_can_be_inverted() -> None:
    assert linear_in("2 * s0 + 1", "s0") == (2, 1)
    assert linear_in("min(s0, 7)", "s0") is None
    assert linear_in("s0 % 9", "s0") is None


@pytest.mark.parametrize("level", [0, 1, 2])
def test_programs_compute_them(level: int) -> None:
    program = parse_program(PROGRAM)
    assert parse_program(program_text(program)) == program
    verdict = check(program, compiler=ExirkitCompiler(level=level, kernels="official"))
    assert verdict.is_good, verdict.failures
    assert verdict.unsupported is None


def test_models_ask_nothing_of_them() -> None:
    """The printed module exports with the same range of sizes."""
    program = parse_program(PROGRAM)
    source = module_source(program)
    assert "torch.sym_max(s0, 5)" in source
    built = build(program)["forward"]
    (sizes,) = {str(one) for one in built.range_constraints.values()}
    assert "2" in sizes
    assert "9" in sizes
    assert [tuple(one.shape) for one in built.module()(torch.ones(3))] == [(3,), (5,), (4,), (2,), (9,)]
