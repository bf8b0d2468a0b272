"""`exirkit quantizer`: what it says of files and of the calls of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

    def forward(self, x):
        y = torch.relu(self.conv(x)) + 1
        return torch.sigmoid(self.head(y.mean([2, 3])))


def make():
    return Net().eval(), (torch.randn(1, 3, 8, 8),)
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(MODEL, encoding="utf-8")
    return f"{tmp_path / 'net.py'}:make"


def test_check(invoke: Invoke, tmp_path: Path) -> None:
    assert "xnnpack: accepted; 14 rules, settings: per_channel, dynamic" in invoke("quantizer", "check").output
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("quantizer: 1\nid: wrong\nspecs: {}\nrules: []\n", encoding="utf-8")
    done = invoke("quantizer", "check", str(wrong))
    assert done.exit_code == 1
    assert "EK439" in done.output


def test_explain(invoke: Invoke, target: str) -> None:
    done = invoke("quantizer", "explain", target, "--quantizer", "xnnpack", "--set", "per_channel", "--json")
    (method,) = json.loads(done.output)["methods"]
    rules = {one["operator"]: one["rule"] for one in method["calls"]}
    assert rules == {
        "aten.conv2d.default": "convolution-relu",
        "aten.relu.default": "convolution-relu",
        "aten.add.Tensor": "add",
        "aten.mean.dim": "carry",
        "aten.linear.default": "linear",
        "aten.sigmoid.default": None,
    }
    weight = method["calls"][0]["values"][1]
    assert weight["way"] == "i8, -127..127, symmetric, per channel of dim 0"
    text = invoke("quantizer", "explain", target, "--quantizer", "xnnpack").output
    assert "forward: 5 of 6 calls" in text


def test_why_not(invoke: Invoke, target: str) -> None:
    common = ("quantizer", "explain", target, "--quantizer", "xnnpack")
    assert "no rule names aten.sigmoid.default" in invoke(*common, "--why-not").output
    text = invoke(*common, "--node", "relu", "--why-not").output
    assert "rule 'linear-relu': " in text
    dynamic = invoke(*common, "--set", "dynamic=true", "--node", "conv2d").output
    assert "`users(c) > 1 or not consumed_by(c, 'aten.relu*')` does not hold" in dynamic


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--quantizer", "xnnpak"], "EK712"),
        (["--quantizer", "xnnpack", "--set", "per_chanel"], "EK440"),
        (["--quantizer", "xnnpack", "--set", "per_channel=yes"], "EK711"),
        (["--quantizer", "xnnpack", "--node", "nothing"], "EK711"),
    ],
)
def test_errors(invoke: Invoke, target: str, arguments: list[str], code: str) -> None:
    done = invoke("quantizer", "explain", target, *arguments)
    assert done.exit_code != 0
    assert code in done.output


def test_schema(invoke: Invoke, tmp_path: Path) -> None:
    assert '"title": "What a quantizer of exirkit annotates, as data"' in invoke("quantizer", "schema").output
    invoke("quantizer", "schema", "--output", str(tmp_path / "q.json"))
    assert (tmp_path / "q.json").is_file()
