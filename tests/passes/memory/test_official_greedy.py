"""No arena is larger than the official planner's greedy algorithm makes it."""

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
from exirkit.passes.memory import greedy

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
    answers.append(greedy(case["alignment"], specs, None, None, 0).bufsizes)
print("answers", json.dumps(answers))
"""


def official_sizes(cases: list[dict[str, Any]]) -> list[list[int]]:
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
def test_no_arena_is_larger_and_the_heuristic_is_the_same() -> None:
    draw = random.Random(20260101)
    cases = [draw_case(draw) for _ in range(300)]
    smaller = 0
    for case, official in zip(cases, official_sizes(cases), strict=True):
        ours = greedy(case["alignment"], specs_of(case), None, None)  # type: ignore[arg-type]
        assert len(ours.bufsizes) == len(official)
        assert all(mine <= theirs for mine, theirs in zip(ours.bufsizes, official, strict=True)), case
        smaller += ours.bufsizes != official
        assert shared_object_sizes(case) == official, case
    assert smaller > 10


def shared_object_sizes(case: dict[str, Any]) -> list[int]:
    """Return what the shared-object heuristic makes of each arena before anything is compacted."""
    from exirkit.passes.memory.greedy import _official_order
    from exirkit.passes.memory.demand import Demand
    from exirkit.passes.memory.shared_objects import pack_shared_objects

    arenas: dict[int, list[TensorSpec]] = {}
    for spec in specs_of(case):
        arenas.setdefault(spec.mem_id or 1, [])
        if spec.nbytes():
            arenas[spec.mem_id or 1].append(spec)
    sizes = [0] * (max(arenas) + 1)
    for mem_id, specs in arenas.items():
        aligned = [-(-spec.nbytes() // case["alignment"]) * case["alignment"] for spec in specs]
        lifetimes = [(spec.lifetime[0] or 0, spec.lifetime[1] or 0) for spec in specs]
        demand = Demand([first for first, _ in lifetimes], [last for _, last in lifetimes], aligned)
        packed = pack_shared_objects(demand, _official_order(specs, aligned))
        assert packed is not None
        sizes[mem_id] = packed[0].height
    return sizes
