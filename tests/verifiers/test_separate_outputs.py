"""Outputs for which the caller provides memory are found out if they are something else."""

from __future__ import annotations

import pytest

from exirkit.fuzz.programs import build, parse_program
from exirkit.verifiers import check_separate_outputs

TEXT = """
program(1)
w = parameter("f32[3]", dyadic(3))

def forward(x: "f32[3]", z: "f32[3]"):
    y = aten.relu.default(x)
    update(z, y)
    return y, {result}, 3

run("forward", x=dyadic(1), z=dyadic(2))
"""


@pytest.mark.parametrize(
    ("result", "plans_inputs", "plans_outputs", "is_wrong"),
    [
        ("y", True, False, True),
        ("y", False, True, False),
        ("x", True, False, True),
        ("x", False, True, True),
        ("x", True, True, False),
        ("w", True, False, True),
        ("w", False, True, False),
    ],
)
def test_what_the_caller_provides_is_nothing_else(
    result: str, plans_inputs: bool, plans_outputs: bool, is_wrong: bool
) -> None:
    program = build(parse_program(TEXT.format(result=result)))["forward"]
    found = check_separate_outputs(program, alloc_graph_input=plans_inputs, alloc_graph_output=plans_outputs)
    assert [one.code for one in found] == ["EK356"] * is_wrong
