"""`exirkit lower --pipeline`: files take the place of steps, and errors are one line with a place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.cli.conftest import Invoke

from exirkit.passes import shipped_text

EDGE = (
    "pipeline: 1\nname: mine\ndialect: {from: edge, to: edge}\n"
    "stages: [{rules: algebra}, {pass: eliminate-dead-code}]\n"
)


@pytest.fixture
def files(tmp_path: Path, model_file: Path) -> Path:
    for name in ("to_edge", "to_executorch"):
        (tmp_path / f"{name}.yaml").write_text(shipped_text(name))
    (tmp_path / "mine.yaml").write_text(EDGE)
    return tmp_path


def test_copies_of_the_shipped_files_make_the_same_program(invoke: Invoke, files: Path) -> None:
    torch.manual_seed(0)
    assert invoke("lower", "models.py:tiny", "-o", "usual.pte").exit_code == 0
    torch.manual_seed(0)
    chosen = ["--pipeline", "to_executorch.yaml", "--pipeline", "to_edge.yaml"]
    result = invoke("lower", "models.py:tiny", "-o", "mine.pte", *chosen)
    assert result.exit_code == 0, result.stderr
    assert (files / "mine.pte").read_bytes() == (files / "usual.pte").read_bytes()


def test_pipelines_on_edge(invoke: Invoke, files: Path) -> None:
    chosen = ["--pipeline", "mine.yaml", "--pipeline", "mine.yaml"]
    result = invoke("lower", "models.py:tiny", "-o", "mine.pte", *chosen, "--json")
    assert result.exit_code == 0, result.stderr
    assert "pipelines" in json.loads(result.stdout)["seconds"]


def test_two_files_for_one_step(invoke: Invoke, files: Path) -> None:
    result = invoke(
        "lower", "models.py:tiny", "-o", "a.pte", "--pipeline", "to_edge.yaml", "--pipeline", "to_edge.yaml"
    )
    assert result.exit_code == 2
    assert result.stderr.startswith("error[EK711]: to_edge.yaml and to_edge.yaml both lead from aten to edge")


def test_a_file_for_no_step(invoke: Invoke, files: Path) -> None:
    (files / "odd.yaml").write_text(EDGE.replace("from: edge, to: edge", "from: aten, to: aten"))
    result = invoke("lower", "models.py:tiny", "-o", "a.pte", "--pipeline", "odd.yaml")
    assert (result.exit_code, result.stderr[:13]) == (2, "error[EK711]:")


def test_errors_have_a_place(invoke: Invoke, files: Path) -> None:
    (files / "mine.yaml").write_text(EDGE.replace("eliminate-dead-code", "eliminate-ded-code"))
    result = invoke("lower", "models.py:tiny", "-o", "a.pte", "--pipeline", "mine.yaml")
    assert result.exit_code == 1
    assert result.stderr.startswith("error[EK472]: mine.yaml:4:35: there is no pass 'eliminate-ded-code'")
    assert result.stderr.count("\n") == 1
    missing = invoke("lower", "models.py:tiny", "-o", "a.pte", "--pipeline", "nowhere.yaml")
    assert (missing.exit_code, missing.stderr[:13]) == (1, "error[EK712]:")
