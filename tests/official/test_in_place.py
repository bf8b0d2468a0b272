"""Operators of the in-place table run on the official runtime with their result in the bytes of an argument."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.official.oracle import OfficialRuntime
from tests.runtime_ref.assembly import Assembly
from tests.runtime_ref.test_operators import torch_op

from exirkit.ir import in_place_operators
from exirkit.runtime_ref import Runtime

pytestmark = [pytest.mark.slow, pytest.mark.executorch]

TABLE = in_place_operators()
CASES = [
    (name, result, argument)
    for name, results in TABLE.items()
    for result, arguments in results.items()
    for argument in arguments
]
# Odd lengths around the widths of vector registers and of the grain of parallel work.
SHAPES = ((7,), (1,), (3, 5, 17), (2, 4, 33, 9), (129, 65), (1, 6, 1, 40000))
DTYPES = (torch.float32, torch.float16, torch.float64, torch.int32, torch.uint8, torch.bool)
# What schemas have no default for.
NUMBERS: dict[str, Any] = {
    "alpha": 2, "dim": -1, "half_to_float": False, "eps": 1e-5, "rounding_mode": "trunc", "momentum": 0.1, "min": -1,
    "max": 1, "other": 2, "exponent": 2, "value": 3, "self": 2,
}  # fmt: skip
NORMS = ("native_layer_norm", "native_group_norm", "_native_batch_norm_legit_no_training")


@pytest.fixture(scope="module")
def official() -> Iterator[OfficialRuntime]:
    with OfficialRuntime() as runtime:
        yield runtime


def draw_tensor(draw: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30))
    if dtype.is_floating_point:
        return (torch.rand(shape, generator=generator, dtype=torch.float64) * 3 - 0.7).to(dtype)
    low, high = (0, 2) if dtype is torch.bool else (0 if dtype is torch.uint8 else -9, 9)
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def broadcastable(draw: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts to another one."""
    start = draw.randrange(len(shape) + 1)
    return tuple(1 if draw.random() < 0.3 else size for size in shape[start:])


def arguments_of(
    name: str, overwritten: str, shape: tuple[int, ...], dtype: torch.dtype, draw: random.Random
) -> dict[str, Any]:
    """Return arguments by name: the overwritten one has the shape of the result, others broadcast to it."""
    base = name.removeprefix("aten::").partition(".")[0]
    if base in NORMS:
        return norm_arguments(base, shape, dtype, draw)
    given: dict[str, Any] = {}
    for argument in torch_op(name)._schema.arguments:
        if argument.is_out:
            continue
        if "Tensor" in str(argument.type):
            sizes = shape if argument.name == overwritten else broadcastable(draw, shape)
            given[argument.name] = draw_tensor(draw, sizes, mask_dtype(argument.name, dtype))
        elif argument.name in NUMBERS:
            given[argument.name] = NUMBERS[argument.name]
        else:
            given[argument.name] = argument.default_value
    return given


def mask_dtype(argument: str, dtype: torch.dtype) -> torch.dtype:
    return torch.bool if argument in ("condition", "mask") else dtype


def norm_arguments(base: str, shape: tuple[int, ...], dtype: torch.dtype, draw: random.Random) -> dict[str, Any]:
    inner = shape[-1:] if base == "native_layer_norm" else shape[1:2] or (1,)
    given: dict[str, Any] = {"input": draw_tensor(draw, shape, dtype)}
    given |= {name: draw_tensor(draw, inner, dtype) for name in ("weight", "bias")}
    if base == "native_layer_norm":
        return {"input": given["input"], "normalized_shape": list(inner), **given, "eps": 1e-5}
    if base == "native_group_norm":
        sizes = {"N": shape[0], "C": inner[0], "HxW": torch.Size(shape[2:]).numel(), "group": 1}
        return {**given, **sizes, "eps": 1e-5}
    mean, var = draw_tensor(draw, inner, dtype), draw_tensor(draw, inner, dtype) + 1
    return {**given, "running_mean": mean, "running_var": var, "momentum": 0.1, "eps": 1e-5}


def results_of(name: str, given: dict[str, Any], dtype: torch.dtype) -> list[torch.Tensor] | None:
    """Return tensors like the results, or None where torch does not take the arguments."""
    outs = [argument.name for argument in torch_op(name)._schema.arguments if argument.is_out]
    call = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in given.items()}
    filled = {out: torch.empty(0, dtype=dtype) for out in outs}
    try:
        torch_op(name)(**call, **filled)
    except (IndexError, NotImplementedError, RuntimeError):
        return None
    return list(filled.values())


def program(
    name: str, given: dict[str, Any], results: list[torch.Tensor], over: tuple[str, int] | None
) -> tuple[Assembly, list[torch.Tensor]]:
    """Return a program of one call; a result lies over the argument if `over` names both."""
    asm = Assembly()
    inputs, tensors, slots = [], [], []
    places: dict[str, int] = {}
    for argument in torch_op(name)._schema.arguments:
        if argument.is_out:
            continue
        value = given[argument.name]
        if isinstance(value, torch.Tensor):
            index = asm.like(value)
            inputs.append(index)
            tensors.append(value)
            allocation = asm.declared(index).allocation_info
            assert allocation is not None
            places[argument.name] = allocation.memory_offset_low
        else:
            index = asm.argument(value, str(argument.type))
        slots.append(index)
    outs = []
    for number, result in enumerate(results):
        at = places[over[0]] if over is not None and over[1] == number else None
        outs.append(asm.like(result, at=at))
    tail = outs if len(outs) == 1 else [asm.tensor_list(outs)]
    asm.call(name, *slots, *outs, *tail)
    asm.plan.inputs, asm.plan.outputs = inputs, outs
    return asm, tensors


def same_bits(left: Any, right: Any) -> bool:
    return left.shape == right.shape and left.contiguous().view(torch.uint8).equal(right.contiguous().view(torch.uint8))


@pytest.mark.parametrize(("name", "result", "argument"), CASES, ids=["-".join(case) for case in CASES])
def test_result_over_argument(name: str, result: str, argument: str, official: OfficialRuntime) -> None:
    outs = [one.name for one in torch_op(name)._schema.arguments if one.is_out]
    over = (argument, outs.index(result))
    compared = 0
    for number, shape in enumerate(SHAPES):
        for dtype in DTYPES:
            draw = random.Random(f"{name} {argument} {number} {dtype}")
            given = arguments_of(name, argument, shape, dtype, draw)
            results = results_of(name, given, given[argument].dtype)
            if results is None or not fits(results[over[1]], given[argument]):
                continue
            apart, tensors = program(name, given, results, None)
            together, _ = program(name, given, results, over)
            wanted = official.run(apart.to_bytes(), [tensors])
            if wanted.failure is not None:
                continue
            got = official.run(together.to_bytes(), [tensors]).unwrap()
            for left, right in zip(got[0], wanted.outputs[0], strict=True):
                assert same_bits(left, right), (shape, dtype)
            own = Runtime.get().load_program(together.file()).load_method("forward").execute(tensors)
            apart_own = Runtime.get().load_program(apart.file()).load_method("forward").execute(tensors)
            assert all(same_bits(left, right) for left, right in zip(own, apart_own, strict=True)), (shape, dtype)
            compared += 1
    assert compared > 0, "the official runtime takes none of the samples"


def fits(result: torch.Tensor, argument: torch.Tensor) -> bool:
    return result.dtype == argument.dtype and result.shape == argument.shape and argument.numel() > 0
