"""`exirkit gap`: instructions against eager PyTorch, and the pass or rule that made a difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke, document

from exirkit.cli.commands.devtools.gap import Measure

WRONG_BOOK = """rulebook: 1
rules:
- id: wrong.relu
  doc: Not the same.
  vars: {x: "f32 [*S]"}
  match: return aten.relu.default(x)
  replace: return aten.sigmoid.default(x)
- id: right.relu
  doc: The same.
  vars: {x: "f32 [*S]"}
  match: return aten.relu.default(aten.relu.default(x))
  replace: return aten.relu.default(x)
"""


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG_BOOK)
    return path


def test_nothing_is_off(invoke: Invoke, model_file: Path) -> None:
    done = invoke("gap", f"{model_file}:several", "--seed", "3")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-2:] == [
        "decode: all within the tolerances",
        "encode: all within the tolerances",
    ]
    assert "decode: 2 of 2 instructions compared" in done.stdout
    assert "drawn with seed 3" in done.stdout


@pytest.mark.parametrize("runtime", ["reference", pytest.param("official", marks=pytest.mark.executorch)])
def test_the_rule_is_named(invoke: Invoke, model_file: Path, book: Path, tmp_path: Path, runtime: str) -> None:
    gaps = tmp_path / "gaps.json"
    done = invoke("gap", f"{model_file}:tiny", "--rules", book, "--runtime", runtime, "-o", gaps, "--json")
    assert done.exit_code == 1, done.output
    found = document(done.stdout)
    assert (found.ok, found.runtime, found.measure, found.output) == (False, runtime, "relative", str(gaps))
    (method,) = found.methods
    assert (method.step.stage, method.step.rule, method.step.application) == ("apply-rules", "wrong.relu", 1)
    assert method.followed is None
    linear, relu = method.instructions
    assert (linear.kernel, linear.operator, linear.gap.kind) == ("addmm.out", "linear.default", linear.gap.kind)
    assert linear.gap.kind in ("equal", "within")
    assert (relu.kernel, relu.operator, relu.gap.kind, relu.node.name) == (
        "sigmoid.out",
        "relu.default",
        "value",
        "relu",
    )
    overlay = json.loads(gaps.read_text())["forward"]
    assert [one["instruction"] for one in overlay] == [0, 1]
    assert overlay[1]["value"] > 0.1 > overlay[0]["value"]
    page = tmp_path / "report.html"
    made = invoke("report", f"{model_file}:tiny", "--rules", book, "--gaps", gaps, "-o", page)
    assert made.exit_code == 0, made.output


@pytest.mark.parametrize("measure", [Measure.MSE, Measure.L1, Measure.SNR])
def test_text_names_rule_and_first_instruction(invoke: Invoke, model_file: Path, book: Path, measure: Measure) -> None:
    done = invoke("gap", f"{model_file}:tiny", "--rules", book, "--measure", measure.value, "--top", "1")
    assert done.exit_code == 1
    assert f"error[EK735]: the results are wrong after application 1 of rule wrong.relu ({book}:6)" in done.stdout
    assert "forward: 2 of 2 instructions compared, 1 shown" in done.stdout
    assert "OFF: " in done.stdout
    assert measure.value in done.stdout
    assert "addmm.out" not in done.stdout
    assert done.stdout.splitlines()[-1] == "forward: 1 instruction off, 1 output off"


def test_tolerances_decide(invoke: Invoke, model_file: Path, book: Path) -> None:
    assert invoke("gap", f"{model_file}:tiny", "--rules", book, "--atol", "2").exit_code == 0


DELEGATED = """
import torch


class Sums(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(torch.mm(x, y) + y) * 2


def sums():
    return Sums(), (torch.eye(3), torch.full((3, 3), -2.0))
"""


def test_a_delegate_is_one_instruction(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(DELEGATED)
    parts = "exirkit.program.demo_backend:AddMulPartitionerDemo"
    done = invoke("gap", "sums.py:sums", "--partitioner", parts, "--json")
    assert done.exit_code == 0, done.output
    (method,) = document(done.stdout).methods
    demo = "BackendWithCompilerDemo"
    assert [one.kernel for one in method.instructions] == [demo, "relu.out", demo]
    assert method.calls == len(method.instructions)


def test_numbers_of_the_page_are_finite(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    gaps = tmp_path / "gaps.json"
    gaps.write_text('{"forward": [[0, Infinity]]}')
    done = invoke("report", f"{model_file}:tiny", "--gaps", gaps, "-o", tmp_path / "report.html")
    assert done.exit_code == 2
    assert "EK770" in done.stderr


def test_a_report_shows_what_is_run(invoke: Invoke, model_file: Path, book: Path, tmp_path: Path) -> None:
    graphs = tmp_path / "model.json"
    options = ("--format", "model-explorer", "--rules", book, "--gap", "--time")
    result = invoke("report", f"{model_file}:tiny", "-o", graphs, *options)
    assert result.exit_code == 0, result.stderr
    last = {node["id"]: node for node in json.loads(graphs.read_text())["graphs"][-1]["nodes"]}
    for kind in ("times", "gaps"):
        data = json.loads((tmp_path / f"model_{kind}.json").read_text())
        (results,) = (one["results"] for one in data.values())
        assert {last[node]["label"] for node in results} == {"aten.addmm.out", "aten.sigmoid.out"}
        (value,) = (one["value"] for node, one in results.items() if last[node]["label"] == "aten.sigmoid.out")
        assert value > 0.1
    page = tmp_path / "page.html"
    shown = invoke("report", f"{model_file}:tiny", "-o", page, "--rules", book, "--gap", "--json")
    assert shown.exit_code == 0, shown.stderr
    assert document(shown.stdout).off.forward.startswith("error[EK735]")
    both = invoke("report", f"{model_file}:tiny", "-o", page, "--gap", "--gaps", book)
    assert (both.exit_code, "EK711" in both.stderr) == (2, True)
