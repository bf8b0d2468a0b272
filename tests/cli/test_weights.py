"""Weights go from models and data files to safetensors files and back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.cli.conftest import Invoke, document

from exirkit.runtime_ref import Runtime


def lowered(invoke: Invoke, *args: str | Path) -> None:
    result = invoke("lower", *args)
    assert result.exit_code == 0, result.stderr


def test_weights_of_a_checkpoint(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    weights = {"linear.weight": torch.randn(3, 4), "linear.bias": torch.randn(3)}
    save_file(weights, tmp_path / "w.safetensors")
    lowered(invoke, "models.py:tiny", "-o", "tiny.pte", "--weights", "w.safetensors")
    x = torch.randn(2, 4)
    (result,) = Runtime.get().load_program(tmp_path / "tiny.pte").load_method("forward").execute([x])
    expected = torch.nn.functional.linear(x, weights["linear.weight"], weights["linear.bias"]).relu()
    torch.testing.assert_close(result, expected)


def test_another_checkpoint_for_a_program_with_a_data_file(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    lowered(invoke, "models.py:tiny", "-o", "tiny.pte", "--external-constants")
    assert invoke("weights", "tiny.ptd", "-o", "w.safetensors").exit_code == 0
    weights = load_file(tmp_path / "w.safetensors")
    assert sorted(weights) == ["linear.bias", "linear.weight"]
    save_file({name: one + 1 for name, one in weights.items()}, tmp_path / "w.safetensors")
    found = document(invoke("weights", "w.safetensors", "-o", "more.ptd", "--json").stdout)
    assert (found.entries, found.nbytes) == (2, (tmp_path / "more.ptd").stat().st_size)
    loaded = Runtime.get().load_program(tmp_path / "tiny.pte", data_path=tmp_path / "more.ptd")
    x = torch.randn(2, 4)
    (result,) = loaded.load_method("forward").execute([x])
    expected = torch.nn.functional.linear(x, weights["linear.weight"] + 1, weights["linear.bias"] + 1).relu()
    torch.testing.assert_close(result, expected)


def test_weights_of_a_model(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    assert invoke("weights", "models.py:tiny", "-o", "w.safetensors").exit_code == 0
    assert {name: list(one.shape) for name, one in load_file(tmp_path / "w.safetensors").items()} == {
        "linear.weight": [3, 4],
        "linear.bias": [3],
    }


@pytest.mark.parametrize(
    ("weights", "fact"),
    [
        ({"linear.weight": torch.ones(3, 4)}, "there is no value for 'linear.bias'"),
        ({"linear.weight": torch.ones(3, 4), "linear.bias": torch.ones(4)}, "'linear.bias' is float32 [3]"),
        ({"linear.weight": torch.ones(3, 4), "linear.bias": torch.ones(3).half()}, "its value float16 [3]"),
        (
            {"linear.weight": torch.ones(3, 4), "linear.bias": torch.ones(3), "x": torch.ones(1)},
            "the model has no weight 'x'",
        ),
    ],
)
def test_weights_that_do_not_fit(
    invoke: Invoke, model_file: Path, tmp_path: Path, weights: dict[str, torch.Tensor], fact: str
) -> None:
    save_file(weights, tmp_path / "w.safetensors")
    result = invoke("lower", "models.py:tiny", "-o", "tiny.pte", "--weights", "w.safetensors")
    assert result.exit_code == 1
    assert "EK790" in result.stderr
    assert fact in result.stderr
    assert not (tmp_path / "tiny.pte").exists()


def test_files_of_other_kinds(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"nothing")
    assert "EK546" in invoke("weights", "w.safetensors", "-o", "w.ptd").stderr
    assert "EK712" in invoke("weights", "models.py:tiny", "-o", "w.bin").stderr
    assert invoke("lower", "models.py:tiny", "-o", "tiny.pte", "--weights", "absent.safetensors").exit_code == 1
