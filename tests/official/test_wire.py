"""What goes through the pipe comes out the same."""

import io
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exirkit.fuzz.official.wire import DTYPES, describe, pack, restore, unpack

shapes = st.lists(st.integers(0, 4), max_size=4)


def reader(frame: bytes) -> io.BytesIO:
    return io.BytesIO(frame)


@given(st.sampled_from(sorted(DTYPES)), shapes, st.randoms(use_true_random=False), st.randoms(use_true_random=False))
def test_tensors_come_back_with_their_bits_and_their_order(name: str, shape: list[int], order, content) -> None:  # type: ignore[no-untyped-def]
    dims = list(range(len(shape)))
    order.shuffle(dims)
    nbytes = math.prod(shape) * DTYPES[name].itemsize
    bits = 1 if name == "bool" else 255
    raw = bytearray(content.randint(0, bits) for _ in range(nbytes))
    flat = torch.frombuffer(raw, dtype=DTYPES[name]) if raw else torch.empty(0, dtype=DTYPES[name])
    tensor = flat.reshape([shape[dim] for dim in dims]).permute([dims.index(dim) for dim in range(len(shape))])

    blobs: list[bytes] = []
    header, received = unpack(reader(pack({"value": describe(tensor, blobs)}, blobs)).read)
    back = restore(header["value"], received)

    assert isinstance(back, torch.Tensor)
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert bits_of(back) == bits_of(tensor)
    if tensor.numel():
        assert [stride for stride, size in zip(back.stride(), shape, strict=True) if size > 1] == [
            stride for stride, size in zip(tensor.stride(), shape, strict=True) if size > 1
        ]


def bits_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_views_are_sent_without_what_they_do_not_show() -> None:
    blobs: list[bytes] = []
    description = describe(torch.arange(100.0)[::10][:4].expand(2, 4), blobs)
    assert len(blobs[0]) == 2 * 4 * 4
    assert torch.equal(torch.as_tensor(restore(description, blobs)), torch.tensor([[0.0, 10.0, 20.0, 30.0]] * 2))


@given(st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)))
def test_plain_values_come_back(value: float | int | bool | None) -> None:
    header, _ = unpack(reader(pack({"value": describe(value, [])})).read)
    back = restore(header["value"], [])
    assert type(back) is type(value)
    assert back == value


def test_not_a_number_comes_back() -> None:
    back = restore(describe(math.nan, []), [])
    assert isinstance(back, float)
    assert math.isnan(back)


def test_a_frame_of_another_program_is_rejected() -> None:
    with pytest.raises(ValueError, match="not a frame"):
        unpack(reader(b"HTTP/1.1 200 OK").read)
