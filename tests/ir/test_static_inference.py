"""Kernels without data say of static sizes what fake tensors say."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.fuzz.generation import Policy, generate
from exirkit.fuzz.programs import build
from exirkit.ir import fake_mode_of, infer_static_value, infer_value
from exirkit.ir.inference import meta_kernels
from exirkit.ir.tensor_spec import empty_meta_tensor
from exirkit.ir.torch_internals import make_fake_tensor


def described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        assert isinstance(value, FakeTensor)
        # torch is not of one mind about the strides of dims of one element: its kernels and its fake tensors differ.
        strides = [step for step, size in zip(value.stride(), value.shape, strict=True) if size != 1]
        return value.dtype, tuple(value.shape), strides, value.storage_offset(), value.device
    return [described(one) for one in value] if isinstance(value, list | tuple) else value


def test_a_fake_tensor_is_what_the_constructor_makes() -> None:
    mode, empty = FakeTensorMode(), empty_meta_tensor(torch.float16, (2, 3), (1, 2), 4)
    ours, theirs = (make(mode, empty, torch.device("cpu")) for make in (make_fake_tensor, FakeTensor))
    assert described(ours) == described(theirs)
    assert vars(ours) == vars(theirs)
    assert torch._C._dispatch_keys(ours) == torch._C._dispatch_keys(theirs)
    other = make_fake_tensor(mode, empty, torch.device("cpu"))
    with mode:
        assert described(ours + other) == described(theirs + other)
    ours.constant = torch.ones(2, 3)
    assert other.constant is None


@pytest.mark.parametrize("first", [0, 10_000])
def test_both_say_the_same(first: int) -> None:
    counted: Counter[str] = Counter()
    for seed in range(first, first + 150):
        for program in build(generate(seed, Policy(most_calls=20))).values():
            mode = fake_mode_of(program.graph_module)
            for node in program.graph.nodes:
                quick = said(mode, node)
                if quick is not None:
                    slow = infer_value(mode, node.target, node.args, node.kwargs)
                    assert described(quick) == described(slow) or agrees_with_the_kernel(quick, node), node
                    counted[str(node.target)] += 1
    assert sum(counted.values()) > 400
    assert len(counted) > 100


def agrees_with_the_kernel(quick: Any, node: Node) -> bool:
    """Whether the kernel itself, given tensors with data, says what the quick way said.

    It decides where the two differ: torch's fake tensors forget the order of dims of an input that is broadcast in
    `logical_and`, `logical_or` and `logical_xor`, and the kernel does not.
    """

    def with_data(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        reach = 1 + sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
        return torch.zeros(max(reach, 0), dtype=value.dtype).as_strided(value.shape, value.stride())

    args, kwargs = map_arg((node.args, node.kwargs), lambda one: with_data(one.meta["val"]))
    real = node.target(*args, **kwargs)  # type: ignore[operator]
    return isinstance(real, torch.Tensor) and described(quick) == described(FakeTensorMode().from_tensor(real))


def test_the_kernel_decides_where_fake_tensors_forget_an_order() -> None:
    mode = FakeTensorMode()
    with mode:
        row, block = torch.empty(3, dtype=torch.int64), torch.empty(3, 3, 3).permute(0, 2, 1)
    made = infer_static_value(mode, torch.ops.aten.logical_xor.default, (row, block), {})
    real = torch.logical_xor(torch.ones(3, dtype=torch.int64), torch.ones(3, 3, 3).permute(0, 2, 1))
    assert made.stride() == real.stride() == (9, 1, 3)


def said(mode: Any, node: Node) -> Any:
    return infer_static_value(mode, node.target, node.args, node.kwargs) if node.op == "call_function" else None


def test_the_results_are_not_arguments() -> None:
    mode = FakeTensorMode()
    with mode:
        given = torch.empty(3, 4)
    made = infer_static_value(mode, torch.ops.aten.view.default, (given, [4, 3]), {})
    assert made.fake_mode is mode
    assert made.untyped_storage()._cdata != given.untyped_storage()._cdata


def test_what_it_cannot_tell() -> None:
    mode = FakeTensorMode()
    with mode:
        given = torch.empty(3, 4)
    assert infer_static_value(mode, torch.ops.aten.nonzero.default, (given,), {}) is None
    assert infer_static_value(mode, torch.ops.aten.add_.Tensor, (given, given), {}) is None
    assert infer_static_value(mode, torch.ops.aten.mm.default, (given, given), {}) is None


@pytest.mark.parametrize("sizes", [(2, 3), (2, 3, 5), (2, 3, 4, 5), (1, 3, 1, 1)])
@pytest.mark.parametrize("has_parameters", [True, False])
def test_a_batch_norm_is_not_run(sizes: tuple[int, ...], has_parameters: bool) -> None:
    op = torch.ops.aten._native_batch_norm_legit_no_training.default
    mode = FakeTensorMode()
    with mode:
        source, one, other = torch.empty(sizes), torch.empty(3), torch.empty(4)
    scale = one if has_parameters else None
    args = (source, scale, scale, one, one, 0.1, 1e-5)
    quick = infer_static_value(mode, op, args, {})
    assert described(quick) == described(list(infer_value(mode, op, args, {})))
    real = op(*[torch.ones(each.shape) if isinstance(each, torch.Tensor) else each for each in args])
    assert described(quick) == described([FakeTensorMode().from_tensor(each) for each in real])
    for wrong in (other, one.double(), None):
        assert infer_static_value(mode, op, (*args[:3], wrong, *args[4:]), {}) is None


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], list[Any]]] = {
    "plain": ((2, 3, 9, 8), (6, 3, 3, 2), [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]),
    "one number": ((2, 3, 9, 8), (6, 3, 3, 2), [[2], [1], [1], False, [0], 1]),
    "steps": ((1, 4, 9, 8), (6, 2, 3, 2), [[2, 3], [1, 0], [2, 1], False, [0, 0], 2]),
    "depthwise": ((1, 4, 7, 7), (4, 1, 3, 3), [[1, 1], [1, 1], [1, 1], False, [0, 0], 4]),
    "one pixel": ((1, 4, 1, 1), (6, 4, 1, 1), [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]),
    "one channel": ((2, 1, 6, 6), (1, 1, 1, 1), [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]),
    "one dim": ((2, 3, 9), (6, 3, 4), [[2], [1], [1], False, [0], 1]),
    "three dims": ((1, 2, 5, 6, 7), (3, 2, 2, 2, 2), [[1, 1, 2], [0, 1, 0], [1, 1, 1], False, [0, 0, 0], 1]),
    "transposed": ((2, 4, 5, 6), (4, 3, 3, 2), [[2, 3], [1, 0], [2, 1], True, [1, 0], 2]),
}


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_no_kernel_is_chosen_for_a_convolution(name: str, has_bias: bool) -> None:
    op = torch.ops.aten.convolution.default
    taken, weights, rest = CONVOLUTIONS[name]
    mode = FakeTensorMode()
    channels = weights[1] * rest[5] if rest[3] else weights[0]
    with mode:
        source, weight, bias = torch.empty(taken), torch.empty(weights), torch.empty(channels)
    args = (source, weight, bias if has_bias else None, *rest)
    quick = infer_static_value(mode, op, args, {})
    assert described(quick) == described(infer_value(mode, op, args, {}))
    real = op(torch.ones(taken), torch.ones(weights), torch.ones(channels) if has_bias else None, *rest)
    assert (quick.shape, quick.stride()) == (real.shape, real.stride())


def test_convolutions_that_only_fake_tensors_know() -> None:
    op, rest = torch.ops.aten.convolution.default, ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    mode = FakeTensorMode()
    with mode:
        source, weight, bias = torch.empty(2, 3, 4, 4), torch.empty(6, 3, 3, 3), torch.empty(6)
        last = torch.empty(2, 3, 4, 4, memory_format=torch.channels_last)
        line = torch.empty(3, 2, 9).permute(1, 0, 2)
    assert infer_static_value(mode, op, (source, weight, bias, *rest), {}) is not None
    wrong: list[tuple[Any, ...]] = [
        (last, weight, bias),
        (source, weight.to(memory_format=torch.channels_last), bias),
        (source.double(), weight, bias),
        (source, weight, weight),
        (source[:, :, :2, :2].contiguous(), weight, bias),
        (source[:, :2].contiguous(), weight, bias),
        (source[0].contiguous(), weight, bias),
    ]
    for given in wrong:
        assert infer_static_value(mode, op, (*given, *rest), {}) is None
    with mode:
        kernel = torch.empty(6, 3, 3)
    assert infer_static_value(mode, op, (line, kernel, bias, [1], [0], [1], False, [0], 1), {}) is None


@pytest.mark.parametrize("op", [torch.ops.aten.hardswish.default, torch.ops.aten.silu.default])
def test_pointwise_results_that_are_too_large_to_compute(op: Any) -> None:
    mode = FakeTensorMode()
    with mode:
        given = torch.empty(1, 16, 112, 112, dtype=torch.float16)
        turned = given.permute(0, 1, 3, 2)[0]
    for one in (given, turned):
        quick = infer_static_value(mode, op, (one,), {})
        assert described(quick) == described(infer_value(mode, op, (one,), {}))


def test_one_element_tells_the_dtype_of_large_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meta_kernels, "_MOST_COMPUTED", 0)
    kept = meta_kernels._as_one_element
    asked: Counter[bool] = Counter()

    def counted(*given: Any) -> Any:
        found = kept(*given)
        asked[found is not None] += 1
        return found

    monkeypatch.setattr(meta_kernels, "_as_one_element", counted)
    for seed in range(60):
        for program in build(generate(seed, Policy(most_calls=20))).values():
            mode = fake_mode_of(program.graph_module)
            for node in program.graph.nodes:
                quick = said(mode, node)
                if quick is not None:
                    slow = infer_value(mode, node.target, node.args, node.kwargs)
                    assert described(quick) == described(slow) or agrees_with_the_kernel(quick, node), node
    assert asked[True] > 50
    assert asked[False]
