"""`exirkit diff` as people and scripts see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Invoke, document


@pytest.fixture
def two_levels(invoke: Invoke, model_file: Path) -> tuple[Path, Path]:
    files = []
    for level in (0, 1):
        files.append(model_file.with_name(f"tiny{level}.pte"))
        assert invoke("lower", "models.py:tiny", f"-O{level}", "-o", files[-1]).exit_code == 0
    return files[0], files[1]


def test_a_file_and_itself(invoke: Invoke, program_file: Path) -> None:
    result = invoke("diff", program_file, program_file)
    assert result.exit_code == 0
    assert "compute the same" in result.stdout
    assert "nothing differs in 1 instruction\n" in result.stdout


def test_two_levels(invoke: Invoke, two_levels: tuple[Path, Path]) -> None:
    result = invoke("diff", *two_levels, "--json")
    assert result.exit_code == 1
    assert result.stderr == ""
    found = document(result.stdout)
    assert not found.same_meaning
    assert found.nbytes == [path.stat().st_size for path in two_levels]
    assert [sum(vars(kinds).values()) for kinds in found.bytes_by_kind] == found.nbytes
    (method,) = found.methods
    assert vars(method.operators)["aten::permute_copy.out"] == [1, 0]
    assert method.differing_outputs == [0]
    text = invoke("diff", *two_levels).stdout
    assert "method forward: output 0 computed in another way" in text
    assert "A 0: aten::permute_copy.out(" in text


def test_one_method(invoke: Invoke, program_file: Path) -> None:
    result = invoke("diff", program_file, program_file, "--method", "encode")
    assert result.exit_code == 2
    assert "EK723" in result.stderr
    assert invoke("diff", program_file, program_file, "--method", "forward").exit_code == 0


def test_what_is_not_a_program(invoke: Invoke, program_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pte"
    other.write_bytes(b"nothing of a program")
    result = invoke("diff", program_file, other)
    assert result.exit_code == 1
    assert str(other) in result.stderr
    assert invoke("diff", program_file, tmp_path / "absent.pte").exit_code == 1
