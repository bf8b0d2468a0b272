"""`exirkit bundle`, and `run`, `inspect` and `verify` of bundled programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Invoke, document

MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return x * 2 + self.count

def make():
    return Model(), (torch.ones(1, 3),)
"""


@pytest.fixture
def program(invoke: Invoke, tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    assert invoke("lower", "model.py:make", "-o", "m.pte").exit_code == 0
    return tmp_path / "m.pte"


@pytest.mark.parametrize("options", [(), ("--model", "model.py:make")])
def test_what_is_bundled_is_verified(invoke: Invoke, program: Path, options: tuple[str, ...]) -> None:
    made = document(invoke("bundle", program, "-o", "m.bpte", "--cases", "3", *options, "--json").stdout)
    assert vars(made.cases) == {"forward": 3}
    found = document(invoke("verify", "m.bpte", "--json").stdout)
    assert [(one.index, one.verdict) for one in found.cases] == [(at, "as expected") for at in range(3)]
    assert "3 test cases on the reference runtime: 3 as expected" in invoke("verify", "m.bpte").stdout
    assert vars(document(invoke("inspect", "m.bpte", "--json").stdout).test_cases) == {"forward": 3}
    ran = document(invoke("run", "m.bpte", "--case", "2", "--json").stdout)
    assert (ran.case, ran.differences) == (2, [])
    # State goes from run to run, so that the second is not what the case expects.
    assert invoke("run", "m.bpte", "--repeat", "2").exit_code == 1
    assert document(invoke("run", "m.bpte", "--ones", "--json").stdout).case is None


def test_inputs_from_a_file_and_a_changed_expectation(invoke: Invoke, program: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1.0, 2.0, 4.0]], dtype=np.float32))
    assert invoke("bundle", program, "-o", "m.bpte", "--input", "x.npy").exit_code == 0
    assert document(invoke("run", "m.bpte", "--json").stdout).outputs[0].first == [3.0, 5.0, 9.0]
    data = bytearray((tmp_path / "m.bpte").read_bytes())
    at = data.rfind(np.array([3.0, 5.0, 9.0], dtype=np.float32).tobytes())
    data[at : at + 4] = np.float32(3.5).tobytes()
    (tmp_path / "m.bpte").write_bytes(data)
    verified = invoke("verify", "m.bpte", "--json")
    assert (verified.exit_code, [one.code for one in document(verified.stdout).diagnostics]) == (1, ["EK728"])
    assert invoke("verify", "m.bpte", "--rtol", "0.2").exit_code == 0
    assert "not as expected" in invoke("run", "m.bpte").stdout
    assert invoke("run", "m.bpte", "--rtol", "0.2").exit_code == 0
    assert invoke("run", "m.bpte", "--atol", "0.4").exit_code == 1


@pytest.mark.executorch
def test_the_official_runtime_verifies_too(invoke: Invoke, program: Path) -> None:
    assert invoke("bundle", program, "-o", "m.bpte", "--cases", "2").exit_code == 0
    shown = invoke("verify", "m.bpte", "--official").stdout
    assert "2 test cases on the official runtime: 2 as expected" in shown


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("bundle", "m.pte", "-o", "m.pte"), "EK712"),
        (("bundle", "m.pte", "-o", "m.bpte", "--method", "other"), "EK723"),
        (("bundle", "m.pte", "-o", "m.bpte", "--input", "x.npy", "--cases", "2"), "EK711"),
        (("run", "m.pte", "--case", "0"), "EK711"),
        (("run", "m.pte", "--case", "0", "--ones"), "EK711"),
    ],
)
def test_wrong_usage(invoke: Invoke, program: Path, arguments: tuple[str, ...], code: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, code in result.stderr) == (2, True)
