from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.cli.conftest import Invoke, document, write_program
from tests.runtime_ref.assembly import Assembly


def report(invoke: Invoke, *args: str | Path) -> Any:
    result = invoke("run", *args, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return document(result.stdout)


def test_people_see_outputs_seed_and_time(invoke: Invoke, program_file: Path) -> None:
    result = invoke("run", program_file, "--seed", "7")
    assert result.exit_code == 0, result.stderr
    assert "random inputs with seed 7" in result.stdout
    assert "float32  4x2" in result.stdout
    assert result.stdout.rstrip().endswith(" s")
    assert result.stderr == ""


def test_ones(invoke: Invoke, program_file: Path) -> None:
    found = report(invoke, program_file, "--ones")
    assert found.inputs == ["ones"]
    assert found.seed is None
    assert found.outputs[0].shape == [4, 2]
    assert found.outputs[0].first == [11.0, 21.0, 11.0, 21.0]
    assert found.outputs[1].kind == "int"
    assert found.outputs[1].first == [3]


def test_random_inputs_depend_on_the_seed_only(invoke: Invoke, program_file: Path) -> None:
    first, again, other = (report(invoke, program_file, "--seed", seed).outputs[0].first for seed in ("1", "1", "2"))
    assert first == again != other
    assert report(invoke, program_file).seed == 0


def test_repeat(invoke: Invoke, program_file: Path) -> None:
    assert len(report(invoke, program_file, "--repeat", "5").seconds) == 5
    assert "5 runs: fastest" in invoke("run", program_file, "--repeat", "5").stdout


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pt"])
def test_inputs_from_files(invoke: Invoke, program_file: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"inputs{suffix}"
    x = np.full((3, 2), 2.0, dtype=np.float32)
    if suffix == ".npy":
        np.save(path, x)
    elif suffix == ".npz":
        np.savez(path, x=x)
    else:
        torch.save([torch.from_numpy(x)], path)
    found = report(invoke, program_file, "--input", path)
    assert found.inputs == [str(path)]
    assert found.outputs[0].shape == [3, 2]
    assert found.outputs[0].first == [12.0, 22.0, 12.0, 22.0]


def test_layout_and_byte_order_of_arrays_do_not_matter(invoke: Invoke, program_file: Path, tmp_path: Path) -> None:
    x = np.arange(8, dtype=">f4").reshape(2, 4).T
    np.save(tmp_path / "x.npy", x)
    found = report(invoke, program_file, "--input", tmp_path / "x.npy")
    assert found.outputs[0].first == [10.0, 24.0, 11.0, 25.0]


def test_outputs_are_saved(invoke: Invoke, program_file: Path, tmp_path: Path) -> None:
    found = report(invoke, program_file, "--ones", "--save", tmp_path / "out.npz")
    assert found.saved == str(tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as saved:
        assert sorted(saved.files) == ["output_0", "output_1"]
        np.testing.assert_array_equal(saved["output_0"], np.tile(np.array([11, 21], np.float32), (4, 1)))
        assert saved["output_1"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["add.pte", "out.npz"]


def test_narrow_floats_are_widened_in_files(invoke: Invoke, tmp_path: Path) -> None:
    made = Assembly()
    x, y = (made.tensor([2], torch.bfloat16) for _ in range(2))
    made.call("aten::neg.out", x, y, y)
    path = write_program(tmp_path / "neg.pte", made.program([x], [y]))
    found = report(invoke, path, "--ones", "--save", tmp_path / "out.npz")
    assert found.outputs[0].dtype == "bfloat16"
    with np.load(tmp_path / "out.npz") as saved:
        assert saved["output_0"].dtype == np.float32
        assert saved["output_0"].tolist() == [-1.0, -1.0]


def test_infinities_are_text_in_json(invoke: Invoke, tmp_path: Path) -> None:
    made = Assembly()
    x, y = made.constant(torch.tensor([0.0, -1.0, 1.0])), made.tensor([3])
    made.call("aten::log.out", x, y, y)
    result = invoke("run", write_program(tmp_path / "log.pte", made.program([], [y])), "--json")
    assert '"-Infinity"' in result.stdout
    assert '"NaN"' in result.stdout
    assert document(result.stdout).inputs == []


def test_integers_can_be_indices(invoke: Invoke, tmp_path: Path) -> None:
    made = Assembly()
    table, indices, rows = made.constant(torch.eye(2)), made.tensor([5], torch.int64), made.tensor([5, 2])
    extra = [made.argument(-1), made.argument(False), made.argument(False)]
    made.call("aten::embedding.out", table, indices, *extra, rows, rows)
    path = write_program(tmp_path / "table.pte", made.program([indices], [rows]))
    for seed in range(3):
        assert report(invoke, path, "--seed", str(seed)).outputs[0].shape == [5, 2]


def test_methods_are_chosen_by_name(invoke: Invoke, tmp_path: Path) -> None:
    program = Assembly().program()
    plans = []
    for name, number in (("one", 1), ("two", 2)):
        made = Assembly()
        made.program([], [made.argument(number)])
        made.plan.name = name
        plans.append(made.plan)
    path = write_program(tmp_path / "two.pte", program.model_copy(update={"execution_plan": plans}))
    assert report(invoke, path, "--method", "two").outputs[0].first == [2]
    result = invoke("run", path)
    assert result.exit_code == 2
    assert result.stderr == "error[EK723]: there is no method 'forward' (methods: one, two)\n"


def test_the_sanitizer_finds_two_tensors_in_one_place(invoke: Invoke, tmp_path: Path) -> None:
    made = Assembly()
    x, first, second = made.tensor([4]), made.tensor([4]), made.tensor([4], at=24)
    for out in (first, second):
        made.call("aten::neg.out", x, out, out)
    path = tmp_path / "overlap.pte"
    path.write_bytes(made.to_bytes([x], [first, second]))
    assert invoke("run", path).exit_code == 0
    result = invoke("run", path, "--sanitize")
    assert result.exit_code == 1
    assert "error[EK663]" in result.stderr


def test_the_sanitizer_accepts_a_right_program(invoke: Invoke, program_file: Path) -> None:
    assert report(invoke, program_file, "--sanitize").outputs == report(invoke, program_file).outputs
