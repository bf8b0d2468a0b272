"""`--import`: modules of the user that register what books, pipelines and passes name."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.processes import run_command

LIBRARY = """
import torch

from exirkit.patterns import predicate

library = torch.library.Library("imported_example", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
library.impl("twice", lambda x: x * 2, "Meta")


@predicate("is_even_example", pure=True)
def is_even_example(n: int) -> bool:
    \"\"\"Whether a number is even.\"\"\"
    return n % 2 == 0
"""
MODEL = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(torch.ops.imported_example.twice(x))


def make():
    return Model().eval(), (torch.randn(2, 4),)
"""
BOOK = """rulebook: 1
rules:
- id: example.add-itself
  vars: {x: "f32 [N, K]"}
  match: return imported_example.twice.default(x)
  where: is_even_example(K)
  replace: return aten.add.Tensor(x, x)
"""


@pytest.mark.slow
def test_what_a_module_registers_is_known_to_every_command(tmp_path: Path) -> None:
    for name, text in (("acme.py", LIBRARY), ("model.py", MODEL), ("book.yaml", BOOK)):
        (tmp_path / name).write_text(text)
    without = run_command("rule", "check", "book.yaml", cwd=tmp_path)
    assert without.returncode == 1
    assert "EK213" in without.stderr or "EK211" in without.stderr
    checked = run_command("rule", "check", "book.yaml", "--import", "acme", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    lowered = run_command(
        "lower", "model.py:make", "-o", "m.pte", "--rules", "book.yaml", "--import", "acme", cwd=tmp_path
    )
    assert lowered.returncode == 0, lowered.stderr
    compared = run_command("compare", "model.py:make", "--rules", "book.yaml", "--import", "acme", cwd=tmp_path)
    assert compared.returncode == 0, compared.stderr
    missing = run_command("lower", "model.py:make", "-o", "m.pte", "--import", "no_such_module", cwd=tmp_path)
    assert missing.returncode == 2
    assert "EK225" in missing.stderr


def test_every_command_that_reads_rules_has_it() -> None:
    from typer.main import get_command

    from exirkit.cli.app import app

    def options(command: object, path: tuple[str, ...]) -> dict[tuple[str, ...], set[str]]:
        found = {path: {one for parameter in command.params for one in parameter.opts}}  # type: ignore[attr-defined]
        for name, below in getattr(command, "commands", {}).items():
            found.update(options(below, (*path, name)))
        return found

    for path, names in options(get_command(app), ()).items():
        if names & {"--rules", "--pipeline", "--passes", "--partitioner"} and path != ("new-backend",):
            assert "--import" in names, path


CLASHING = """rulebook: 1
ops:
  my.act: {schema: "(Tensor x) -> Tensor", define: "return aten.OP.default(x)"}
rules:
- id: example.OP
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(aten.OP.default(x))
  replace: return aten.neg.default(my.act(x))
"""


def test_books_that_give_an_operator_two_meanings_are_rejected(tmp_path: Path) -> None:
    from exirkit.ir import ModelError
    from exirkit.patterns import load_book, load_books

    files = [tmp_path / "relu.yaml", tmp_path / "tanh.yaml", tmp_path / "same.yaml"]
    for file, op in zip(files, ("relu", "tanh", "relu"), strict=True):
        file.write_text(CLASHING.replace("OP", op))
    with pytest.raises(ModelError) as error:
        load_books(files[:2])
    (found,) = error.value.diagnostics
    assert found.code == "EK275"
    assert "my.act" in found.message
    assert len(load_books([files[0], files[2]])) == 2
    # Each for itself goes on meaning what it says.
    first, second = (load_book(file).require_valid().operators["my.act"] for file in files[:2])
    assert first is not second
