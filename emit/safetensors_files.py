"""Named tensors and blobs as `.safetensors` files, which checkpoints are exchanged in; what these do not say is noted.

A data file says in which order the dims of a tensor lie in memory and has blobs beside tensors; a safetensors file
is row-major and has tensors only. Both are noted in its metadata, under one key, so that nothing is lost on the way
there and back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from exirkit.ir import Diagnostic, Location, ModelError, UsageError, stride_from_dim_order

from .flatbuffer import StreamedBytes
from .schema import ScalarType
from .segments import NamedBlob, TensorLayout, replaced_file, stored_tensor
from .values import contents

_NOTES = "exirkit"


class _Note(BaseModel):
    """What a safetensors file does not say of an entry.

    Attributes:
        dim_order: Dims from the outermost to the innermost, if that is not row-major.
        is_blob: Whether it is bytes without a type.
    """

    model_config = ConfigDict(extra="forbid")

    dim_order: list[int] | None = None
    is_blob: bool = False


_Notes = TypeAdapter(dict[str, _Note])


def write_safetensors(entries: Mapping[str, NamedBlob], path: str | PathLike[str]) -> None:
    """Write entries of a data file as a safetensors file, completely or not at all.

    Args:
        entries: Tensors and blobs by key.
        path: The file.

    Raises:
        UsageError: EK535, a tensor of a type whose elements share bytes.
        OSError: The file cannot be written.
    """
    from safetensors.torch import save_file

    tensors, notes = {}, {}
    for key, blob in entries.items():
        tensors[key], note = _tensor_of(key, blob)
        if note != _Note():
            notes[key] = note.model_dump(exclude_defaults=True)
    metadata = {_NOTES: json.dumps(notes, sort_keys=True)} if notes else None
    with replaced_file(path) as partial:
        save_file(tensors, partial, metadata)


def read_safetensors(path: str | PathLike[str]) -> dict[str, NamedBlob]:
    """Return the entries of a safetensors file as `data_file` takes them, in the order of their keys.

    Rows of tensors are mapped from the file, not read.

    Raises:
        ModelError: EK546, it is damaged, or has a tensor that program files cannot hold.
        OSError: The file cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    # Errors of the library do not say which file is not there.
    os.stat(path)
    try:
        with safe_open(path, framework="pt") as file:
            notes = _Notes.validate_json((file.metadata() or {}).get(_NOTES, "{}"))
            return {key: _entry(key, file.get_tensor(key), notes.get(key, _Note())) for key in sorted(file.keys())}
    except (SafetensorError, ValidationError, ValueError, KeyError) as error:
        raise _damaged(str(error), path) from error


def named_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, NamedBlob]:
    """Return tensors, such as those of a state dict, as entries; what lies in memory row by row is shared.

    Raises:
        ModelError: EK546, program files cannot hold elements of that type.
    """
    return {key: _entry(key, tensor.detach(), _Note()) for key, tensor in tensors.items()}


def tensors_of(entries: Mapping[str, NamedBlob]) -> dict[str, torch.Tensor]:
    """Return the tensors among entries; they share what can be written to, and copy the rest.

    Raises:
        UsageError: EK535, a tensor of a type whose elements share bytes.
    """
    return {key: _plain(key, blob) for key, blob in entries.items() if blob.layout is not None}


def _tensor_of(key: str, blob: NamedBlob) -> tuple[torch.Tensor, _Note]:
    if blob.layout is None:
        data = bytearray(blob.data)
        found = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        return found, _Note(is_blob=True)
    order = list(blob.layout.dim_order)
    is_row_major = order == sorted(order)
    return _plain(key, blob).contiguous(), _Note(dim_order=None if is_row_major else order)


def _plain(key: str, blob: NamedBlob) -> torch.Tensor:
    layout = blob.layout
    assert layout is not None
    if not layout.scalar_type.is_plain:
        raise UsageError(Diagnostic.of("EK535", f"{key!r} is a tensor of {layout.scalar_type.name}"))
    if isinstance(blob.data, memoryview) and not blob.data.readonly and len(blob.data):
        strides = stride_from_dim_order(layout.sizes, layout.dim_order)
        return torch.frombuffer(blob.data, dtype=layout.scalar_type.dtype).as_strided(layout.sizes, strides)
    return stored_tensor(layout, memoryview(bytes(blob.data) if isinstance(blob.data, StreamedBytes) else blob.data))


def _entry(key: str, tensor: torch.Tensor, note: _Note) -> NamedBlob:
    order = list(range(tensor.dim())) if note.dim_order is None else note.dim_order
    if sorted(order) != list(range(tensor.dim())) or (note.is_blob and tensor.dtype != torch.uint8):
        raise ValueError(f"{key!r} is noted with {note.model_dump(exclude_defaults=True)}")
    data = contents(tensor, order) if tensor.numel() else b""
    if note.is_blob:
        return NamedBlob(data)
    try:
        scalar_type = ScalarType.from_dtype(tensor.dtype)
    except Exception as error:
        raise ValueError(f"{key!r} is of {tensor.dtype}, which program files cannot hold") from error
    return NamedBlob(data, layout=TensorLayout(scalar_type=scalar_type, sizes=list(tensor.shape), dim_order=order))


def _damaged(why: str, path: Any) -> ModelError:
    return ModelError(Diagnostic.of("EK546", f"not a safetensors file: {why}", location=Location(file=str(path))))
