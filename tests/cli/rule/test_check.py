"""`exirkit rule`: verdicts and exit codes that scripts can rely on."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.cli.processes import run_command

GOOD = """rulebook: 1
rules:
- id: remove-double-negation
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(aten.neg.default(x))
  replace: return x
"""
WRONG = GOOD.replace("aten.neg.default(aten.neg.default(x))", "aten.abs.default(aten.neg.default(x))")


def rule(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `exirkit rule` with arguments."""
    return run_command("rule", *args, cwd=cwd)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), (WRONG, 1), ("rulebook: 2\n", 1), ("[", 1)])
def test_verdict(text: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "book.yaml").write_text(text)
    result = rule("check", "book.yaml", "--json", cwd=tmp_path)
    report = json.loads(result.stdout)
    assert (result.returncode, report["ok"]) == (code, code == 0)
    again = rule("check", "book.yaml", cwd=tmp_path)
    assert again.returncode == code
    assert again.stdout.rstrip().endswith("(seed 0)")
    assert ("REJECTED" in again.stdout) == (code == 1)
    assert "Traceback" not in again.stderr
    assert "error[" not in again.stdout
    assert ("error[" in again.stderr) == (code == 1)


@pytest.mark.slow
def test_other_commands(tmp_path: Path) -> None:
    (tmp_path / "book.yaml").write_text(GOOD)
    listed = json.loads(rule("list", "book.yaml", "--json", cwd=tmp_path).stdout)
    assert [(one["id"], one["operators"]) for one in listed["rules"]] == [
        ("remove-double-negation", ["aten.neg.default"])
    ]
    assert "canonicalize" in rule("list", cwd=tmp_path).stdout.split()
    (tmp_path / "books" / "more").mkdir(parents=True)
    for place, name in (("one.yaml", "first"), ("more/two.yaml", "second")):
        (tmp_path / "books" / place).write_text(GOOD.replace("remove-double-negation", name))
    several = json.loads(rule("list", "books", "--json", cwd=tmp_path).stdout)
    assert [(Path(one["book"]).as_posix(), one["id"]) for one in several["rules"]] == [
        ("books/more/two.yaml", "second"),
        ("books/one.yaml", "first"),
    ]
    shown = rule("list", "books", cwd=tmp_path).stdout
    assert all(word in shown for word in ("two.yaml", "second", "one.yaml", "first"))
    schema = json.loads(rule("schema", cwd=tmp_path).stdout)
    assert {"rules", "ops", "sets"} <= set(schema["properties"])
    assert "swap_last" in rule("builtins", cwd=tmp_path).stdout
    deprecated = rule("words", cwd=tmp_path)
    assert "swap_last" in deprecated.stdout
    assert "rule builtins" in deprecated.stderr
    missing = rule("check", "none.yaml", cwd=tmp_path)
    assert (missing.returncode, missing.stderr.strip()) == (1, "error[EK712]: none.yaml: no such file or directory")
    unknown = rule("check", "book.yaml", "--rule", "remove-double-negatio", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "did you mean remove-double-negation?" in unknown.stderr


@pytest.mark.slow
def test_lowering_with_rules(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        "import torch\n"
        "def conv():\n"
        "    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())\n"
        "    return model.eval(), (torch.randn(1, 3, 8, 8),)\n"
    )
    command = ["lower", "models.py:conv", "-o", "conv.pte"]
    books = ["--rules", "canonicalize", "--rules", "fold", "--rules", "host", "--journal", "journal.json"]
    done = run_command(*command, *books, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    journal = json.loads((tmp_path / "journal.json").read_text())["forward"]
    applied = [one["rule"] for one in journal["applications"]]
    assert {"fold.conv-batch-norm", "host.conv-to-bmm"} <= set(applied)
    assert (tmp_path / "conv.pte").is_file()
    limited = run_command(*command, *books, "--rewrite-limit", "1", cwd=tmp_path)
    assert limited.returncode == 0
    journal = json.loads((tmp_path / "journal.json").read_text())["forward"]
    assert [one["rule"] for one in journal["applications"]] == applied[:1]


MEETING = """rulebook: 1
rules:
- id: neg-as-product
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(x)
  replace: return aten.mul.Scalar(x, -1)
- id: abs-of-neg
  vars: {x: "f32 [*S]"}
  match: return aten.abs.default(aten.neg.default(x))
  replace: return aten.abs.default(x)
"""
BACK = """rulebook: 1
rules:
- id: product-as-neg
  vars: {x: "f32 [*S]"}
  match: return aten.mul.Scalar(x, -1)
  replace: return aten.neg.default(x)
"""


@pytest.mark.slow
def test_books_that_undo_each_other_are_found_together(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(MEETING)
    (tmp_path / "other.yaml").write_text(BACK)
    for name in ("one.yaml", "other.yaml"):
        assert json.loads(rule("check", name, "--strict", "--json", cwd=tmp_path).stdout)["ok"]
    apart = json.loads(rule("check", "one.yaml", "other.yaml", "--json", cwd=tmp_path).stdout)
    assert (apart["ok"], apart["diagnostics"]) == (True, [])
    together = rule("check", "one.yaml", "other.yaml", "--together", "--json", cwd=tmp_path)
    report = json.loads(together.stdout)
    assert (together.returncode, report["ok"]) == (0, True)
    assert [(one["code"], one["severity"]) for one in report["diagnostics"]] == [("EK245", "warning")]
    assert [book["diagnostics"] for book in report["books"]] == [[], []]
    strict = rule("check", "one.yaml", "other.yaml", "--together", "--strict", cwd=tmp_path)
    assert strict.returncode == 1
    assert "rules undo each other" in strict.stderr


@pytest.mark.slow
def test_notes_are_printed_on_request(tmp_path: Path) -> None:
    (tmp_path / "book.yaml").write_text(GOOD + MEETING.partition("rules:\n")[2])
    plain = rule("check", "book.yaml", cwd=tmp_path)
    notes = json.loads(rule("check", "book.yaml", "--json", cwd=tmp_path).stdout)["notes"]
    assert {one["code"] for one in notes} == {"EK244"}
    assert f"notes: {len(notes)}, shown with --verbose" in plain.stdout
    assert "EK244" not in plain.stdout
    verbose = rule("check", "book.yaml", "--verbose", cwd=tmp_path)
    assert verbose.stdout.count("note[EK244]") == len(notes)
    assert "shown with --verbose" not in verbose.stdout
