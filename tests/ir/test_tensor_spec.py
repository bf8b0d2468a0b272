from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, export
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from exirkit.ir import (
    TensorShapeDynamism,
    TensorSpec,
    UsageError,
    alloc,
    contiguous_stride,
    determine_shape_dynamism,
    dim_order_from_memory_format,
    dim_order_from_stride,
    free,
    sample_ints,
    stride_from_dim_order,
    view,
)

sizes_and_order = st.lists(st.integers(0, 4), max_size=5).flatmap(
    lambda sizes: st.tuples(st.just(sizes), st.permutations(range(len(sizes))))
)


@given(
    layout=st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0, 1, 1, 2, 3, 4, 6, 9, 12, 24])), max_size=5),
)
def test_dim_order_agrees_with_torch_for_any_strides(layout: list[tuple[int, int]]) -> None:
    sizes, strides = [size for size, _ in layout], [stride for _, stride in layout]
    assert dim_order_from_stride(strides, sizes) == _order_of_torch(sizes, strides)


def _order_of_torch(sizes: Sequence[int], strides: Sequence[Any]) -> list[int]:
    tensor = torch.empty_strided(sizes, strides, device="meta")
    if len(sizes) == 4 and 0 in sizes and tensor.is_contiguous(memory_format=torch.channels_last):
        return [0, 1, 2, 3]
    return list(tensor.dim_order())


def test_tensors_without_elements_are_row_major_where_sizes_of_one_leave_it_open() -> None:
    empty = torch.empty(0, 1, 2, 3)
    assert list(empty.dim_order()) == [1, 0, 2, 3]
    assert dim_order_from_stride(empty.stride(), empty.shape) == [0, 1, 2, 3]


@given(case=sizes_and_order, junk=st.integers(1, 50))
def test_dim_order_agrees_with_torch_where_size_one_has_any_stride(
    case: tuple[list[int], list[int]], junk: int
) -> None:
    sizes, order = case
    strides = [
        junk if size == 1 else stride for size, stride in zip(sizes, stride_from_dim_order(sizes, order), strict=True)
    ]
    assert dim_order_from_stride(strides, sizes) == _order_of_torch(sizes, strides)


@given(case=sizes_and_order)
def test_strides_of_a_dim_order_are_dense_and_lead_back(case: tuple[list[int], list[int]]) -> None:
    sizes, order = case
    strides = stride_from_dim_order(sizes, order)
    tensor = torch.empty_strided(sizes, strides)
    if math.prod(sizes):
        assert tensor.untyped_storage().nbytes() == tensor.nbytes
        again = stride_from_dim_order(sizes, dim_order_from_stride(strides, sizes))
        # The stride of a dimension of size 1 means nothing.
        assert all(old == new for old, new, size in zip(strides, again, sizes, strict=True) if size > 1)
    assert contiguous_stride(sizes) == list(torch.empty(sizes).stride())


def test_degenerate_channels_last_without_sizes() -> None:
    assert dim_order_from_stride((9, 1, 3, 1)) == [0, 2, 3, 1]
    assert dim_order_from_stride((9, 1, 3, 1), (2, 3, 3, 1)) == [0, 2, 3, 1]
    assert dim_order_from_stride((4, 1, 1, 1)) == [0, 1, 2, 3]
    assert dim_order_from_stride((12, 4, 4, 1)) == [0, 1, 2, 3]


def test_expanded_tensor_has_an_order_and_dense_strides() -> None:
    spec = TensorSpec.from_tensor(torch.empty(2, 1, 3).expand(2, 5, 3))
    assert spec.dim_order == [0, 1, 2]
    assert spec.stride == [15, 3, 1]


def test_memory_formats() -> None:
    assert dim_order_from_memory_format(torch.channels_last, 4) == [0, 2, 3, 1]
    assert dim_order_from_memory_format(torch.channels_last_3d, 5) == [0, 2, 3, 4, 1]
    assert dim_order_from_memory_format(torch.contiguous_format, 3) == [0, 1, 2]
    for memory_format, rank in ((torch.preserve_format, 4), (torch.channels_last, 3)):
        with pytest.raises(UsageError, match="EK192"):
            dim_order_from_memory_format(memory_format, rank)


@pytest.mark.parametrize("order", [[0, 0], [0], [1, 2], [0, 1, 2]])
def test_no_permutation(order: list[int]) -> None:
    with pytest.raises(UsageError, match="EK191"):
        stride_from_dim_order([2, 3], order)


def test_channels_last_and_transposed_tensors() -> None:
    spec = TensorSpec.from_tensor(torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last))
    assert (spec.dim_order, spec.stride) == ([0, 2, 3, 1], [60, 1, 15, 3])
    spec = TensorSpec.from_tensor(torch.empty(3, 8)[:, ::2].t())
    assert (spec.shape, spec.dim_order, spec.stride) == ([4, 3], [1, 0], [1, 4])


def test_sizes_in_bytes() -> None:
    spec = TensorSpec(torch.float32, [3, 5])
    assert (spec.numel(), spec.nbytes(), spec.allocated_memory) == (15, 60, 64)
    assert spec.realign(4096) == 4096
    assert spec.allocated_memory == 4096
    assert TensorSpec(torch.bfloat16, []).nbytes() == 2
    assert TensorSpec(torch.int64, [4, 0]).allocated_memory == 0


def test_constants_keep_their_bytes_in_row_major_order() -> None:
    weight = torch.arange(12.0).reshape(3, 4)
    spec = TensorSpec.from_tensor(weight, const=True)
    assert spec.storage is not None
    assert spec.storage.data_ptr() == weight.data_ptr(), "a dense constant is not copied"
    for value in (weight.t(), weight[1:], weight[:, 1:3]):
        spec = TensorSpec.from_tensor(value, const=True)
        assert spec.storage is not None
        assert spec.storage.nbytes() == spec.nbytes()
        stored = torch.tensor([], dtype=torch.float32).set_(spec.storage)
        assert torch.equal(stored.reshape(value.shape), value)
        assert spec.dim_order == sorted(spec.dim_order)


def test_fake_constant_has_no_bytes() -> None:
    with FakeTensorMode():
        fake = torch.empty(3, 4).t()
    spec = TensorSpec.from_tensor(fake, const=True)
    assert spec.const
    assert spec.storage is None
    assert spec.dim_order == [0, 1]


def test_identity_and_copies() -> None:
    spec, other = TensorSpec(torch.float32, [2]), TensorSpec(torch.float32, [2])
    assert spec != other
    assert len({spec, other}) == 2
    spec.lifetime, spec.mem_offset = [1, 2], 16
    other = copy.copy(spec)
    other.lifetime[0], other.shape[0] = 9, 7
    assert spec.lifetime == [1, 2]
    assert spec.shape == [2]
    assert other.mem_offset == 16


def test_in_place_base_is_a_base_without_offset() -> None:
    spec, base = TensorSpec(torch.float32, [2]), TensorSpec(torch.float32, [4])
    spec.storage_base, spec.storage_offset_bytes = base, 8
    assert spec.inplace_base is None
    spec.inplace_base = base
    assert spec.storage_base is base
    assert spec.storage_offset_bytes == 0


def test_repr_says_what_and_where() -> None:
    spec = TensorSpec(torch.float32, [2, 3], const=True)
    assert repr(spec) == "TensorSpec(float32[2, 3], const)"
    spec = TensorSpec(torch.int8, [4])
    spec.mem_id, spec.mem_offset, spec.lifetime = 1, 32, [3, 5]
    assert repr(spec) == "TensorSpec(int8[4], arena 1 bytes 32..36, steps 3..5)"


class Dynamic(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.transpose(0, 1) + 1, x.nonzero(), y * 2


def test_symbolic_shapes_and_no_new_guards() -> None:
    dims = {"x": {0: Dim("n", max=10)}, "y": {0: Dim("m")}}
    program = export(Dynamic(), (torch.ones(3, 4), torch.ones(5)), dynamic_shapes=dims)
    values = {
        node.name: node.meta["val"] for node in program.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)
    }
    shape_env: ShapeEnv = values["x"].shape[0].node.shape_env
    before = (len(shape_env.guards), dict(shape_env.replacements), len(shape_env.deferred_runtime_asserts))
    specs = {name: TensorSpec.from_tensor(value) for name, value in values.items()}
    for spec in specs.values():
        assert str(spec.nbytes())
        assert str(spec.allocated_memory)
        assert repr(spec)
    assert before == (len(shape_env.guards), dict(shape_env.replacements), len(shape_env.deferred_runtime_asserts))
    assert specs["x"].shape_dynamism == TensorShapeDynamism.DYNAMIC_BOUND
    assert specs["x"].is_upper_bound_tensor
    assert specs["y"].is_dynamic_unbound_tensor
    assert specs["x"].dim_order == [0, 1]
    assert specs["add"].dim_order == list(values["add"].dim_order())


def test_dynamism_of_numbers() -> None:
    assert determine_shape_dynamism([2, 3]) == TensorShapeDynamism.STATIC
    assert TensorSpec(torch.uint8, []).is_static_shape_tensor


def test_samples_stay_within_bounds() -> None:
    shape_env = ShapeEnv()
    unbacked = shape_env.create_unbacked_symint()
    torch.fx.experimental.symbolic_shapes._constrain_range_for_size(unbacked, 2, 40)
    assert sample_ints([unbacked, unbacked * 2, 7]) == [40, 80, 7]


def test_notes_of_backends_are_copied() -> None:
    spec = TensorSpec(torch.float32, [2])
    setattr(spec, "etvk_node_repr", "texture")  # noqa: B010 (the class does not declare the name)
    other = copy.copy(spec)
    setattr(other, "etvk_node_repr", "buffer")  # noqa: B010
    assert vars(spec) == {"etvk_node_repr": "texture"}
    assert vars(other) == {"etvk_node_repr": "buffer"}


def test_memory_operators_run_on_torch() -> None:
    out = alloc(((2, 3), torch.int32))
    assert isinstance(out, torch.Tensor)
    assert (tuple(out.shape), out.dtype) == ((2, 3), torch.int32)
    assert [tuple(one.shape) for one in alloc([((2,), torch.int8), ((), torch.bool)])] == [(2,), ()]
    base = torch.arange(6)
    assert view(base, [2, 3]).data_ptr() == base.data_ptr()
    assert free(TensorSpec(torch.int8, [1])) is None  # type: ignore[func-returns-value]
