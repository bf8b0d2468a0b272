"""Data files and safetensors files hold the same."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from exirkit.emit import (
    NamedBlob,
    data_file,
    named_tensors,
    read_data_file,
    read_safetensors,
    tensors_of,
    write_safetensors,
)
from exirkit.ir import ModelError

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int64, torch.bool]


def there_and_back(entries: dict[str, NamedBlob], folder: Path) -> dict[str, NamedBlob]:
    write_safetensors(entries, folder / "w.safetensors")
    return read_safetensors(folder / "w.safetensors")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=4)), max_size=4), st.integers())
def test_tensors_come_back(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[tuple[torch.dtype, list[int]]], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed % 2**31)
    tensors = {
        f"layer.{number}": (torch.randn(shape, generator=generator) * 3).to(dtype)
        for number, (dtype, shape) in enumerate(kinds)
    }
    back = there_and_back(named_tensors(tensors), tmp_path_factory.mktemp("w"))
    assert back == named_tensors(tensors)
    found = tensors_of(back)
    assert all(torch.equal(found[key], tensors[key]) for key in tensors)


def test_layouts_and_blobs_survive(tmp_path: Path) -> None:
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    plain = named_tensors({"image": image})["image"]
    assert plain.layout is not None
    order = [0, 2, 3, 1]
    stored = image.permute(order).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    entries = {
        "image": NamedBlob(stored, layout=plain.layout.model_copy(update={"dim_order": order})),
        "blob": NamedBlob(b"payload of a backend"),
        "nothing": NamedBlob(b""),
    }
    back = there_and_back(entries, tmp_path)
    assert back == dict(sorted(entries.items()))
    assert torch.equal(tensors_of(back)["image"], image)
    # Other readers see plain tensors.
    assert torch.equal(load_file(tmp_path / "w.safetensors")["image"], image)
    assert read_data_file(data_file(back).to_bytes()).entries() == back


def test_the_same_bytes_twice(tmp_path: Path) -> None:
    entries = {
        **named_tensors({name: torch.randn(3) for name in "edcba"}),
        "blob": NamedBlob(b"1"),
        "2": NamedBlob(b""),
    }
    there_and_back(entries, tmp_path)
    first = (tmp_path / "w.safetensors").read_bytes()
    there_and_back(entries, tmp_path)
    assert (tmp_path / "w.safetensors").read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


@pytest.mark.parametrize(
    ("metadata", "dtype"),
    [
        ({"exirkit": '{"x": {"dim_order": [0, 0]}}'}, torch.float32),
        ({"exirkit": '{"x": {"dim_order": [1, 2]}}'}, torch.float32),
        ({"exirkit": '{"x": {"is_blob": true}}'}, torch.float32),
        ({"exirkit": "not JSON"}, torch.float32),
        ({"exirkit": '{"x": {"more": 1}}'}, torch.float32),
        (None, torch.complex64),
    ],
)
def test_notes_that_do_not_fit(tmp_path: Path, metadata: dict[str, str] | None, dtype: torch.dtype) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"x": torch.ones(2, 2, dtype=dtype)}, path, metadata)
    with pytest.raises(ModelError, match="EK546"):
        read_safetensors(path)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_files(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("w") / "w.safetensors"
    write_safetensors({**named_tensors({"x": torch.randn(2, 3)}), "b": NamedBlob(b"abc")}, path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(ModelError):
        read_safetensors(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_safetensors(tmp_path / "absent.safetensors")
