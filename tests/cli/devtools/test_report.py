from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.cli.conftest import Invoke, document

from exirkit.runtime_ref import Runtime, Tracer
from exirkit.visualization import times_of_trace


def test_a_page_and_its_document(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = invoke("report", f"{model_file}:tiny", "-o", page, "--json")
    assert result.exit_code == 0, result.stderr
    found = document(result.stdout)
    assert (found.ok, found.file, found.nbytes, found.failure) == (True, str(page), page.stat().st_size, [])
    stages = found.methods.forward
    assert [stage.name for stage in stages][-1] == "plan-memory"
    decomposed = next(stage for stage in stages if stage.name == "decompose-to-core")
    assert (decomposed.added, decomposed.removed, decomposed.rewrites) == (2, 1, 0)
    assert "default-src 'none'" in page.read_text()
    text = invoke("report", f"{model_file}:tiny", "-o", page).stdout
    for fact in ("decompose-to-core", "stages that change the program", str(page)):
        assert fact in text


def test_rules_passes_and_measured_times(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    page, times = tmp_path / "report.html", tmp_path / "times.json"
    times.write_text('{"forward": [[0, 1250], {"instruction": 1, "value": 80, "note": "cold"}, ["x", 2]]}')
    options = ("--rules", "algebra", "-O2", "--times", times, "--no-sources")
    result = invoke("report", f"{model_file}:tiny", "-o", page, *options, "--json")
    assert result.exit_code == 0, result.stderr
    times.write_text('{"forward": [[0, "long"]]}')
    result = invoke("report", f"{model_file}:tiny", "-o", page, "--times", times)
    assert result.exit_code == 2
    assert "EK770" in result.stderr


def test_the_way_to_a_failure(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    page, passes = tmp_path / "report.html", tmp_path / "failing_pass.py"
    passes.write_text("def fail(module):\n    raise RuntimeError('on purpose')\n")
    result = invoke("report", f"{model_file}:tiny", "-o", page, "--passes", f"{passes}:fail", "--json")
    assert result.exit_code == 1
    found = document(result.stdout)
    assert not found.ok
    assert "on purpose" in found.failure[0]
    assert found.methods.forward[-1].name == "convert-to-edge-operators"
    assert page.is_file()


def test_the_name_of_the_page(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    result = invoke("report", f"{model_file}:tiny", "-o", tmp_path / "report.txt")
    assert result.exit_code == 2
    assert "EK712" in result.stderr


def test_times_of_a_trace(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    program, traced, page = (tmp_path / name for name in ("model.pte", "model.etdp", "report.html"))
    assert invoke("lower", f"{model_file}:tiny", "-o", program).exit_code == 0
    tracer = Tracer()
    method = Runtime.get().load_program(program, tracer=tracer).load_method("forward")
    for _ in range(3):
        method.execute([torch.ones(2, 4)])
    tracer.save(traced)
    found = times_of_trace(tracer.trace())
    assert [one.instruction for one in found] == list(range(len(tracer.runs[0].instructions)))
    for one, *calls in zip(found, *(run.instructions for run in tracer.runs), strict=True):
        assert one.value == sum(call.end_ns - call.start_ns for call in calls) / 3
    result = invoke("report", f"{model_file}:tiny", "-o", page, "--times", traced, "--json")
    assert result.exit_code == 0, result.stderr
    traced.write_bytes(b"no trace")
    result = invoke("report", f"{model_file}:tiny", "-o", page, "--times", traced)
    assert result.exit_code == 1
    assert "EK529" in result.stderr


def test_gaps_and_times_of_a_model_are_shown(
    invoke: Invoke, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gap = SimpleNamespace(relative=0.25, is_bad=False, text="")
    one = SimpleNamespace(gap=gap, instruction=0, operator="aten::addmm.out", node=SimpleNamespace(name="addmm"))
    found = [SimpleNamespace(method="forward", ok=True, instructions=[one])]
    # Finding gaps takes seconds, and has tests of its own.
    monkeypatch.setattr("exirkit.cli.commands.devtools.report.find_gaps", lambda *_: found)
    graphs = tmp_path / "graphs.json"
    options = ("-o", graphs, "--format", "model-explorer")
    result = invoke("report", f"{model_file}:tiny", *options, "--gap", "--time")
    assert result.exit_code == 0, result.stderr
    gaps, times = (json.loads((tmp_path / f"graphs_{name}.json").read_text()) for name in ("gaps", "times"))
    last = json.loads(graphs.read_text())["graphs"][-1]["id"]
    assert [each["value"] for each in gaps[last]["results"].values()] == [0.25]
    assert set(gaps[last]["results"]) < set(times[last]["results"])
    assert all(each["value"] > 1 for each in times[last]["results"].values())


def test_graphs_for_model_explorer(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    graphs, times = tmp_path / "model.json", tmp_path / "times.json"
    times.write_text('{"forward": [[0, 1250], [0, 50], [99, 1]]}')
    options = ("--format", "model-explorer", "--times", times)
    result = invoke("report", f"{model_file}:tiny", "-o", graphs, *options)
    assert result.exit_code == 0, result.stderr
    found = json.loads(graphs.read_text())["graphs"]
    assert found[0]["id"] == "forward 00 export"
    for graph in found:
        # The keys of the classes in Model Explorer's graph_builder.
        assert set(graph) == {"id", "nodes"}
        nodes = {node["id"]: node for node in graph["nodes"]}
        assert len(nodes) == len(graph["nodes"])
        assert all(edge["sourceNodeId"] in nodes for node in nodes.values() for edge in node["incomingEdges"])
    last = {node["id"]: node for node in found[-1]["nodes"]}
    (product,) = (node for node in last.values() if node["label"] == "aten.addmm.out")
    assert product["namespace"] == "linear"
    assert len(product["incomingEdges"]) == 4
    data = json.loads((tmp_path / "model_times.json").read_text())
    assert data[found[-1]["id"]]["results"] == {product["id"]: {"value": 1300.0}}


def test_a_program_file(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    program, page = tmp_path / "model.pte", tmp_path / "report.html"
    assert invoke("lower", f"{model_file}:tiny", "-o", program).exit_code == 0
    result = invoke("report", program, "-o", page, "--time", "--json")
    assert result.exit_code == 0, result.stderr
    found = document(result.stdout)
    assert (found.ok, found.file, found.nbytes) == (True, str(page), page.stat().st_size)
    graphs = tmp_path / "graphs.json"
    result = invoke("report", program, "-o", graphs, "--format", "model-explorer", "--time")
    assert result.exit_code == 0, result.stderr
    (graph,) = json.loads(graphs.read_text())["graphs"]
    assert any(node["incomingEdges"] for node in graph["nodes"])
    (data,) = json.loads((tmp_path / "graphs_times.json").read_text()).values()
    assert data["results"]
    result = invoke("report", program, "-o", page, "--gap")
    assert result.exit_code == 2
    assert "not lowered again" in result.stderr
