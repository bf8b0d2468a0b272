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
