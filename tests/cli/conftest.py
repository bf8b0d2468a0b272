"""Program files and models for the command line, and two ways to call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.runtime_ref.assembly import BOUND, Assembly
from typer.testing import CliRunner, Result

from exirkit.cli.app import app
from exirkit.emit import Program, lay_out, write_file

Invoke = Callable[..., Result]
Spawn = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Invoke]:
    """Call the command line in this process, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("EXIRKIT_TRACEBACK", raising=False)
    runner = CliRunner()

    def call(*args: str | Path) -> Result:
        with _modules_forgotten(tmp_path):
            return runner.invoke(app, [str(each) for each in args])

    # A test may import a model of its own as well.
    with _modules_forgotten(tmp_path):
        yield call


@contextmanager
def _modules_forgotten(directory: Path) -> Iterator[None]:
    """Forget at the end which modules of a directory have been imported, so that others of the same name can be."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            if str(directory) in str(getattr(sys.modules[name], "__file__", None)):
                del sys.modules[name]


@pytest.fixture
def spawn(tmp_path: Path) -> Spawn:
    """Call the command line in a process of its own, in an empty working directory."""

    def call(*args: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "exirkit", *map(str, args)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            timeout=120,
            check=False,
        )

    return call


def document(text: str) -> Any:
    """Return a JSON document with its fields as attributes."""
    return json.loads(text, object_hook=lambda fields: SimpleNamespace(**fields))


def write_program(path: Path, program: Program) -> Path:
    """Write a program that was put together by hand."""
    write_file(path, lay_out(program))
    return path


@pytest.fixture
def program_file(tmp_path: Path) -> Path:
    """A file with one method: `forward(x) = x + w, 3`, for x of at most 4 rows of 2."""
    made = Assembly()
    weight = made.constant(torch.tensor([10.0, 20.0]))
    x, total = (made.tensor([4, 2], dynamism=BOUND) for _ in range(2))
    alpha = made.argument(1)
    made.call("aten::add.out", x, weight, alpha, total, total)
    return write_program(tmp_path / "add.pte", made.program([x], [total, made.argument(3)]))


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    """A Python file with factories."""
    path = tmp_path / "models.py"
    path.write_text(
        textwrap.dedent(
            """
            import torch


            class Tiny(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.linear = torch.nn.Linear(4, 3)

                def forward(self, x):
                    return self.linear(x).relu()


            def tiny():
                print("the model talks")
                return Tiny(), (torch.ones(2, 4),)


            def dynamic():
                return Tiny(), (torch.ones(2, 4),), ({0: torch.export.Dim("rows", max=8)},)


            def exported():
                return torch.export.export(Tiny(), (torch.ones(2, 4),))


            def several():
                return {"encode": tiny(), "decode": exported()}


            def raises():
                width = 0
                return 1 / width


            def leaves():
                raise SystemExit("bye")


            def number():
                return 7


            def module():
                return Tiny()


            def empty_meta_tensor():
                return Tiny(), torch.ones(2, 4)


            def nothing():
                return {}


            class Branching(torch.nn.Module):
                def forward(self, x):
                    return x if x.sum() > 0 else -x


            def rejected_by_export():
                return Branching(), (torch.ones(2),)


            def interrupted():
                raise KeyboardInterrupt


            constant = 5
            """
        )
    )
    return path
