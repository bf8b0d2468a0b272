"""What `exirkit.exir` provides itself does what the official functions of the same names do, on the same programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from tests.official.oracle import ROOT

pytestmark = [pytest.mark.executorch]


def test_functions_do_what_the_official_ones_do() -> None:
    command = [sys.executable, "-m", "tests.official.passes.provided_worker"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    different = [one for one in answers if one["ours"] != one["theirs"]]
    assert different == []
    tried = Counter(one["name"] for one in answers)
    assert len(tried) > 25
    assert tried["constant_prop_pass"] > 15
    # A trial in which nothing ever happens would show nothing: what comes out is not the same for all programs.
    for name in ("dead_code_elimination_pass", "CSEPass of equal calls", "SpecPropPass", "get_control_flow_submodules"):
        assert len({json.dumps(one["ours"]) for one in answers if one["name"] == name}) > 1
