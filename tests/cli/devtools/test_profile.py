"""`exirkit profile`: times by operator, module and source line, traces, and two programs side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.conftest import Invoke, document

from exirkit import to_edge
from exirkit.cli.model import call_factory, parse_source

MODELS = """
import torch
from torch._higher_order_ops import while_loop


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.one(x))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Inner(), Inner()

    def forward(self, x):
        return self.second(self.first(x)) + 1


class Loop(torch.nn.Module):
    def forward(self, n, x):
        def goes_on(i, y, n, x):
            return i < n

        def body(i, y, n, x):
            return i + 1, torch.tanh(y) + x, n.clone(), x.clone()

        start = (torch.zeros((), dtype=torch.int64), x.clone(), n.clone(), x.clone())
        return while_loop(goes_on, body, start)[1]


class Sums(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(torch.mm(x, y) + y) * 2


def model():
    return Model(), (torch.ones(2, 4),)


def loop():
    return Loop(), (torch.tensor(7), torch.ones(3))


def sums():
    return Sums(), (torch.eye(3), torch.ones(3, 3))


def several():
    return {"model": model(), "sums": sums()}
"""

BOTH = ["reference", pytest.param("official", marks=pytest.mark.executorch)]


@pytest.fixture
def models(invoke: Invoke) -> str:
    """Name a file with factories, in the working directory of the commands."""
    Path("models.py").write_text(MODELS)
    return "models.py"


def calls(groups: list[Any]) -> dict[str, int]:
    return {one.name: one.executions for one in groups}


def checked_events(path: Path) -> list[dict[str, Any]]:
    """Return the complete events of a file in the Trace Event format, each of which lies within its method."""
    events = json.loads(path.read_text())["traceEvents"]
    for event in events:
        assert event["ph"] in ("M", "X")
        assert {"name", "ph", "pid", "tid", "args"} <= event.keys()
    complete = [event for event in events if event["ph"] == "X"]
    whole = {(one["pid"], one["tid"]): one for one in complete if one["cat"] == "method"}
    for one in complete:
        assert type(one["ts"]) is float
        assert one["dur"] >= 0
        method = whole[one["pid"], one["tid"]]
        assert method["ts"] <= one["ts"]
        assert one["ts"] + one["dur"] <= method["ts"] + method["dur"] + 1e-6
    named = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    assert named == whole.keys()
    return complete


@pytest.mark.parametrize("runtime", BOTH)
def test_a_model(invoke: Invoke, models: str, tmp_path: Path, runtime: str) -> None:
    trace = tmp_path / "trace.json"
    done = invoke(
        "profile", f"{models}:model", "--runtime", runtime, "--runs", "3", "--warmup", "1", "--trace", trace, "--json"
    )
    assert done.exit_code == 0, done.output
    found = document(done.stdout)
    assert (found.runtime, found.runs, found.against, found.trace) == (runtime, 3, None, str(trace))
    (method,) = found.methods
    assert len(method.totals) == 3
    assert sorted(method.totals)[1] == method.median_ns > 0
    assert calls(method.operators) == {"addmm.out": 2, "relu.out": 2, "add.out": 1}
    assert calls(method.modules) == {"first.one": 1, "second.one": 1, "first": 1, "second": 1, "": 1}
    lines = {name.partition(":  ")[2]: count for name, count in calls(method.sources).items()}
    assert lines["return torch.relu(self.one(x))"] == 4
    assert lines["return self.second(self.first(x)) + 1"] == 1
    for groups in (method.operators, method.modules, method.sources):
        # Medians of parts need not add up to the median of the whole, and cannot exceed the slowest run.
        assert all(0 < one.median_ns <= max(method.totals) for one in groups)
        assert [one.median_ns for one in groups] == sorted((one.median_ns for one in groups), reverse=True)
    events = checked_events(trace)
    assert sum(one["name"] == "relu.out" for one in events) == 2 * 3
    relu = next(one for one in events if one["name"] == "relu.out")
    assert (relu["args"]["module"], relu["args"]["operators"]) == ("first", ["relu.default"])


@pytest.mark.parametrize("runtime", BOTH)
def test_turns_of_a_loop(invoke: Invoke, models: str, tmp_path: Path, runtime: str) -> None:
    trace = tmp_path / "trace.json"
    options = ("--runtime", runtime, "--runs", "2", "--trace", trace, "--json")
    done = invoke("profile", f"{models}:loop", *options)
    assert done.exit_code == 0, done.output
    (method,) = document(done.stdout).methods
    tanh = next(one for one in method.operators if one.name == "tanh.out")
    assert (tanh.instructions, tanh.executions) == (1, 7)
    assert sum(one["name"] == "tanh.out" for one in checked_events(trace)) == 7 * 2


def test_delegates_methods_and_a_second_program(invoke: Invoke, models: str) -> None:
    demo = "exirkit.program.demo_backend:AddMulPartitionerDemo"
    done = invoke("profile", f"{models}:several", "--partitioner", demo, "--runs", "2", "--json")
    assert done.exit_code == 0, done.output
    first, second = document(done.stdout).methods
    assert (first.name, second.name) == ("model", "sums")
    assert calls(second.operators) == {"BackendWithCompilerDemo": 2, "relu.out": 1}
    assert invoke("lower", f"{models}:several", "-o", "plain.pte").exit_code == 0
    done = invoke("profile", f"{models}:several", "--against", "plain.pte", "--method", "sums", "--runs", "2", "--json")
    assert done.exit_code == 0, done.output
    found = document(done.stdout)
    assert [one.name for one in found.against.methods] == ["sums"]
    ratios = {one.name: one for one in found.against.ratios.sums.operators}
    assert ratios.keys() == {"mm.out", "add.out", "relu.out", "mul.out"}
    one = ratios["mm.out"]
    assert one.ratio == pytest.approx(one.other_ns / one.median_ns)
    # The file does not say of what module its instructions are.
    assert [each.ratio for each in found.against.ratios.sums.modules] != []


def test_against_eager_pytorch(invoke: Invoke, models: str) -> None:
    done = invoke("profile", f"{models}:several", "--against", "eager", "--runs", "3", "--warmup", "1", "--json")
    assert done.exit_code == 0, done.output
    found = document(done.stdout)
    assert found.against.target == "eager"
    mine, theirs = found.methods[0], found.against.methods[0]
    assert (mine.name, theirs.name) == ("model", "model")
    assert calls(theirs.operators) == {"linear.default": 2, "relu.default": 2, "add.Tensor": 1}
    assert [len(theirs.totals), theirs.instructions[0].module] == [3, "first.one"]
    assert sum(one.median_ns for one in theirs.instructions) <= max(theirs.totals)
    ratios = {one.name: one for one in found.against.ratios.model.modules}
    one = ratios["first.one"]
    assert one.ratio == pytest.approx(one.other_ns / one.median_ns)
    assert invoke("lower", f"{models}:model", "-o", "model.pte").exit_code == 0
    assert "EK711" in invoke("profile", "model.pte", "--against", "eager").stderr


def test_a_file_and_its_record(invoke: Invoke, models: str) -> None:
    assert invoke("lower", f"{models}:model", "-o", "model.pte").exit_code == 0
    done = invoke("profile", "model.pte", "--runs", "1", "--top", "1")
    assert done.exit_code == 0, done.output
    assert "by operator, 2 more" in done.stdout
    assert "by module" not in done.stdout
    text = invoke("profile", f"{models}:model", "--against", "model.pte", "--runs", "2").stdout
    assert "forward against model.pte, by operator" in text
    wrong = invoke("profile", f"{models}:model", "--etrecord", "model.etrecord")
    assert (wrong.exit_code, "EK711" in wrong.stderr) == (2, True)
    assert "EK711" in invoke("profile", "model.pte", "--method", "other").stderr


@pytest.mark.parametrize("by_command", [False, True])
def test_a_record_gives_modules(invoke: Invoke, models: str, by_command: bool) -> None:
    if by_command:
        lowered = invoke("lower", f"{models}:model", "-o", "model.pte", "--etrecord", "model.etrecord", "--json")
        assert document(lowered.stdout).etrecord == "model.etrecord"
    else:
        model, inputs = call_factory(parse_source(f"{models}:model"))
        made = to_edge(torch.export.export(model, inputs), generate_etrecord=True).to_executorch()
        made.save("model.pte")
        made.get_etrecord().save("model.etrecord", official=False)
    done = invoke("profile", "model.pte", "--etrecord", "model.etrecord", "--runs", "1", "--json")
    assert done.exit_code == 0, done.output
    (method,) = document(done.stdout).methods
    assert calls(method.modules) == {"first.one": 1, "second.one": 1, "first": 1, "second": 1, "": 1}
