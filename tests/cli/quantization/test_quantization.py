"""`exirkit quantization`: tables, pages and documents."""

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
        self.body, self.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 2)

    def forward(self, x):
        return torch.sigmoid(self.head(self.body(x)))


def make():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(4, 8),)


def both():
    return {"encode": make(), "decode": make()}


def samples():
    return [(torch.randn(4, 8),) for _ in range(3)]


def numbers():
    return [1, 2]
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(MODEL, encoding="utf-8")
    return f"{tmp_path / 'net.py'}:"


def test_report(invoke: Invoke, target: str, tmp_path: Path) -> None:
    page = tmp_path / "noise.html"
    done = invoke("quantization", "report", f"{target}make", "--samples", f"{target}samples", "--html", str(page))
    assert done.exit_code == 0, done.output
    head, columns, *rows = done.output.splitlines()
    assert head.startswith("forward: results ")
    assert head.endswith("dB, 3 samples")
    assert columns.split()[0] == "call"
    ratios = [float(row.split()[3]) for row in rows if "aten." in row]
    assert len(ratios) == 3
    assert ratios == sorted(ratios)
    text = page.read_text(encoding="utf-8")
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_report_as_json(invoke: Invoke, target: str) -> None:
    done = invoke("quantization", "report", f"{target}both", "--method", "decode", "--set", "dynamic", "--json")
    document = json.loads(done.output)
    assert document["ok"] is True
    assert document["method"] == "decode"
    layers = {one["module"]: one for one in document["report"]["layers"] if one["quantized"]}
    assert set(layers) == {"body.0", "head"}
    assert {one["name"] for one in document["modules"]} == {"body.0", "head"}
    by_module = invoke("quantization", "report", f"{target}make", "--by", "module", "--top", "1").output
    assert "... and 2 with less noise" in by_module


def test_report_of_a_quantized_model(invoke: Invoke, target: str) -> None:
    done = invoke("quantization", "report", f"{target}make", "--quantized", f"{target}make")
    assert "results exact dB" in done.output


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["both"], "EK711"),
        (["make", "--quantized", "make", "--quantizer", "xnnpack"], "EK711"),
        (["make", "--samples", "numbers"], "EK716"),
        (["make", "--set", "per_channel=maybe"], "EK711"),
    ],
)
def test_wrong_usage(invoke: Invoke, target: str, given: list[str], code: str) -> None:
    named = [f"{target}{one}" if one in ("make", "both", "numbers") else one for one in given]
    done = invoke("quantization", "report", *named)
    assert done.exit_code != 0
    assert code in done.output


def test_search(invoke: Invoke, target: str, tmp_path: Path) -> None:
    common = ("quantization", "search", f"{target}make", "--samples", f"{target}samples")
    before = json.loads(invoke(*common, "--at-least", "0", "--json").output)
    assert before["modules"] == []
    assert before["layers"] == 2
    asked = before["score"] + 1
    made = tmp_path / "better.yaml"
    done = invoke(*common, "--at-least", str(asked), "--output", str(made), "--cost", "latency", "--json")
    found = json.loads(done.output)
    assert found["modules"]
    assert float(found["score"]) >= asked
    report = invoke("quantization", "report", *common[2:], "--quantizer", str(made), "--json")
    (result,) = json.loads(report.output)["report"]["results"]
    assert float(result["accumulated"]) == pytest.approx(float(found["score"]), abs=1e-3)
    text = invoke(*common, "--at-least", str(asked)).output
    assert "leave " in text
    failed = invoke(*common, "--at-least", str(asked), "--limit", "1")
    assert "EK419" in failed.output
    assert failed.exit_code == 1
