"""Weights of saved programs stay in their files."""

from __future__ import annotations

import io
import json
import os
import typing
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from exirkit.cli.errors import CommandError
from exirkit.cli.model import load_exported


class Tied(torch.nn.Module):
    """Two products with one weight, a buffer of integers, a constant, and weights of other strides and none."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Linear(7, 7)
        self.two = torch.nn.Linear(7, 7, bias=False)
        self.two.weight = self.one.weight
        self.turned = torch.nn.Parameter(torch.randn(5, 7).t(), requires_grad=False)
        self.empty = torch.nn.Parameter(torch.empty(0, 3))
        self.register_buffer("count", torch.arange(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.two(self.one(x)) + self.count + torch.tensor([0.5])
        return x @ self.turned + self.empty.sum()


def is_mapped(tensor: torch.Tensor, path: Path) -> bool:
    """Whether the elements lie in a mapping of a file (Linux)."""
    ranges = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
    ends = [[int(end, 16) for end in one[0].split("-")] for one in ranges]
    return any(first <= tensor.data_ptr() < last for first, last in ends)


@pytest.mark.filterwarnings("ignore:No complete tensor")
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_weights_stay_in_the_file(compression: int, tmp_path: Path) -> None:
    x = torch.randn(2, 7)
    program = torch.export.export(Tied().eval(), (x,))
    saved, path = tmp_path / "saved.pt2", tmp_path / "model.pt2"
    torch.export.save(program, saved)
    if compression == zipfile.ZIP_STORED:
        path = saved
    else:
        with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w", compression) as new:
            for entry in old.infolist():
                new.writestr(entry.filename, old.read(entry))
    before = path.read_bytes()
    loaded = load_exported(path)
    assert isinstance(loaded, torch.export.ExportedProgram)
    assert {name: (one.stride(), one.requires_grad) for name, one in loaded.state_dict.items()} == {
        name: (one.stride(), one.requires_grad) for name, one in program.state_dict.items()
    }
    for name, one in program.state_dict.items():
        assert torch.equal(loaded.state_dict[name], one), name
        assert is_mapped(loaded.state_dict[name], path) == bool(compression == zipfile.ZIP_STORED and one.numel()), name
    assert torch.equal(loaded.module()(x), program.module()(x))
    pair = [loaded.state_dict[f"{name}.weight"] for name in ("one", "two")]
    assert pair[0].data_ptr() == pair[1].data_ptr()
    with torch.no_grad():
        pair[0].zero_()
    assert not pair[1].any()
    assert path.read_bytes() == before
    assert torch.equal(torch.export.load(saved).state_dict["one.weight"], program.state_dict["one.weight"])


class Running:
    """Pickled as a call."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (str(self.made),)


@pytest.mark.filterwarnings("ignore:No complete tensor")
@pytest.mark.parametrize("record", ["sample_inputs/model.pt", "weights/model_weights_config.json"])
def test_nothing_in_a_saved_program_is_run(record: str, tmp_path: Path) -> None:
    good, bad, made = tmp_path / "good.pt2", tmp_path / "bad.pt2", tmp_path / "made"
    torch.export.save(torch.export.export(Tied().eval(), (torch.randn(2, 7),)), good)
    pickled = io.BytesIO()
    torch.save(Running(made), pickled)
    changed = 0
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(bad, "w") as new:
        pickles = {
            one["path_name"]
            for entry in old.namelist()
            if entry.endswith("model_weights_config.json")
            for one in json.loads(old.read(entry))["config"].values()
        }
        for entry in old.infolist():
            data = old.read(entry)
            if record.endswith(".json") and entry.filename.endswith(record):
                document = json.loads(data)
                for one in document["config"].values():
                    one["use_pickle"] = True
                data = json.dumps(document).encode()
                changed += 1
            elif entry.filename.endswith(record) or (
                record.endswith(".json") and entry.filename.rpartition("/")[2] in pickles
            ):
                data = pickled.getvalue()
                changed += 1
            new.writestr(entry.filename, data)
    assert changed >= (2 if record.endswith(".json") else 1)
    with pytest.raises(CommandError) as raised:
        load_exported(bad)
    assert raised.value.finding.code == "EK718"
    assert not made.exists()


def test_fields_of_the_stored_form_are_worked_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.pt2"
    model = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(10)])
    torch.export.save(torch.export.export(model, (torch.ones(1, 3),)), path)
    asked: list[type] = []
    work_out = typing.get_type_hints

    def counted(kind: type, **scopes: Any) -> dict[str, Any]:
        asked.append(kind)
        return work_out(kind, **scopes)

    monkeypatch.setattr(typing, "get_type_hints", counted)
    load_exported(path)
    assert len(asked) == len(set(asked)) > 5
    load = torch.export.load(path)
    assert len(asked) > 100, "torch itself asks again and again; once it does not, this is not needed"
    assert isinstance(load, torch.export.ExportedProgram)
