"""`exirkit lower --external-constants`, `run --data`, `inspect` and `verify` of data files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Invoke, document

MODEL = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2), (torch.ones(1, 3),)
"""


@pytest.fixture
def files(invoke: Invoke, tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "model.py").write_text(MODEL)
    made = document(invoke("lower", "model.py:make", "-o", "m.pte", "--external-constants", "--json").stdout)
    assert made.data_files == ["m.ptd"]
    return tmp_path / "m.pte", tmp_path / "m.ptd"


def test_run_with_data_and_without(invoke: Invoke, files: tuple[Path, Path]) -> None:
    program, data = files
    invoke("lower", "model.py:make", "-o", "single.pte")
    wanted = document(invoke("run", "single.pte", "--ones", "--json").stdout).outputs
    found = document(invoke("run", program, "--ones", "--data", data, "--json").stdout)
    assert (found.outputs, found.data) == (wanted, [str(data)])
    failed = invoke("run", program, "--ones")
    assert failed.exit_code == 1
    assert "EK619" in failed.stderr


def test_inspect(invoke: Invoke, files: tuple[Path, Path]) -> None:
    program, data = files
    found = document(invoke("inspect", data, "--json").stdout)
    assert [(one.key, one.dtype, one.shape) for one in found.entries] == [
        ("weight", "float32", [2, 3]),
        ("bias", "float32", [2]),
    ]
    assert found.nbytes == data.stat().st_size
    shown = document(invoke("inspect", program, "--json").stdout).external_constants
    assert [(one.name, one.nbytes) for one in shown] == [("weight", 24), ("bias", 8)]
    assert "2 constants of 32 bytes in data files" in invoke("inspect", program).stdout


def test_verify(invoke: Invoke, files: tuple[Path, Path]) -> None:
    program, data = files
    assert document(invoke("verify", program, "--json").stdout).missing_data == ["weight", "bias"]
    assert invoke("verify", program, "--data", data).exit_code == 0
    assert invoke("verify", data).exit_code == 0
    data.write_bytes(data.read_bytes()[:-1])
    for arguments in ((data,), (program, "--data", data)):
        result = invoke("verify", *arguments, "--json")
        assert (result.exit_code, [one.code for one in document(result.stdout).diagnostics]) == (1, ["EK530"])
