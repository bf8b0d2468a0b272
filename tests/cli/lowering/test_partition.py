"""`exirkit partition`: what is taken, what is not and why, and what is wrong with the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke, Spawn

from exirkit.passes.pipelines.pipeline import shipped_text

FILE = "partitioning: 1\nbackend: Unknown\nrules:\n- {name: matrices, op: aten.addmm.default}\n"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "npu.yaml"
    path.write_text(FILE)
    return path


def test_report(invoke: Invoke, model_file: Path, rules: Path) -> None:
    done = invoke("partition", f"{model_file}:several", "--partitioner", rules, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert [one["name"] for one in report["methods"]] == ["decode", "encode"]
    for method in report["methods"]:
        (taken,) = method["taken"]
        assert (taken["operators"], taken["backend"]) == ({"aten.addmm.default": 1}, "Unknown")
        assert method["calls"] == method["taken_calls"] + len(method["not_taken"]) == 3
        assert {one["kind"] for one in method["not_taken"]} == {"no_rule"}
        assert "models.py" in str(method["not_taken"])


def test_tables(invoke: Invoke, model_file: Path, rules: Path) -> None:
    short = invoke("partition", f"{model_file}:tiny", "--partitioner", rules)
    assert "forward: 1 of 3 calls in 1 partitions" in short.stdout
    assert "aten_relu_default" not in short.stdout
    listed = invoke("partition", f"{model_file}:tiny", "--partitioner", rules, "--why-not")
    assert "aten_relu_default" in listed.stdout
    assert "models.py" in listed.stdout
    assert "aten.relu.default, 1 call: no rule speaks of its operator" in listed.stdout
    one = invoke("partition", f"{model_file}:tiny", "--partitioner", rules, "--node", "%aten_relu_default")
    assert one.stdout.startswith("note[EK497]: %aten_relu_default of aten.relu.default stays in the program: no rule")
    taken = invoke("partition", f"{model_file}:tiny", "--partitioner", rules, "--node", "aten_addmm_default")
    assert taken.stdout == "%aten_addmm_default is taken: partition Unknown_0, by matrices\n"


def test_operators_that_stay_whole(invoke: Invoke, model_file: Path, rules: Path) -> None:
    rules.write_text(FILE.replace("addmm", "linear") + "keep_whole: [{op: aten.linear}]\n")
    done = invoke("partition", f"{model_file}:tiny", "--partitioner", rules)
    assert "forward: 1 of 2 calls in 1 partitions" in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--method", "encde"), 2, "error[EK711]: the model has no method 'encde' (did you mean 'encode'?)"),
        (("--node", "aten_relu_defalt"), 2, "(did you mean 'aten_relu_default'?)"),
    ],
)
def test_names_that_there_are_not(
    invoke: Invoke, model_file: Path, rules: Path, options: tuple[str, ...], code: int, says: str
) -> None:
    done = invoke("partition", f"{model_file}:several", "--partitioner", rules, *options)
    assert done.exit_code == code
    assert says in done.stderr


def test_files_that_are_wrong(invoke: Invoke, model_file: Path, rules: Path) -> None:
    rules.write_text(FILE.replace("addmm", "admm"))
    done = invoke("partition", f"{model_file}:raises", "--partitioner", rules)
    # Said before the model is loaded.
    assert (done.exit_code, "npu.yaml:4:24" in done.stderr, "EK496" in done.stderr) == (1, True, True)
    missing = invoke("partition", f"{model_file}:tiny", "--partitioner", rules.with_name("none.yaml"))
    assert (missing.exit_code, "EK712" in missing.stderr) == (1, True)


def test_lower_to_a_backend(invoke: Invoke, model_file: Path, rules: Path) -> None:
    rules.write_text(FILE.replace("Unknown", "ReferenceBackend"))
    done = invoke("lower", f"{model_file}:several", "-o", "m.pte", "--partitioner", rules, "--json")
    assert done.exit_code == 0, done.output
    assert {one["name"]: one["delegates"] for one in json.loads(done.stdout)["methods"]} == {
        "decode": ["ReferenceBackend"], "encode": ["ReferenceBackend"]
    }  # fmt: skip
    text = invoke("lower", f"{model_file}:tiny", "-o", "m.pte", "--partitioner", rules)
    assert "delegates of forward: ReferenceBackend (1)" in text.stdout
    assert "delegates: ReferenceBackend" in invoke("inspect", "m.pte").stdout


def test_delegates_run_in_a_process_that_imported_nothing(
    invoke: Invoke, spawn: Spawn, model_file: Path, rules: Path
) -> None:
    rules.write_text(FILE.replace("Unknown", "ReferenceBackend"))
    assert invoke("lower", f"{model_file}:tiny", "-o", "m.pte", "--partitioner", rules).exit_code == 0
    done = spawn("run", "m.pte", "--seed", "1")
    assert done.returncode == 0, done.stderr
    assert "float32" in done.stdout


def test_lower_with_a_partitioner_of_ones_own(invoke: Invoke, model_file: Path) -> None:
    own = model_file.with_name("own_partitioner.py")
    own.write_text(
        "from exirkit.passes import DataPartitioner, parse_partitioning\n"
        f"matrices = DataPartitioner(parse_partitioning({FILE.replace('Unknown', 'ReferenceBackend')!r}))\n"
        "number = 5\n"
    )
    done = invoke("lower", f"{model_file}:tiny", "-o", "m.pte", "--partitioner", f"{own}:matrices", "--json")
    assert json.loads(done.stdout)["methods"][0]["delegates"] == ["ReferenceBackend"]
    wrong = invoke("lower", f"{model_file}:tiny", "-o", "m.pte", "--partitioner", f"{own}:number")
    assert wrong.exit_code == 2
    assert "is a int, not a partitioner" in wrong.stderr


def test_backend_that_there_is_not(invoke: Invoke, model_file: Path, rules: Path) -> None:
    done = invoke("lower", f"{model_file}:tiny", "-o", "m.pte", "--partitioner", rules)
    assert done.exit_code != 0
    assert "error[EK490]: there is no backend 'Unknown'" in done.stderr


def test_partitioner_beside_a_pipeline(invoke: Invoke, model_file: Path, rules: Path) -> None:
    pipeline = rules.with_name("own.yaml")
    pipeline.write_text(shipped_text("to_edge"))
    done = invoke("lower", f"{model_file}:tiny", "-o", "m.pte", "--partitioner", rules, "--pipeline", pipeline)
    assert done.exit_code == 2
    assert "exclude each other" in done.stderr
