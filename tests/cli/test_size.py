"""`exirkit size` as people and scripts see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Invoke, document

WIDE = """
import torch


def wide():
    encoder = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    return torch.nn.Sequential(encoder, torch.nn.Linear(4, 2)), (torch.ones(3, 8),)
"""


@pytest.fixture
def wide(invoke: Invoke, tmp_path: Path) -> str:
    (tmp_path / "wide.py").write_text(WIDE)
    return "wide.py:wide"


def test_a_model_by_operator_dtype_and_module(invoke: Invoke, wide: str) -> None:
    found = document(invoke("size", wide, "--json").stdout)
    assert found.nbytes == sum(vars(found.bytes_by_kind).values())
    assert {each.name: each.nbytes for each in found.by_module} == {"0.0": 576, "0.2": 272, "1": 40, "0.1": 0}
    assert {each.name: each.nbytes for each in found.by_operator} == {"aten::addmm.out": 888, "aten::relu.out": 0}
    assert [(each.name, each.nbytes, each.constants) for each in found.by_dtype] == [("float32", 888, 6)]
    assert found.levels == []


def test_modules_are_added_up(invoke: Invoke, wide: str) -> None:
    found = document(invoke("size", wide, "--depth", "1", "--json").stdout)
    assert [(each.name, each.nbytes, each.calls) for each in found.by_module] == [("0", 848, 3), ("1", 40, 1)]


def test_a_file_has_the_same_sizes(invoke: Invoke, wide: str, tmp_path: Path) -> None:
    assert invoke("lower", wide, "-o", tmp_path / "wide.pte").exit_code == 0
    model, file = (document(invoke("size", each, "--json").stdout) for each in (wide, tmp_path / "wide.pte"))
    assert model.nbytes == file.nbytes == (tmp_path / "wide.pte").stat().st_size
    assert model.by_operator == file.by_operator
    assert file.by_module == []


def test_levels_side_by_side(invoke: Invoke, wide: str) -> None:
    found = document(invoke("size", wide, "--levels", "-O", "2", "--json").stdout)
    assert [each.level for each in found.levels] == [0, 1, 2]
    assert found.levels[2].nbytes == found.nbytes
    assert found.levels[0].instructions.forward > found.levels[1].instructions.forward
    text = invoke("size", wide, "--levels").stdout
    assert "-O0" in text
    assert "instructions" in text


def test_people_see_tables(invoke: Invoke, wide: str) -> None:
    text = invoke("size", wide, "--top", "1").stdout
    assert "1 others" in text
    assert "64.9%" in text
    assert invoke("size", wide, "--top", "0").stdout.count("bytes of constants") == 0


def test_what_cannot_be_read(invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("size", tmp_path / "absent.pte").exit_code == 1
    assert invoke("size", "absent").exit_code == 2
