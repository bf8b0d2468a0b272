"""Constants: found again by address, by contents, and never mistaken for one another."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

from exirkit.emit.method_emitter import _frames as frames
from exirkit.emit.values import ConstantPool, contents, is_all_zero
from exirkit.ir import ModelError


def add(pool: ConstantPool, tensor: torch.Tensor) -> int:
    return pool.add(tensor, list(range(tensor.dim())), "weight")


def test_equal_bytes_are_one_constant() -> None:
    pool = ConstantPool()
    first = add(pool, torch.arange(1000.0))
    assert add(pool, torch.arange(1000.0)) == first
    assert add(pool, torch.arange(1000.0).view(10, 100)) == first
    assert len(pool.buffers) == 2


def test_a_difference_in_the_middle_counts() -> None:
    pool = ConstantPool()
    tensors = [torch.zeros(4096) for _ in range(5)]
    for place, tensor in enumerate(tensors):
        tensor[2000 + place % 4] = 1.0
    assert [add(pool, tensor) for tensor in tensors] == [1, 2, 3, 4, 1]


def test_parts_of_one_storage_are_constants_of_their_own() -> None:
    whole, pool = torch.arange(12.0), ConstantPool()
    parts = [whole[:6], whole[6:], whole.view(3, 4)[:, 1], whole[:6].view(2, 3)]
    assert [add(pool, part) for part in parts] == [1, 2, 3, 1]
    assert bytes(pool.buffers[3].storage) == torch.tensor([1.0, 5.0, 9.0]).numpy().tobytes()


def test_empty_constants() -> None:
    pool = ConstantPool()
    assert add(pool, torch.zeros(0, 3)) == add(pool, torch.zeros(0))
    assert is_all_zero(contents(torch.zeros(0), [0]))


@given(st.lists(st.lists(st.integers(0, 255), min_size=1, max_size=600), min_size=1, max_size=12))
def test_every_constant_reads_back(values: list[list[int]]) -> None:
    pool, tensors = ConstantPool(), [torch.tensor(one, dtype=torch.uint8) for one in values]
    indices = [add(pool, tensor) for tensor in tensors]
    for index, tensor in zip(indices, tensors, strict=True):
        assert bytes(pool.buffers[index].storage) == bytes(tensor.tolist())
    assert len(pool.buffers) == 1 + len({tuple(one) for one in values})


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-40, float("nan")])
def test_only_zero_bytes_are_zero(value: float) -> None:
    data = contents(torch.tensor([0.0, value]), [0])
    assert is_all_zero(data) == (str(value) == "0.0")


def test_elements_are_in_dim_order() -> None:
    tensor = torch.arange(24).view(2, 3, 4)
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        assert bytes(contents(tensor, order)) == tensor.permute(order).contiguous().numpy().tobytes()


def test_a_single_element_may_have_any_stride() -> None:
    pool = ConstantPool()
    index = pool.add(torch.full((), 3.0).expand(1, 1), [0, 1], "w")
    assert bytes(pool.buffers[index].storage) == torch.tensor([3.0]).numpy().tobytes()


def test_a_tensor_without_data_is_rejected() -> None:
    with FakeTensorMode():
        fake = torch.zeros(3)
    for tensor in (fake, torch.zeros(3, device="meta")):
        with pytest.raises(ModelError, match="EK554"):
            add(ConstantPool(), tensor)


def test_stack_traces_become_frames() -> None:
    trace = """
  File "/a/model.py", line 12, in forward
    y = self.layer(x)
  File "/a/layer, odd.py", line 7, in forward
    return x + 1
"""
    found = [(one.filename, one.lineno, one.name, one.context) for one in frames(trace).items]
    assert found == [
        ("/a/model.py", 12, "forward", "y = self.layer(x)"),
        ("/a/layer, odd.py", 7, "forward", "return x + 1"),
    ]


@pytest.mark.parametrize("trace", [None, "", "nonsense", 'File "x", line y, in z', 'File "x'])
def test_other_texts_have_no_frames(trace: str | None) -> None:
    assert frames(trace).items == []
