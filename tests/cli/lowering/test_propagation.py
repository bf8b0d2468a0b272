"""`exirkit propagation`: verdicts, what is chosen in a model and why, and what is wrong with the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke
from tests.patterns.propagation.declarations import BASE

MODEL = """import torch


def factory():
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1), torch.nn.Softmax(1)
    return torch.nn.Sequential(*layers).eval(), (torch.randn(1, 3, 6, 5),)
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(MODEL)
    return f"{tmp_path / 'net.py'}:factory"


def test_check(invoke: Invoke, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.yaml", tmp_path / "wrong.yaml"
    right.write_text(BASE)
    wrong.write_text(BASE.replace("relu.default", "_softmax.default"))
    done = invoke("propagation", "check", right, "--json")
    assert done.exit_code == 0, done.output
    (one,) = json.loads(done.stdout)["propagations"]
    assert (one["ok"], one["rows"][0]["trials"]) == (True, 24)
    done = invoke("propagation", "check", right, wrong, "--trials", "7")
    assert done.exit_code == 1
    assert "test.layout: accepted" in done.stdout
    assert "test.layout: REJECTED" in done.stdout
    assert "EK292" in done.stderr


def test_explain(invoke: Invoke, model: str) -> None:
    arguments = ("propagation", "explain", model, "--propagation", "layout.channels-last", "--json")
    (method,) = json.loads(invoke(*arguments).stdout)["methods"]
    assert [one["wanted"] for one in method["conversions"]] == ["nhwc", "nchw"]
    assert [one["cost"] for one in method["conversions"]] == [3 * 6 * 5, 4 * 4 * 3]
    assert method["cost"] == 3 * 6 * 5 + 4 * 4 * 3
    assert method["around_every_call"] == method["cost"] + 2 * 8 * 4 * 3
    (method,) = json.loads(invoke(*arguments, "--node", "%aten_relu_default").stdout)["methods"]
    assert "chosen by cost" in method["nodes"][0]["message"]


BRANCH = """import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 3, 3, 3))

    def forward(self, x):
        def one(x, weight):
            return torch.relu(torch.conv2d(x, weight)).amax((2, 3))

        def other(x, weight):
            return torch.conv2d(x, weight).sin().amax((2, 3))

        return torch.cond(x.sum() > 0, one, other, (x, self.weight))


def make():
    return Model().eval().requires_grad_(False), (torch.randn(1, 3, 6, 5),)
"""


def test_branches_are_explained(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "branching.py").write_text(BRANCH)
    target = f"{tmp_path / 'branching.py'}:make"
    arguments = ("propagation", "explain", target, "--propagation", "layout.channels-last", "--json")
    methods = {one["name"]: one for one in json.loads(invoke(*arguments).stdout)["methods"]}
    assert set(methods) == {"forward", "forward.true_graph_0", "forward.false_graph_0"}
    assert methods.pop("forward")["conversions"] == []
    for one in methods.values():
        assert [each["wanted"] for each in one["conversions"]] == ["nhwc"]
        assert one["cost"] == 3 * 6 * 5
    asked = json.loads(invoke(*arguments, "--node", "aten_relu_default").stdout)["methods"]
    assert {one["name"]: len(one["nodes"]) for one in asked}["forward.true_graph_0"] == 1
    assert sum(len(one["nodes"]) for one in asked) == 1


def test_errors(invoke: Invoke, model: str, tmp_path: Path) -> None:
    done = invoke(
        "propagation", "explain", model, "--propagation", "layout.channels-last", "--node", "aten_relu_defalt"
    )
    assert done.exit_code == 2
    assert "aten_relu_default" in done.stderr
    (tmp_path / "bad.yaml").write_text(BASE.replace("nhwc:", "nhcw:", 1))
    done = invoke("propagation", "explain", model, "--propagation", tmp_path / "bad.yaml")
    assert done.exit_code == 1
    assert "EK291" in done.stderr


def test_schema(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("propagation", "schema")
    assert json.loads(done.stdout)["title"] == "An analysis of the whole graph for exirkit"
    assert invoke("propagation", "schema", "-o", tmp_path / "schema.json").exit_code == 0
    assert json.loads((tmp_path / "schema.json").read_text()) == json.loads(done.stdout)


def test_explain_what_is_known(invoke: Invoke, model: str) -> None:
    arguments = ("propagation", "explain", model, "--propagation", "ranges.elements")
    (method,) = json.loads(invoke(*arguments, "--json").stdout)["methods"]
    known = {one["tensor"]: one["fact"] for one in method["tensors"]}
    assert known["aten_relu_default"] == "[0, inf] or nan"
    assert known["aten_convolution_default"] == "[-inf, inf] or nan"
    assert "aten_relu_default" in invoke(*arguments).stdout
    shown = invoke(*arguments, "--node", "aten_relu_default").stdout
    assert "is [0, inf] or nan: row propagations/ranges.elements.yaml" in shown
    assert "takes %aten_convolution_default" in shown


PIPELINE = """pipeline: 1
name: layouts
dialect: {from: edge, to: edge}
stages:
- pass: propagate
  options: {propagation: layout.channels-last}
"""


def test_lowering_counts_what_propagations_do(invoke: Invoke, model: str, tmp_path: Path) -> None:
    (tmp_path / "layouts.yaml").write_text(PIPELINE)
    output, report = tmp_path / "net.pte", tmp_path / "report.json"
    done = invoke(
        "lower", model, "--pipeline", tmp_path / "layouts.yaml", "--output", output, "--report", report, "-O0"
    )
    assert done.exit_code == 0, done.output
    (counted,) = json.loads(report.read_text())["propagations"].items()
    assert counted[0] == "layout.channels-last"
    assert (counted[1]["conversions"], counted[1]["cost"]) == (2, 3 * 6 * 5 + 4 * 4 * 3)
    assert "layout.channels-last: 3 calls converted, 2 conversions" in done.stdout
