"""`exirkit compare` and `exirkit bisect`: what is wrong is named, and the exit code says that something is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke

import exirkit.fuzz.comparison.file_values

WRONG_BOOK = """rulebook: 1
rules:
- id: simplify.relu
  doc: Not the same.
  vars: {x: "f32 [*S]"}
  match: return aten.relu.default(x)
  replace: return aten.sigmoid.default(x)
  equiv: {mode: exact}
"""

PASSES = """
from exirkit import Pass, ops


class DropRelu(Pass):
    name = "drop-relu"

    def edit(self, editor):
        for node in list(editor.graph.nodes):
            if node.target is ops.edge.aten.relu.default:
                editor.replace(node, node.args[0])


def nothing(module):
    return None


def fails(module):
    raise ValueError("no")


both = [nothing, DropRelu()]
"""


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG_BOOK)
    return path


@pytest.fixture
def passes(tmp_path: Path) -> Path:
    path = tmp_path / "my_passes.py"
    path.write_text(PASSES)
    return path


@pytest.fixture
def _without_official(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exirkit.fuzz.comparison.file_values, "missing_reason", lambda: "the wheel is not installed")


@pytest.mark.usefixtures("_without_official")
def test_missing_runtime_is_said_loudly(invoke: Invoke, model_file: Path) -> None:
    done = invoke("compare", f"{model_file}:tiny")
    assert done.exit_code == 0, done.output
    assert "warning[EK738]: the official runtime was NOT compared: the wheel is not installed" in done.stdout
    assert done.stdout.splitlines()[-1] == (
        "forward: exported program agrees; reference runtime agrees; official runtime NOT COMPARED"
    )


@pytest.mark.executorch
def test_three_agree(invoke: Invoke, model_file: Path) -> None:
    done = invoke("compare", f"{model_file}:several", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["ok"]
    assert [one["name"] for one in report["methods"]] == ["decode", "encode"]
    assert {one["executor"] for one in report["methods"][1]["outputs"]} == {
        "exported program", "reference runtime", "official runtime"
    }  # fmt: skip
    assert report["inputs"] == ["example inputs", "drawn with seed 0"]


@pytest.mark.usefixtures("_without_official")
@pytest.mark.parametrize("command", ["compare", "bisect"])
def test_wrong_rule(invoke: Invoke, model_file: Path, book: Path, command: str) -> None:
    done = invoke(command, f"{model_file}:tiny", "--rules", book, "--json")
    assert done.exit_code == 1, done.output
    (method,) = json.loads(done.stdout)["methods"]
    step = method["step"]
    assert (step["stage"], step["rule"], step["application"]) == ("apply-rules", "simplify.relu", 1)
    assert step["rule_place"].endswith("wrong.yaml:6")
    assert step["node"]["call"].startswith("aten.sigmoid.default(")
    assert "models.py" in step["node"]["source"]
    assert step["rewritten"] == ["aten_relu_default"]
    text = invoke(command, f"{model_file}:tiny", "--rules", book)
    assert text.exit_code == 1
    assert "error[EK735]: the results are wrong after application 1 of rule simplify.relu" in text.stdout


@pytest.mark.usefixtures("_without_official")
def test_file_that_was_lowered_otherwise(invoke: Invoke, model_file: Path, book: Path) -> None:
    assert invoke("lower", f"{model_file}:exported", "-o", "good.pte").exit_code == 0
    assert invoke("lower", f"{model_file}:exported", "-o", "bad.pte", "--rules", book).exit_code == 0
    # Random weights differ from call to call of the factory, so the model is fixed.
    fixed = model_file.with_name("fixed.py")
    fixed.write_text("import torch\ntorch.manual_seed(0)\n" + model_file.read_text())
    lowered = invoke("lower", f"{fixed}:exported", "-o", "bad.pte", "--rules", book)
    assert lowered.exit_code == 0, lowered.output
    other = invoke("compare", f"{fixed}:exported", "bad.pte")
    assert other.exit_code == 1
    assert "the file is not what these options make of the model" in other.stdout
    own = invoke("compare", f"{fixed}:exported", "bad.pte", "--rules", book)
    assert own.exit_code == 1
    assert "rule simplify.relu" in own.stdout


def test_bisect_passes(invoke: Invoke, model_file: Path, passes: Path) -> None:
    done = invoke("bisect", f"{model_file}:tiny", "--passes", f"{passes}:both")
    assert done.exit_code == 1, done.output
    assert "the results are wrong after pass drop-relu" in done.stdout
    assert "right after nothing" in done.stdout
    good = invoke("bisect", f"{model_file}:tiny", "--passes", f"{passes}:nothing")
    assert good.exit_code == 0
    assert "none of them wrong" in good.stdout
    loose = invoke("bisect", f"{model_file}:tiny", "--passes", f"{passes}:DropRelu", "--atol", "1000")
    assert loose.exit_code == 0


def test_bisect_pipeline(invoke: Invoke, model_file: Path, book: Path) -> None:
    pipeline = book.with_name("own.yaml")
    pipeline.write_text(f"pipeline: 1\nname: own\ndialect: {{from: edge, to: edge}}\nstages:\n- rules: [{book.name}]\n")
    done = invoke("bisect", f"{model_file}:tiny", "--pipeline", pipeline, "--json")
    assert done.exit_code == 1, done.output
    (method,) = json.loads(done.stdout)["methods"]
    assert (method["step"]["rule"], method["step"]["pipeline"]) == ("simplify.relu", str(pipeline))


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--method", "encode"), 2, "error[EK711]: the model has no method 'encode'"),
        (("--rules", "missing.yaml"), 1, "error[EK"),
        (("--passes", "{passes}:Dorp"), 1, "error[EK714]: "),
        (("--passes", "{passes}"), 2, "error[EK713]: "),
        (("--passes", "{passes}:fails"), 3, "error[EK425]: "),
    ],
)
def test_wrong_options(
    invoke: Invoke, model_file: Path, passes: Path, options: tuple[str, str], code: int, says: str
) -> None:
    done = invoke("bisect", f"{model_file}:tiny", *(one.format(passes=passes) for one in options))
    assert done.exit_code == code, done.output
    assert done.stderr.splitlines()[-1].startswith(says), done.stderr


def test_directory_of_books(invoke: Invoke, model_file: Path, book: Path) -> None:
    folder = book.parent / "books"
    (folder / "more").mkdir(parents=True)
    (folder / "own.yaml").write_text(WRONG_BOOK.replace("sigmoid", "relu"))
    (folder / "more" / "other.yml").write_text(WRONG_BOOK)
    (folder / "pipeline.yaml").write_text("pipeline: 1\n")
    checked = invoke("rule", "check", folder, "--json", "--trials", "5")
    assert checked.exit_code == 1
    assert [Path(one["file"]).name for one in json.loads(checked.stdout)["books"]] == ["other.yml", "own.yaml"]
    done = invoke("bisect", f"{model_file}:tiny", "--rules", folder / "more")
    assert "rule simplify.relu" in done.stdout
    empty = folder / "empty"
    empty.mkdir()
    wrong = invoke("rule", "check", empty)
    assert wrong.exit_code == 2
    assert "there is no rule book in this directory" in wrong.stderr
