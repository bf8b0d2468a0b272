"""Kernels that torch does not have, and how torch's are rejected."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.runtime_ref.assembly import BOUND, UNBOUND, Assembly, registered

from exirkit.ir import ModelError
from exirkit.runtime_ref import OperatorRegistry, Runtime


def compute(name: str, *numbers: Any) -> Any:
    """Return what a scalar primitive gives."""
    asm = Assembly()
    result = asm.argument(0)
    asm.call(f"executorch_prim::{name}", *(asm.argument(number) for number in numbers), result)
    return asm.load(outputs=[result]).execute([])[0]


@pytest.mark.parametrize(
    ("name", "numbers", "expected"),
    [
        ("add.Scalar", (2, 3), 5),
        ("add.Scalar", (2, 0.5), 2.5),
        ("sub.Scalar", (2, 3), -1),
        ("mul.Scalar", (2, 3), 6),
        ("floordiv.Scalar", (-7, 2), -4),
        ("floordiv.int", (7, 2), 3),
        ("truediv.Scalar", (7, 2), 3.5),
        ("mod.Scalar", (-7, 3), 2),
        ("mod.int", (7, 3), 1),
        ("eq.Scalar", (2, 2), True),
        ("ne.Scalar", (2, 2), False),
        ("gt.Scalar", (3, 2), True),
        ("ge.Scalar", (2, 3), False),
        ("lt.Scalar", (2, 3), True),
        ("le.Scalar", (3, 2), False),
        ("sym_max.Scalar", (2, 3), 3),
        ("sym_min.Scalar", (2, 3), 2),
        ("neg.Scalar", (2,), -2),
        ("sym_float.Scalar", (2,), 2.0),
        ("sym_int.Scalar", (2.9,), 2),
        ("sym_not.Scalar", (True,), False),
        ("ceil.Scalar", (2.1,), 3),
        ("round.Scalar", (2.5,), 2),
        ("trunc.Scalar", (-2.9,), -2),
        ("sym_ite.Scalar", (True, 4, 5), 4),
        ("sym_ite.Scalar", (False, 4, 5), 5),
    ],
)
def test_primitive(name: str, numbers: tuple[Any, ...], expected: Any) -> None:
    result = compute(name, *numbers)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("name", "numbers", "reason"),
    [
        ("mul.Scalar", (2**62, 2), "does not fit 64 bits"),
        ("floordiv.Scalar", (1, 0), "by zero"),
        ("ceil.Scalar", (math.inf,), "infinity"),
    ],
)
def test_primitive_that_fails_says_which_instruction(name: str, numbers: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(ModelError, match=reason) as caught:
        compute(name, *numbers)
    assert caught.value.code == "EK650"
    assert caught.value.diagnostics[0].location.node == "instruction 0"


def test_numbers_are_read_from_tensors() -> None:
    asm = Assembly()
    x = asm.tensor([2, 5], torch.int64)
    size, count, stride, item = (asm.argument(0) for _ in range(4))
    asm.call("aten::sym_size.int", x, asm.argument(1), size)
    asm.call("aten::sym_numel", x, count)
    asm.call("aten::sym_stride.int", x, asm.argument(0), stride)
    one = asm.tensor([], torch.int64)
    asm.call("aten::sum.IntList_out", x, asm.argument([0, 1]), asm.argument(False), asm.argument(None), one, one)
    asm.call("aten::_local_scalar_dense", one, item)
    method = asm.load([x], [size, count, stride, item])
    assert method.execute([torch.ones(2, 5, dtype=torch.int64)]) == [5, 10, 5, 10]


def test_item_keeps_the_kind_of_number() -> None:
    for tensor, expected in ((torch.tensor(2.5), 2.5), (torch.tensor(True), True), (torch.tensor(3), 3)):
        asm = Assembly()
        x, item = asm.like(tensor), asm.argument(0)
        asm.call("aten::_local_scalar_dense", x, item)
        [result] = asm.load([x], [item]).execute([tensor])
        assert result == expected
        assert type(result) is type(expected)


def test_view_shows_the_same_memory() -> None:
    asm = Assembly()
    x = asm.tensor([2, 6])
    view = asm.tensor([3, 4], planned=False)
    size = asm.argument([3, -1])
    asm.call("executorch_prim::et_view.default", x, size, view)
    asm.call("aten::fill_.Scalar", view, asm.argument(7), view)
    [shown, base] = asm.load([x], [view, x]).execute([torch.zeros(2, 6)])
    assert torch.equal(shown, torch.full((3, 4), 7.0))
    assert torch.equal(base, torch.full((2, 6), 7.0))


def test_view_of_dynamic_tensor_follows_its_shape() -> None:
    asm = Assembly()
    x = asm.tensor([8, 4], dynamism=BOUND)
    rows = asm.argument(0)
    asm.call("aten::sym_size.int", x, asm.argument(0), rows)
    view = asm.tensor([8, 2, 2], dynamism=BOUND, at=0)
    size = asm.argument([0, 2, 2])
    listed: Any = asm.plan.values[size].val
    listed.items[0] = rows
    asm.call("executorch_prim::et_view.default", x, size, view)
    method = asm.load([x], [view])
    for count in (8, 1, 5):
        given = torch.randn(count, 4)
        assert torch.equal(method.execute([given])[0], given.view(count, 2, 2))


def test_view_that_does_not_fit_is_an_error() -> None:
    asm = Assembly()
    x, view = asm.tensor([2, 6]), asm.tensor([3, 3], planned=False)
    asm.call("executorch_prim::et_view.default", x, asm.argument([3, 4]), view)
    with pytest.raises(ModelError) as caught:
        asm.load([x], [view]).execute([torch.zeros(2, 6)])
    assert caught.value.code == "EK651"


def test_copy_index_grows_a_dynamic_tensor() -> None:
    asm = Assembly()
    row = asm.tensor([3])
    for rows in (asm.tensor([4, 3], dynamism=BOUND), asm.tensor([4, 3], planned=False, dynamism=UNBOUND)):
        for index in range(3):
            asm.call("executorch_prim::et_copy_index.tensor", rows, row, asm.argument(index))
        [result] = asm.load([row], [rows]).execute([torch.arange(3.0)])
        assert torch.equal(result, torch.arange(3.0).expand(3, 3))


def test_copy_index_writes_one_row_of_a_static_tensor() -> None:
    asm = Assembly()
    row, rows = asm.tensor([3]), asm.tensor([4, 3])
    asm.call("executorch_prim::et_copy_index.tensor", rows, row, asm.argument(2))
    [result] = asm.load([row], [rows]).execute([torch.ones(3)])
    assert torch.equal(result, torch.eye(4)[2][:, None].expand(4, 3))


@pytest.mark.parametrize(("index", "sizes"), [(4, [4, 3]), (-1, [4, 3]), (0, [4, 2])])
def test_copy_index_out_of_place_is_an_error(index: int, sizes: list[int]) -> None:
    asm = Assembly()
    row, rows = asm.tensor([3]), asm.tensor(sizes)
    asm.call("executorch_prim::et_copy_index.tensor", rows, row, asm.argument(index))
    with pytest.raises(ModelError) as caught:
        asm.load([row], [rows]).execute([torch.ones(3)])
    assert caught.value.code == "EK651"


@pytest.mark.parametrize("name", ["dim_order_ops::_to_dim_order_copy.out", "dim_order_ops::_clone_dim_order.out"])
def test_copy_changes_the_layout_and_not_the_elements(name: str) -> None:
    asm = Assembly()
    x = asm.tensor([2, 3, 4, 5])
    y = asm.tensor([2, 3, 4, 5], dim_order=[0, 2, 3, 1])
    asm.call(name, x, asm.argument(False), asm.argument([0, 2, 3, 1]), y, y)
    given = torch.randn(2, 3, 4, 5)
    [result] = asm.load([x], [y]).execute([given])
    assert torch.equal(result, given)
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_copy_converts_to_the_dtype_of_its_out_argument() -> None:
    asm = Assembly()
    x, y = asm.tensor([3], torch.int64), asm.tensor([3], torch.float16)
    asm.call("dim_order_ops::_to_dim_order_copy.out", x, asm.argument(False), asm.argument(None), y, y)
    [result] = asm.load([x], [y]).execute([torch.tensor([1, -2, 3])])
    assert torch.equal(result, torch.tensor([1, -2, 3], dtype=torch.float16))


@pytest.mark.parametrize("name", ["dim_order_ops::_empty_dim_order.out", "aten::empty.out"])
def test_empty_is_zero_at_every_run(name: str) -> None:
    asm = Assembly()
    y = asm.tensor([2, 3])
    asm.call(name, asm.argument([2, 3]), asm.argument(None), y, y)
    asm.call("aten::fill_.Scalar", y, asm.argument(1), y)
    z = asm.tensor([2, 3], at=0)
    asm.call(name, asm.argument([2, 3]), asm.argument(None), z, z)
    method = asm.load(outputs=[z])
    assert method.execute([])[0].count_nonzero() == method.execute([])[0].count_nonzero() == 0


def test_device_copies_stay_on_the_cpu() -> None:
    asm = Assembly()
    x, y, z = asm.tensor([3]), asm.tensor([3]), asm.tensor([3])
    asm.call("et_copy::_h2d_copy.out", x, y, y)
    asm.call("et_copy::_d2h_copy.out", y, z, z)
    assert torch.equal(asm.load([x], [z]).execute([torch.ones(3)])[0], torch.ones(3))


def random_method() -> Any:
    asm = Assembly()
    x = asm.tensor([64])
    rand, randn, kept, mask, drawn = (asm.tensor([64], torch.bool if i == 3 else torch.float32) for i in range(5))
    asm.call("aten::rand.out", asm.argument([64]), rand, rand)
    asm.call("aten::randn.out", asm.argument([64]), randn, randn)
    dropout = (x, asm.argument(0.25), asm.argument(True), kept, mask, asm.tensor_list([kept, mask]))
    asm.call("aten::native_dropout.out", *dropout)
    asm.call("aten::bernoulli.out", rand, asm.argument(None), drawn, drawn)
    return asm.load([x], [rand, randn, kept, mask, drawn])


def test_random_numbers_come_from_the_seed_of_the_method() -> None:
    before = torch.get_rng_state()
    first, second = random_method(), random_method()
    one, two = first.execute([torch.ones(64)]), second.execute([torch.ones(64)])
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    again = first.execute([torch.ones(64)])
    assert not torch.equal(one[0], again[0])
    first.manual_seed(0)
    assert torch.equal(first.execute([torch.ones(64)])[0], one[0])
    rand, randn, kept, mask, drawn = one
    assert 0 <= rand.min() < rand.max() < 1
    assert randn.min() < 0 < randn.max()
    assert torch.equal(kept, mask / 0.75)
    assert 0 < mask.sum() < 64
    assert 0 < drawn.sum() < 64
    assert torch.equal(before, torch.get_rng_state())


def test_dropout_outside_of_training_keeps_all() -> None:
    asm = Assembly()
    x, kept, mask = asm.tensor([8]), asm.tensor([8]), asm.tensor([8], torch.bool)
    listed = asm.tensor_list([kept, mask])
    asm.call("aten::native_dropout.out", x, asm.argument(0.5), asm.argument(False), kept, mask, listed)
    values, keep = asm.load([x], [kept, mask]).execute([torch.arange(8.0)])
    assert torch.equal(values, torch.arange(8.0))
    assert keep.all()


def test_quantize_and_dequantize() -> None:
    asm = Assembly()
    x, q, y = asm.tensor([5]), asm.tensor([5], torch.int8), asm.tensor([5])
    affine = [asm.argument(value) for value in (0.5, 3, -128, 127, torch.int8)]
    asm.call("quantized_decomposed::quantize_per_tensor.out", x, *affine, q, q)
    asm.call("quantized_decomposed::dequantize_per_tensor.out", q, *affine, asm.argument(None), y, y)
    quantized, back = asm.load([x], [q, y]).execute([torch.tensor([-1.0, 0.0, 0.6, 10.0, 1e9])])
    assert quantized.tolist() == [1, 3, 4, 23, 127]
    assert back.tolist() == [-1.0, 0.0, 0.5, 10.0, 62.0]


def test_quantize_per_channel_and_choose_qparams() -> None:
    asm = Assembly()
    x = asm.tensor([2, 3])
    scales = asm.constant(torch.tensor([0.5, 0.25], dtype=torch.float64))
    zeros = asm.constant(torch.tensor([0, 1]))
    q = asm.tensor([2, 3], torch.int8)
    tail = [asm.argument(value) for value in (0, -128, 127, torch.int8)]
    asm.call("quantized_decomposed::quantize_per_channel.out", x, scales, zeros, *tail, q, q)
    scale, zero = asm.tensor([1], torch.float64), asm.tensor([1], torch.int64)
    choice = [asm.argument(value) for value in (-128, 127, 1e-5, torch.int8)]
    both = asm.tensor_list([scale, zero])
    asm.call("quantized_decomposed::choose_qparams.Tensor_out", x, *choice, scale, zero, both)
    given = torch.tensor([[-1.0, 0.0, 1.0], [-1.0, 0.5, 4.1]])
    quantized, chosen, _ = asm.load([x], [q, scale, zero]).execute([given])
    assert quantized.tolist() == [[-2, 0, 2], [-3, 3, 17]]
    assert chosen.item() == pytest.approx(5.1 / 255)


def test_quantization_as_torch_computes_it() -> None:
    asm = Assembly()
    x, q = asm.tensor([3]), asm.tensor([3], torch.int8)
    affine = [asm.argument(value) for value in (0.5, 0, -128, 127, torch.int8)]
    asm.call("quantized_decomposed::quantize_per_tensor.out", x, *affine, q, q)
    file = asm.to_bytes([x], [q])
    given = torch.tensor([1.0, math.inf, -math.inf])
    results = [
        runtime.load_program(file).load_method("forward").execute([given])[0].tolist()
        for runtime in (Runtime(), Runtime(OperatorRegistry(eager_quantization=True)))
    ]
    assert results == [[2, -128, -128], [2, 127, -128]]


def test_result_of_another_dtype_is_an_error() -> None:
    asm = Assembly()
    x, q = asm.tensor([5]), asm.tensor([5], torch.uint8)
    affine = [asm.argument(value) for value in (0.5, 3, -128, 127, torch.int8)]
    asm.call("quantized_decomposed::quantize_per_tensor.out", x, *affine, q, q)
    with pytest.raises(ModelError) as caught:
        asm.load([x], [q]).execute([torch.ones(5)])
    assert caught.value.code == "EK653"


def test_operators_of_a_loaded_library_run() -> None:
    with registered("exirkit_test::double(Tensor x) -> Tensor", lambda x: x * 2):
        asm = Assembly()
        x, composed, returned = asm.tensor([3]), asm.tensor([3]), asm.tensor([3])
        asm.call("exirkit_test::double.out", x, composed, composed)
        asm.call("exirkit_test::double", composed, returned)
        outputs = asm.load([x], [composed, returned]).execute([torch.ones(3)])
        assert [output.tolist() for output in outputs] == [[2.0] * 3, [4.0] * 3]


@pytest.mark.parametrize(
    "name",
    [
        "aten::from_file.out",
        "aten::set_.source_Tensor",
        "aten::resize_",
        "aten::resize.out",
        "aten::as_strided_",
        "aten::requires_grad_",
        "aten::_copy_from.out",
        "aten::add.Tensor",
        "aten::view",
        "prims::add",
        "prim::Print",
        "inductor::_alloc_from_pool",
        "no_such_library::add.out",
        "aten::no_such_operator.out",
        "",
        "a b\0c",
    ],
)
def test_operators_that_no_program_may_call_have_no_kernel(name: str) -> None:
    registry = OperatorRegistry()
    assert registry.find(name) is None
    assert name not in registry.operator_names


def test_unknown_names_leave_no_trace_in_torch() -> None:
    OperatorRegistry().find("never_registered::thing.out")
    assert "never_registered" not in torch.ops.__dict__
    OperatorRegistry().find("aten::never_registered.out")
    assert "never_registered" not in torch.ops.aten.__dict__


def test_names_are_those_that_have_a_kernel() -> None:
    registry = Runtime.get().operator_registry
    assert not [name for name in registry.operator_names if registry.find(name) is None]


def test_registry_suggests_a_name_that_is_near() -> None:
    registry = OperatorRegistry()
    assert registry.suggest("aten::add.outt") == "aten::add.out"
    assert registry.suggest("aten::sigmiod.out") == "aten::sigmoid.out"
    assert registry.suggest("completely different") is None
