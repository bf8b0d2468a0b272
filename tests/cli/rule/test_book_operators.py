"""Operators that a book defines: `lower` names them, and the commands that read files know them with `--rules`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.processes import run_command

BOOK = """rulebook: 1
ops:
  books_of_tests.twice_relu:
    schema: "(Tensor x) -> Tensor"
    define: |
      r = aten.relu.default(x)
      return aten.add.Tensor(r, r)
    out_variant: true
rules:
- id: fuse.twice-relu
  vars: {x: "f32 [*S]"}
  match: |
    r = aten.relu.default(x)
    return aten.add.Tensor(r, r)
  replace: return books_of_tests.twice_relu.default(x)
"""
MODEL = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        r = torch.relu(x)
        return (r + r).sin()

def make():
    return Model().eval(), (torch.ones(2, 3),)
"""
NAME = "books_of_tests::twice_relu.out"


def exirkit(*args: str, cwd: Path) -> tuple[int, dict[str, Any]]:
    """Run a command in a process of its own, which knows no book, and return its exit code and document."""
    result = run_command(*args, "--json", cwd=cwd)
    return result.returncode, json.loads(result.stdout)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("books")
    (folder / "book.yaml").write_text(BOOK)
    (folder / "models.py").write_text(MODEL)
    code, report = exirkit("lower", "models.py:make", "-o", "m.pte", "--rules", "book.yaml", cwd=folder)
    assert code == 0
    assert report["book_operators"] == [{"name": NAME, "book": "book.yaml"}]
    return folder


def test_run(place: Path) -> None:
    code, report = exirkit("run", "m.pte", "--ones", cwd=place)
    assert (code, report["diagnostics"][0]["code"]) == (1, "EK620")
    assert "--rules BOOK" in report["diagnostics"][0]["hint"]
    code, report = exirkit("run", "m.pte", "--ones", "--rules", "book.yaml", cwd=place)
    assert code == 0
    assert report["outputs"][0]["first"][0] == pytest.approx(0.9092974)


@pytest.mark.slow
def test_verify(place: Path) -> None:
    code, report = exirkit("verify", "m.pte", cwd=place)
    assert (code, [one["code"] for one in report["diagnostics"]]) == (1, ["EK731"])
    assert exirkit("verify", "m.pte", "--rules", "book.yaml", cwd=place)[0] == 0


@pytest.mark.slow
def test_inspect_and_memory(place: Path) -> None:
    code, report = exirkit("inspect", "m.pte", "--rules", "book.yaml", cwd=place)
    assert (code, report["book_operators"]) == (0, [{"name": NAME, "book": "book.yaml"}])
    assert exirkit("inspect", "m.pte", cwd=place)[1]["book_operators"] == []
    code, report = exirkit("memory", "models.py:make", "--rules", "book.yaml", cwd=place)
    assert code == 0
    values = [one["name"] for one in report["methods"][0]["largest"]]
    assert "books_of_tests_twice_relu_default" in values
    code, report = exirkit("memory", "m.pte", "--rules", "no_such_book.yaml", cwd=place)
    assert code != 0
