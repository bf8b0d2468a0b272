"""`exirkit rule check --witnesses`: written, verified and used, with exit codes that scripts can rely on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from exirkit.cli.app import app

BOOK = """rulebook: 1
rules:
- id: square
  vars: {x: "f32 [*S]", n: "int in [0, 3]"}
  match: return aten.pow.Tensor_Scalar(aten.abs.default(x), n)
  where: "n == 2"
  replace: return aten.mul.Tensor(x, x)
"""


def check(*args: str | Path) -> tuple[int, str]:
    """Run `exirkit rule check`; return exit code and output."""
    result = CliRunner().invoke(app, ["rule", "check", *map(str, args), "--trials", "20"])
    return result.exit_code, result.output


def test_witnesses_are_written_and_verified(tmp_path: Path) -> None:
    book, file = tmp_path / "book.yaml", tmp_path / "book.json"
    book.write_text(BOOK)
    assert check(book, "--witnesses", file, "--update")[0] == 0
    text = file.read_text()
    assert check(book, "--witnesses", file, "--update")[0] == 0
    assert check(book, "--witnesses", file, "--update", "--fast")[0] == 0
    assert file.read_text() == text
    for options in ((), ("--fast",), ("--seed", "5")):
        code, output = check(book, "--witnesses", file, *options, "--json")
        assert code == 0
        (found,) = json.loads(output)["rules"]
        assert next((one["part"], one["outcome"]) for one in found["witnesses"]) == ("guard", "witness")
    assert check(book, "--witnesses", tmp_path)[0] == 0
    book.write_text(BOOK.replace("[0, 3]", "[0, 5]"))
    code, output = check(book, "--witnesses", file)
    assert code == 1
    assert "EK272" in output


def test_several_books_are_one_document(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(BOOK)
    books = [tmp_path / "one.yaml", tmp_path / "two.yaml"]
    code, output = check(*books, "--witnesses", tmp_path, "--update", "--json")
    report = json.loads(output)
    assert (code, report["ok"], len(report["books"])) == (0, True, 2)
    assert (tmp_path / "one.json").read_text() == (tmp_path / "two.json").read_text()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--update",), 2),
        (("--witnesses", "book.yml", "--update"), 2),
        (("--witnesses", "none.json"), 1),
        (("--witnesses", "book.yaml"), 1),
        (("book.yaml", "--witnesses", "book.json"), 2),
    ],
)
def test_options_that_do_not_fit(
    options: tuple[str, ...], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.yaml").write_text(BOOK)
    Path("book.json").write_text('{"witnesses": 1, "language": 1, "revision": 1}')
    assert check("book.yaml", *options)[0] == code
    assert Path("book.json").read_text().endswith("1}")
