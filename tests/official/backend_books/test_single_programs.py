"""Classes and the rules beside them: a resize that was decomposed, what each call quantises, numbers in bodies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.executorch, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def said() -> Any:
    command = [sys.executable, "-m", "tests.official.backend_books.single_programs_worker"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert made.returncode == 0, made.stderr[-3000:]
    return json.loads(made.stdout.splitlines()[-1])


def test_parts_of_a_bilinear_resize_are_the_operator_again(said: Any) -> None:
    *exact, inexact = said["resizes"]
    for one in exact:
        assert one["here"] == one["official edge"] == {"aten.upsample_bilinear2d.vec": 1}
        assert one["error"] < 1e-5
    assert "aten.upsample_bilinear2d.vec" not in inexact["here"]
    # The class of this version looks for the operator itself, not for its parts.
    assert not any(one["there"] for one in said["resizes"])


def test_every_linear_layer_gets_a_dynamic_quantisation_of_its_own(said: Any) -> None:
    assert [one["here"] for one in said["chains"]] == [[n, n, n] for n in (2, 3, 2, 3, 1)]
    for one in said["chains"]:
        assert one["before"] == [1, 1, 1]
        assert one["here"] == one["there"]
        assert one["same"]


def test_numbers_that_bodies_hold_are_made_there(said: Any) -> None:
    assert [one["before"] for one in said["numbers"]] == [0, 0]
    assert [one["here"] for one in said["numbers"]] == [one["there"] for one in said["numbers"]] == [3, 1]
    assert all(one["same"] for one in said["numbers"])
