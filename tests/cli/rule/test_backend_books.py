"""Books of backends on the command line: how they are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.processes import run_command

MODEL = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.mean(1).unsqueeze(0) * 2

def make():
    return Model().eval(), (torch.ones(2, 3),)
"""


def exirkit(*args: str, cwd: Path) -> tuple[int, str, str]:
    done = run_command(*args, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def test_lower_with_book_and_chain(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODEL)
    arguments = ["lower", "models.py:make", "-o", "m.pte", "--rules", "backends/transforms"]
    code, out, err = exirkit(*arguments, "--pipeline", "backends/transforms", "--json", cwd=tmp_path)
    assert code == 0, err
    assert "EK814" not in out + err


def test_a_short_name_is_told_the_whole_one(tmp_path: Path) -> None:
    code, _, err = exirkit("rule", "check", "transforms", cwd=tmp_path)
    assert code == 2
    assert "say backends/transforms" in err


@pytest.mark.slow
def test_listed_and_described(tmp_path: Path) -> None:
    assert "backends/transforms" in json.loads(exirkit("rule", "list", "--json", cwd=tmp_path)[1])["books"]
    assert "transforms.mean-to-sum-div" in exirkit("rule", "list", "backends/transforms", cwd=tmp_path)[1]
    assert exirkit("rule", "docs", "backends", "-o", "pages", cwd=tmp_path)[0] == 0
    assert (tmp_path / "pages" / "transforms.md").is_file()
