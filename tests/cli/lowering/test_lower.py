from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.conftest import Invoke, Spawn, document
from torch.export.pt2_archive._package import package_pt2

from exirkit.emit import open_program
from exirkit.runtime_ref import Runtime


def report(invoke: Invoke, *args: str | Path) -> Any:
    result = invoke("lower", *args, "--json")
    assert result.exit_code == 0, result.stderr
    return document(result.stdout)


def test_a_factory_of_a_file(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    found = report(invoke, "models.py:tiny", "-o", "tiny.pte")
    path = tmp_path / "tiny.pte"
    assert found.nbytes == path.stat().st_size == sum(vars(found.bytes_by_kind).values())
    (method,) = found.methods
    assert method.name == "forward"
    assert min(method.nodes_exported, method.nodes_edge, method.nodes_lowered, method.instructions) > 0
    assert sum(each.calls for each in method.operators) == method.instructions
    assert list(vars(found.seconds)) == ["load", "export", "to_edge", "to_executorch", "write"]
    (result,) = Runtime.get().load_program(path).load_method("forward").execute([torch.ones(2, 4)])
    assert result.shape == (2, 3)


def test_people_see_what_was_done(invoke: Invoke, model_file: Path) -> None:
    result = invoke("lower", "models.py:tiny", "-o", "tiny.pte")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("models.py:tiny -> tiny.pte (")
    for fact in ("nodes: exported -> edge -> lowered", "arenas (bytes)", "flatbuffer", "seconds: load"):
        assert fact in result.stdout


def test_what_the_model_prints_is_not_in_the_report(invoke: Invoke, model_file: Path) -> None:
    result = invoke("lower", "models.py:tiny", "-o", "tiny.pte", "--json")
    assert result.stderr == "the model talks\n"
    json.loads(result.stdout)


def test_a_dotted_module_of_the_working_directory(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "things.py").write_text(model_file.read_text())
    assert report(invoke, "package.things:exported", "-o", "tiny.pte").methods[0].name == "forward"


@pytest.mark.parametrize("names", [("encode", "decode"), ("encode",), ("model", "decode")])
def test_an_archive_of_several_programs(invoke: Invoke, tmp_path: Path, names: tuple[str, ...]) -> None:
    layer = torch.nn.Linear(4, 3)
    programs = {name: torch.export.export(layer, (torch.ones(rows, 4),)) for rows, name in enumerate(names, 1)}
    package_pt2(tmp_path / "several.pt2", exported_programs=programs)
    found = report(invoke, "several.pt2", "-o", "several.pte")
    assert sorted(each.name for each in found.methods) == sorted(names)
    # Both have the weights of one layer, which are stored once.
    assert found.bytes_by_kind.constants < 2 * (12 + 3) * 4
    loaded = Runtime.get().load_program(tmp_path / "several.pte")
    for rows, name in enumerate(names, 1):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(loaded.load_method(name).execute([x])[0], layer(x))


def test_dynamic_shapes(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    report(invoke, "models.py:dynamic", "-o", "dynamic.pte")
    method = Runtime.get().load_program(tmp_path / "dynamic.pte").load_method("forward")
    for rows in (8, 1, 3):
        assert method.execute([torch.ones(rows, 4)])[0].shape == (rows, 3)


def test_several_methods(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    assert {each.name for each in report(invoke, "models.py:several", "-o", "two.pte").methods} == {"encode", "decode"}
    assert Runtime.get().load_program(tmp_path / "two.pte").method_names == {"encode", "decode"}


def test_a_pt2_file(invoke: Invoke, tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Linear(4, 3), (torch.ones(2, 4),))
    torch.export.save(program, tmp_path / "linear.pt2")
    assert report(invoke, "linear.pt2", "-o", "linear.pte").target == "linear.pt2"
    (result,) = Runtime.get().load_program(tmp_path / "linear.pte").load_method("forward").execute([torch.ones(2, 4)])
    torch.testing.assert_close(result, program.module()(torch.ones(2, 4)))


def plan_of(path: Path) -> Any:
    with open_program(path) as file:
        return file.program.execution_plan[0]


def test_inputs_and_outputs_without_places(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    report(invoke, "models.py:tiny", "-o", "tiny.pte", "--no-alloc-graph-input", "--no-alloc-graph-output")
    plan = plan_of(tmp_path / "tiny.pte")
    for index in (*plan.inputs, *plan.outputs):
        assert plan.values[index].val.allocation_info is None


def test_planners_and_alignment(invoke: Invoke, model_file: Path) -> None:
    greedy = report(invoke, "models.py:tiny", "-o", "tiny.pte", "--planner", "greedy")
    naive = report(invoke, "models.py:tiny", "-o", "tiny.pte", "--planner", "naive")
    wide = report(invoke, "models.py:tiny", "-o", "tiny.pte", "--alignment", "256")
    assert sum(greedy.methods[0].arenas) <= sum(naive.methods[0].arenas)
    assert all(size % 256 == 0 for size in wide.methods[0].arenas)


def test_segments_are_aligned(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    report(invoke, "models.py:tiny", "-o", "tiny.pte", "--segment-alignment", "4096")
    with open_program(tmp_path / "tiny.pte") as file:
        assert file.header is not None
        assert file.header.segment_base_offset % 4096 == 0


def test_a_segment_alignment_that_is_not_a_power_of_two(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    result = invoke("lower", "models.py:tiny", "-o", "tiny.pte", "--segment-alignment", "48")
    assert result.exit_code == 2
    assert "segment_alignment is 48" in result.stderr
    assert not (tmp_path / "tiny.pte").exists()


@pytest.mark.slow
def test_strict_export(invoke: Invoke, model_file: Path) -> None:
    assert report(invoke, "models.py:tiny", "-o", "tiny.pte", "--strict").methods[0].instructions > 0


def test_the_report_is_written(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    found = report(invoke, "models.py:tiny", "-o", "tiny.pte", "--report", "report.json")
    assert document((tmp_path / "report.json").read_text()) == found
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"models.py", "report.json", "tiny.pte"}


def test_the_file_is_the_same_every_time(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    contents = []
    for _ in range(2):
        torch.manual_seed(0)
        report(invoke, "models.py:tiny", "-o", "tiny.pte")
        contents.append((tmp_path / "tiny.pte").read_bytes())
    assert contents[0] == contents[1]


def test_a_failed_write_leaves_the_old_file(
    invoke: Invoke, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.pte").write_bytes(b"old")

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "replace", full)
    result = invoke("lower", "models.py:tiny", "-o", "tiny.pte")
    assert result.exit_code == 1
    assert result.stderr.endswith("error[EK712]: no space left on device\n")
    assert (tmp_path / "tiny.pte").read_bytes() == b"old"
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"models.py", "tiny.pte"}


@pytest.mark.slow
def test_in_a_process_of_its_own(spawn: Spawn, model_file: Path, tmp_path: Path) -> None:
    result = spawn("lower", "models.py:tiny", "-o", "tiny.pte", "--json")
    assert (result.returncode, result.stderr) == (0, "the model talks\n")
    document(result.stdout)
    result = spawn("lower", "models.py:rejected_by_export", "-o", "x.pte")
    assert result.returncode == 1
    assert result.stderr.startswith("error[EK717]")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "x.pte").exists()


TRANSPOSED = """rulebook: 1
rules:
- id: transposed
  vars: {x: "f32 [N, K]"}
  match: return input(x)
  replace: return input(aten.permute_copy.default(x, [1, 0]))
  uses: return aten.permute_copy.default(new, [1, 0])
  measure: once
"""


def test_rules_change_what_the_program_takes_if_they_may(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    (tmp_path / "book.yaml").write_text(TRANSPOSED)
    for options, sizes in (([], (2, 4)), (["--change-interface"], (4, 2))):
        command = ["lower", "models.py:tiny", "-o", "tiny.pte", "--rules", "book.yaml", "-O", "0", *options]
        result = invoke(*command)
        assert result.exit_code == 0, result.stderr
        said = "forward: input x: float32 [2, 4] -> float32 [4, 2]"
        assert (said in result.stderr) == bool(options)
        method = Runtime.get().load_program(tmp_path / "tiny.pte").load_method("forward")
        (found,) = method.execute([torch.ones(*sizes)])
        assert found.shape == (2, 3)
