"""Messages between a process and its worker: a JSON header and raw bytes, nothing that could run code.

A frame is the magic `EXO1`, the length of the header (u32, little-endian), the header, and the blobs whose lengths the
header lists under `blobs`. Tensors travel as a description and one blob with their elements in dimension order.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch

MAGIC = b"EXO1"
PREFIX = struct.Struct("<4sI")

Value = torch.Tensor | int | float | bool | None
Header = dict[str, Any]

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
        torch.float64, torch.bool, torch.bfloat16, torch.uint16, torch.uint32, torch.uint64,
        torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz,
    )
}  # fmt: skip


def pack(header: Header, blobs: Sequence[bytes] = ()) -> bytes:
    """Return one frame."""
    text = json.dumps({**header, "blobs": [len(blob) for blob in blobs]}).encode()
    return b"".join((PREFIX.pack(MAGIC, len(text)), text, *blobs))


def unpack(read: Callable[[int], bytes]) -> tuple[Header, list[bytes]]:
    """Read one frame.

    Args:
        read: Returns exactly as many bytes as asked for, or raises.
    """
    magic, length = PREFIX.unpack(read(PREFIX.size))
    if magic != MAGIC:
        raise ValueError(f"not a frame: {magic!r}")
    header = json.loads(read(length))
    return header, [read(size) for size in header.pop("blobs")]


def describe(value: Value, blobs: list[bytes]) -> Header:
    """Return a description of one value; the elements of a tensor are appended to `blobs`."""
    if not isinstance(value, torch.Tensor):
        if isinstance(value, float):
            return {"kind": "float", "hex": value.hex()}
        return {"kind": "plain", "value": value}
    order = list(value.dim_order()) if value.numel() and is_dense(value) else list(range(value.dim()))
    # A copy, since one element may have any stride.
    flat = value.detach().permute(order).reshape(-1).clone(memory_format=torch.contiguous_format)
    elements = flat.view(torch.uint8)
    blobs.append(elements.numpy().tobytes())
    return {
        "kind": "tensor",
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "order": order,
        "blob": len(blobs) - 1,
    }


def restore(description: Header, blobs: Sequence[bytes]) -> Value:
    """Return the value that `describe` described."""
    if description["kind"] == "float":
        return float.fromhex(description["hex"])
    if description["kind"] == "plain":
        plain: Value = description["value"]
        return plain
    dtype = DTYPES[description["dtype"]]
    blob, order, shape = blobs[description["blob"]], description["order"], description["shape"]
    physical = [shape[dim] for dim in order]
    if not blob:
        return torch.empty(shape, dtype=dtype)
    elements = torch.frombuffer(bytearray(blob), dtype=dtype).reshape(physical)
    return elements.permute([order.index(dim) for dim in range(len(shape))])


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill a block of memory without holes or repetition, in some order of the dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
