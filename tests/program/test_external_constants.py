"""Constants in data files beside the program: who goes where, and that both runtimes find them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.official.oracle import OfficialRuntime

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.emit import FileImage, open_data_file, read_data_file
from exirkit.ir import ModelError, UsageError
from exirkit.runtime_ref import Runtime

DEFAULT = "_default_external_constant"


class Tied(torch.nn.Module):
    """Convolves, normalizes, and multiplies with a weight, a view of it, a state and a constant of the code."""

    state: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.last = torch.nn.Linear(16, 5)
        self.same = torch.nn.Linear(16, 5)
        self.same.weight = self.last.weight
        self.register_buffer("state", torch.zeros(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.add_(1)
        flat = self.norm(self.conv(x)).flatten(1)
        seen = self.last(flat) + self.same(flat) + flat @ self.last.weight.view(16, 5)
        return seen * torch.tensor([1.0, 2, 3, 4, 5]) + self.state


def lowered(model: torch.nn.Module, *inputs: torch.Tensor, **options: Any) -> Any:
    exported = torch.export.export(model.eval(), inputs)
    return to_edge(exported).to_executorch(ExecutorchBackendConfig(**options))


def names_of(made: Any) -> dict[str, list[str]]:
    return {name: read_data_file(data).keys for name, data in made.tensor_data.items()}


@pytest.fixture
def model() -> torch.nn.Module:
    torch.manual_seed(1)
    with torch.no_grad():
        return Tied().eval().requires_grad_(False)


X = torch.linspace(-1, 1, 3 * 16).reshape(1, 3, 4, 4)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("choice", [True, lambda node: "w.ptd" if "weight" in node.name else None])
@pytest.mark.parametrize("fold", [False, True])
def test_results_are_those_of_the_program_in_one_file(
    model: torch.nn.Module, level: int, choice: Any, fold: bool, official_runtime: OfficialRuntime
) -> None:
    single = lowered(model, X, optimization_level=level)
    split = lowered(model, X, optimization_level=level, external_constants=choice, fold_external_constants=fold)
    data = list(split.tensor_data.values())
    assert data or (fold and choice is not True)
    first = Runtime.get().load_program(single.buffer).load_method("forward")
    second = Runtime.get().load_program(split.buffer, data_path=data).load_method("forward")
    for _ in range(2):
        torch.testing.assert_close(first.execute([X])[0], second.execute([X])[0])
    calls = [("forward", [X])] * 2
    left = official_runtime.calls(single.buffer, calls).unwrap()
    right = official_runtime.calls(split.buffer, calls, data=data[0] if data else None).unwrap()
    for one, other in zip(left, right, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_keys_are_names_of_the_model_and_can_be_exchanged(model: torch.nn.Module, level: int) -> None:
    made = lowered(model, X, optimization_level=level, external_constants=True)
    keys = names_of(made)[DEFAULT]
    assert set(keys) < set(model.state_dict()) | {"same.weight"}
    assert {"conv.weight", "norm.running_var", "last.bias"} <= set(keys)
    assert "state" not in keys
    torch.manual_seed(2)
    other = Tied().eval().requires_grad_(False)
    swapped = lowered(other, X, optimization_level=level, external_constants=True).tensor_data[DEFAULT]
    method = Runtime.get().load_program(made.buffer, data_path=swapped).load_method("forward")
    torch.testing.assert_close(method.execute([X])[0], other(X))


def test_files_are_those_that_the_function_names(model: torch.nn.Module, tmp_path: Path) -> None:
    def choose(node: torch.fx.Node) -> str | None:
        return {"conv": "first", "norm": "second.ptd"}.get(node.name.split("_")[1])

    made = lowered(model, X, external_constants=choose)
    files = made.save(tmp_path / "m.pte", data_files=True)
    assert {path.name for path in tmp_path.iterdir()} == {"m.pte", "first.ptd", "second.ptd"}
    assert files == [tmp_path / "first.ptd", tmp_path / "second.ptd"]
    assert all(key.startswith("conv.") for key in open_data_file(tmp_path / "first.ptd").keys)
    method = Runtime.get().load_program(tmp_path / "m.pte", data_path=files).load_method("forward")
    torch.testing.assert_close(method.execute([X])[0], model(X))
    written = {path: path.read_bytes() for path in tmp_path.iterdir()}
    made.write_tensor_data_to_file(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == written


@pytest.mark.parametrize("at", range(3))
def test_a_failed_write_leaves_nothing(
    model: torch.nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    made = lowered(model, X, external_constants=lambda node: "ab"[node.name.endswith("bias")])
    written: list[object] = []
    write = FileImage.write_to

    def failing(image: FileImage, *given: Any) -> int:
        if len(written) == at:
            raise OSError(28, "No space left on device")
        written.append(image)
        return write(image, *given)

    monkeypatch.setattr(FileImage, "write_to", failing)
    with pytest.raises(OSError, match="No space"):
        made.save(tmp_path / "m.pte", data_files=True)
    assert not list(tmp_path.iterdir())
    written.clear()
    monkeypatch.undo()
    (tmp_path / "b.ptd").mkdir()
    with pytest.raises(IsADirectoryError):
        made.save(tmp_path / "m.pte", data_files=True)
    assert [path.name for path in tmp_path.iterdir()] == ["b.ptd"]


def test_no_file_where_nothing_is_external(model: torch.nn.Module, tmp_path: Path) -> None:
    for options in ({}, {"external_mutable_weights": True}, {"external_constants": lambda _node: None}):
        made = lowered(model, X, **options)
        made.write_tensor_data_to_file(tmp_path)
        assert made.tensor_data == {}
        assert not list(tmp_path.iterdir())


def test_equal_programs_give_equal_files(model: torch.nn.Module) -> None:
    one, other = (lowered(model, X, external_constants=True) for _ in range(2))
    assert (one.buffer, one.tensor_data) == (other.buffer, other.tensor_data)


def test_methods_share_a_file(model: torch.nn.Module) -> None:
    exported = torch.export.export(model, (X,))
    made = to_edge({"a": exported, "b": exported}).to_executorch(ExecutorchBackendConfig(external_constants=True))
    alone = to_edge({"a": exported}).to_executorch(ExecutorchBackendConfig(external_constants=True))
    assert made.tensor_data == alone.tensor_data


def damage(made: Any) -> dict[str, Callable[[], object]]:
    data = made.tensor_data[DEFAULT]
    load = Runtime.get().load_program
    return {
        "EK619": lambda: load(made.buffer).load_method("forward"),
        "EK530": lambda: load(made.buffer, data_path=data[:-1]),
        "EK529": lambda: load(made.buffer, data_path=made.buffer),
        "EK648": lambda: load(made.buffer, data_path="nowhere.ptd"),
        "EK534": lambda: load(made.buffer, data_path=[data, data]),
    }


@pytest.mark.parametrize("code", ["EK619", "EK530", "EK529", "EK648", "EK534"])
def test_what_is_wrong_with_data_is_told(model: torch.nn.Module, code: str) -> None:
    with pytest.raises((ModelError, UsageError)) as caught:
        damage(lowered(model, X, external_constants=True))[code]()
    assert caught.value.code == code


def test_tensors_of_other_sizes_are_rejected() -> None:
    made = lowered(torch.nn.Linear(4, 3), torch.ones(1, 4), external_constants=True)
    other = lowered(torch.nn.Linear(4, 2), torch.ones(1, 4), external_constants=True)
    with pytest.raises(ModelError) as caught:
        Runtime.get().load_program(made.buffer, data_path=other.tensor_data[DEFAULT]).load_method("forward")
    assert caught.value.code == "EK629"


@pytest.mark.parametrize("name", ["a/b", "", ".ptd", 3, ".."])
def test_names_of_files_are_names(name: Any) -> None:
    with pytest.raises(UsageError) as caught:
        lowered(torch.nn.Linear(4, 3), torch.ones(1, 4), external_constants=lambda _node: name)
    assert caught.value.code == "EK769"
