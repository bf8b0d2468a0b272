from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Invoke, document


@pytest.mark.slow
def test_demo(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("demo", "--json", "-o", "mobilenet.pte")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    found = document(result.stdout)
    assert found.parameters == 3_504_872
    assert 0 <= found.max_abs_error <= found.tolerance
    assert found.max_abs_output > 0.1
    assert found.kept
    assert found.lowering.nbytes == (tmp_path / "mobilenet.pte").stat().st_size
    convolutions = sum(each.calls for each in found.lowering.methods[0].operators if "convolution" in each.name)
    assert convolutions == 52


@pytest.mark.slow
def test_people_see_a_table(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("demo")
    assert result.exit_code == 0, result.stderr
    for fact in ("aten::convolution.out", "3,504,872 parameters", "largest difference from it"):
        assert fact in result.stdout
    assert list(tmp_path.iterdir()) == []
