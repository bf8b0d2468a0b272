"""Where the sign of a zero is not defined."""

from __future__ import annotations

import pytest

from exirkit.fuzz.examination.expectations import leaves_signs_of_zeros_open
from exirkit.fuzz.programs import parse_program

PROGRAM = """program(1)

def forward(x: "f32[3]", y: "f32[3]"):
    def turn(a):
        b = {inner}
        c = aten.clone.default(b)
        return c
    v = map(turn, [x], [])
    w = {outer}
    return v, w

run("forward", x=zeros(), y=zeros())
"""


@pytest.mark.parametrize(
    ("outer", "inner", "is_open"),
    [
        ("aten.mul.Tensor(x, y)", "aten.neg.default(a)", False),
        ("aten.clamp.default(x, -2.0, 2.0)", "aten.neg.default(a)", False),
        ("aten.clamp.default(x, 0.0)", "aten.neg.default(a)", True),
        ("aten.clamp.default(x, -2.0, 0)", "aten.neg.default(a)", True),
        ("aten.clamp.Tensor(x, y)", "aten.neg.default(a)", True),
        ("aten.maximum.default(x, y)", "aten.neg.default(a)", True),
        ("aten.mul.Tensor(x, y)", "aten.relu.default(a)", True),
    ],
)
def test_kernels_that_choose_among_zeros(outer: str, inner: str, is_open: bool) -> None:
    assert leaves_signs_of_zeros_open(parse_program(PROGRAM.format(outer=outer, inner=inner))) is is_open
