"""`greedy` gives every tensor the official place, and no arena of `portfolio` is larger."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from typing import Any

import pytest
import torch

from exirkit.ir import TensorSpec
from exirkit.passes.memory.planners import greedy, portfolio

# The official package warns on import and registers operators, so it gets a process of its own.
_WORKER = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
from executorch.exir.memory_planning import greedy
from executorch.exir.tensor import TensorSpec

answers = []
for case in json.load(sys.stdin):
    specs = []
    for nbytes, first, last, mem_id in case["rows"]:
        spec = TensorSpec(torch.uint8, torch.Size([nbytes]))
        spec.lifetime, spec.mem_id = [first, last], mem_id
        specs.append(spec)
    result = greedy(case["alignment"], specs, None, None, 0)
    answers.append([result.bufsizes, [result.spec_dict[spec].mem_offset for spec in specs]])
print("answers", json.dumps(answers))
"""


def official_plans(cases: list[dict[str, Any]]) -> list[tuple[list[int], list[int]]]:
    run = subprocess.run(
        [sys.executable, "-c", _WORKER],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr
    line = next(line for line in run.stdout.splitlines() if line.startswith("answers"))
    return json.loads(line.removeprefix("answers"))


def specs_of(case: dict[str, Any]) -> list[TensorSpec]:
    specs = []
    for nbytes, first, last, mem_id in case["rows"]:
        spec = TensorSpec(torch.uint8, [nbytes])
        spec.lifetime, spec.mem_id = [first, last], mem_id
        specs.append(spec)
    return specs


def draw_case(draw: random.Random) -> dict[str, Any]:
    count = draw.choice([1, 2, 3, 5, 8, 13, 30, 80])
    steps = draw.choice([2, 5, 20, 100])
    long_share = draw.choice([0.0, 0.2, 1.0])
    arenas: list[int | None] = draw.choice([[None], [None, 1, 2, 4]])
    rows: list[tuple[int, int, int, int | None]] = []
    for _ in range(count):
        first = draw.randint(0, steps)
        length = draw.randint(0, steps if draw.random() < long_share else 3)
        nbytes = draw.choice([0, 1, 15, 16, 17, 64, 100, 256, 1000, 4096, draw.randint(0, 6000)])
        rows.append((nbytes, first, min(steps, first + length), draw.choice(arenas)))
    return {"rows": rows, "alignment": draw.choice([16, 64, 4096])}


@pytest.mark.executorch
@pytest.mark.slow
def test_no_arena_is_larger_and_greedy_is_the_same() -> None:
    draw = random.Random(20260101)
    cases = [draw_case(draw) for _ in range(300)]
    smaller = 0
    for case, (sizes, offsets) in zip(cases, official_plans(cases), strict=True):
        specs = specs_of(case)
        best = portfolio(case["alignment"], specs, None, None)  # type: ignore[arg-type]
        assert len(best.bufsizes) == len(sizes)
        assert all(mine <= theirs for mine, theirs in zip(best.bufsizes, sizes, strict=True)), case
        smaller += best.bufsizes != sizes
        same = greedy(case["alignment"], specs, None, None)  # type: ignore[arg-type]
        assert same.bufsizes == sizes, case
        # An empty tensor is not in the way: where it lies makes no difference.
        assert [
            same.spec_dict[spec].mem_offset if spec.nbytes() else offset
            for spec, offset in zip(specs, offsets, strict=True)
        ] == offsets
    assert smaller > 10
