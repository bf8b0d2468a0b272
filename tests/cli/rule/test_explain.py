"""`exirkit rule explain`: why a rule does or does not fire in a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke

MODELS = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        gate = torch.sigmoid(x + 1)
        return (x * gate).permute(1, 0).permute(1, 0)

def make():
    return Model(), (torch.ones(2, 3),)

def two():
    return {"one": make(), "other": make()}
"""
BOOK = """rulebook: 1
rules:
- id: fuse.silu
  vars: {x: "f32 [*S]"}
  match: return aten.mul.Tensor(x, aten.sigmoid.default(x))
  replace: return aten.silu.default(x)
- id: fuse.swish
  vars: {x: "f32 [*S]"}
  match: return aten.mul.Tensor(x, aten.sigmoid.default(aten.add.Tensor(x, 1.0)))
  replace: return aten.silu.default(x)
- id: other.exp
  vars: {x: "f32 [*S]"}
  match: return aten.exp.default(x)
  replace: return aten.exp2.default(x)
- id: other.add-more
  vars: {x: "f32 [*S]"}
  match: return aten.add.Tensor(x, 1.0)
  replace: return aten.add.Tensor(x, 2.0)
  measure: once
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODELS)
    (tmp_path / "book.yaml").write_text(BOOK)
    return tmp_path


def test_what_stops_a_rule(invoke: Invoke, files: Path) -> None:
    result = invoke("rule", "explain", "model.py:make", "--rules", "book.yaml", "--rule", "fuse.silu")
    assert result.exit_code == 0, result.stderr
    assert "book.yaml:5:57" in result.stdout
    lines = result.stdout.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("5 |") or "   5 |" in line)
    assert lines[at + 1].index("^") == lines[at].index("(x))") + 1
    assert "expected: x again, which is %x, an input, f32 [2, 3]" in result.stdout
    assert "model.py:6 in forward" in result.stdout
    assert lines[-1] == "forward: fuse.silu does not fire; 1 call at which it can start"


def test_why_a_rule_does_not_fire_in_the_official_chain(invoke: Invoke, files: Path) -> None:
    pytest.importorskip("executorch.exir")
    base = ("rule", "explain", "model.py:make", "--rules", "book.yaml", "--official")
    result = invoke(*base, "--rule", "fuse.silu")
    assert result.exit_code == 0, result.stderr
    assert "expected: x again, which is %x, an input, f32 [2, 3]" in result.stdout
    assert result.stdout.splitlines()[-1] == "forward: fuse.silu does not fire; 1 call at which it can start"
    result = invoke(*base, "--rule", "fuse.swish", "--json")
    assert result.exit_code == 0, result.stderr
    (method,) = json.loads(result.stdout)["methods"]
    assert (method["tried"], method["firing"]) == (1, 1)


def test_document(invoke: Invoke, files: Path) -> None:
    base = ("rule", "explain", "model.py:two", "--rules", "canonicalize", "--rules", "book.yaml", "--json")
    result = invoke(*base, "--rule", "fuse.swish", "--method", "other")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    (method,) = report["methods"]
    assert (report["rule"], method["name"]) == ("fuse.swish", "other")
    assert {"aten.mul.Tensor", "aten.mul.Scalar"} <= set(report["operators"])
    (node,) = method["nodes"]
    assert (method["tried"], method["firing"]) == (1, 1)
    assert (node["fires"], node["made"], node["note"]["code"]) == (True, ["aten.silu.default"], "EK261")
    # What the other rules leave behind has another number in it.
    result = invoke(*base, "--rule", "fuse.swish", "--node", node["node"], "--after-others")
    report = json.loads(result.stdout)
    assert [one["name"] for one in report["methods"]] == ["one", "other"]
    node = report["methods"][0]["nodes"][0]
    assert (node["fires"], node["kind"], node["expected"]) == (False, "literal", "1.0")
    assert node["found"].endswith("f32 [], value 2.0")
    assert node["source"].partition("model.py")[2].startswith(":6 in forward")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("fuse.swish", "forward: fuse.swish fires at 1 of 1 call at which it can start"),
        ("other.exp", "forward: there is no call of aten.exp.default"),
    ],
)
def test_last_line(rule: str, said: str, invoke: Invoke, files: Path) -> None:
    result = invoke("rule", "explain", "model.py:make", "--rules", "book.yaml", "--rule", rule)
    assert result.stdout.splitlines()[-1] == said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--rule", "fuse.sil"), "did you mean fuse.silu?"),
        (("--rule", "fuse.silu", "--node", "sigmoid"), "did you mean %aten_sigmoid_default?"),
        (("--rule", "fuse.silu", "--method", "none"), "it has forward"),
        ((), "missing option '--rule'"),
    ],
)
def test_wrong_usage(more: tuple[str, ...], said: str, invoke: Invoke, files: Path) -> None:
    result = invoke("rule", "explain", "model.py:make", "--rules", "book.yaml", *more)
    assert result.exit_code == 2
    assert said in result.stderr
