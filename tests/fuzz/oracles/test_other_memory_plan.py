"""Another memory plan: last bits may differ where values lie loosely aligned, and nothing else may."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.examination import run_file
from exirkit.fuzz.oracles import check
from exirkit.fuzz.oracles.files import other_memory_plan
from exirkit.fuzz.programs import parse_program

PROGRAM = parse_program("""program(1)

def forward(x: "f32[4]"):
    a = aten.neg.default(x)
    b = aten.abs.default(x)
    return a, b

run("forward", x=numbers([1.0, -2.0, 3.0, 4.0]))
""")
LAST_BIT, WRONG = 1 + 2**-23, 2.0


@pytest.mark.parametrize(
    ("alignment", "factors", "is_found"),
    [
        (16, (1.0, 1.0), False),
        (16, (LAST_BIT, 1.0), True),
        (8, (LAST_BIT, 1.0), False),
        (8, (1.0, WRONG), True),
        # What may differ hides nothing behind it.
        (8, (LAST_BIT, WRONG), True),
    ],
)
def test_only_last_bits_of_loosely_aligned_values_may_differ(
    monkeypatch: pytest.MonkeyPatch, alignment: int, factors: tuple[float, float], is_found: bool
) -> None:
    def changed(*arguments: Any, **options: Any) -> Any:
        return [
            replace(one, outputs=[value * factor for value, factor in zip(one.outputs, factors, strict=True)])
            for one in run_file(*arguments, **options)
        ]

    monkeypatch.setattr(other_memory_plan, "run_file", changed)
    compiler = ExirkitCompiler(alignment=alignment)
    failures = check(PROGRAM, compiler=compiler, oracles=["other-memory-plan"]).failures
    assert bool(failures) is is_found
