"""Every operator of `aten` that the official runtime knows runs from a program and gives what torch gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.runtime_ref.assembly import BOUND, STATIC, Assembly
from tests.runtime_ref.op_samples import make_samples
from torch._ops import OpOverload

from exirkit.runtime_ref import Method, Runtime

SAMPLES = make_samples()
CASES = [(name, number) for name, calls in SAMPLES.items() for number in range(len(calls))]


def torch_op(name: str) -> OpOverload:
    base, _, overload = name.removeprefix("aten::").partition(".")
    op = getattr(getattr(torch.ops.aten, base), overload or "default")
    assert isinstance(op, OpOverload)
    return op


def reference(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what each out argument must hold: the results of the functional overload, or of the out one itself."""
    op = torch_op(name)
    outs = [argument.name for argument in op._schema.arguments if argument.is_out]
    functional = functional_of(op)
    if functional is not None:
        result = functional(*_cloned(args), **kwargs)
        return dict(zip(outs, (result,) if len(outs) == 1 else result, strict=True))
    first = next((one for one in args if isinstance(one, torch.Tensor)), torch.empty(0))
    filled = {out: torch.empty(0, dtype=first.dtype) for out in outs}
    op(*_cloned(args), **kwargs, **filled)
    return filled


def functional_of(op: OpOverload) -> OpOverload | None:
    """Return the overload without out arguments that takes the same arguments otherwise."""
    wanted = [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]
    for overload in op._overloadpacket.overloads():
        candidate = getattr(op._overloadpacket, overload)
        found = [(a.name, str(a.type)) for a in candidate._schema.arguments]
        if found == wanted and candidate is not op and not candidate._schema.is_mutable:
            assert isinstance(candidate, OpOverload)
            return candidate
    return None


def _cloned(args: tuple[Any, ...]) -> list[Any]:
    return [one.clone() if isinstance(one, torch.Tensor) else one for one in args]


def assemble(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], expected: dict[str, Any], *, dynamic: bool
) -> tuple[Method, list[torch.Tensor], list[torch.Tensor]]:
    """Return the loaded program, its inputs and the outputs that it must give."""
    asm = Assembly()
    inputs: list[int] = []
    given: list[torch.Tensor] = []

    def feed(tensor: torch.Tensor) -> int:
        index = asm.like(tensor, dynamism=BOUND if dynamic else STATIC)
        inputs.append(index)
        given.append(tensor)
        return index

    def add(value: Any, kind: str) -> int:
        if isinstance(value, torch.Tensor):
            return feed(value)
        if isinstance(value, list) and any(isinstance(item, torch.Tensor) for item in value):
            indices = [-1 if item is None else feed(item) for item in value]
            return asm.optional_tensor_list(indices) if "Optional" in kind else asm.tensor_list(indices)
        return asm.argument(value, kind)

    slots: list[int] = []
    outs: list[int] = []
    flat: list[torch.Tensor] = []
    plain = list(args)
    for argument in torch_op(name)._schema.arguments:
        if argument.is_out:
            results = expected[argument.name]
            listed = [asm.like(one, dynamism=BOUND if dynamic else STATIC) for one in _listed(results)]
            outs += listed
            flat += _listed(results)
            slots.append(asm.tensor_list(listed) if isinstance(results, list) else listed[0])
        else:
            value = (
                plain.pop(0) if plain and not argument.kwarg_only else kwargs.get(argument.name, argument.default_value)
            )
            slots.append(add(value, str(argument.real_type)))
    tail = outs[0] if len(outs) == 1 else asm.tensor_list(outs)
    asm.call(name, *slots, tail)
    return asm.load(inputs, outs), given, flat


def _listed(results: Any) -> list[torch.Tensor]:
    return results if isinstance(results, list) else [results]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(("name", "number"), CASES, ids=[f"{name}-{number}" for name, number in CASES])
def test_operator_gives_what_torch_gives(name: str, number: int, dynamic: bool) -> None:
    args, kwargs = SAMPLES[name][number]
    expected = reference(name, args, kwargs)
    method, given, flat = assemble(name, args, kwargs, expected, dynamic=dynamic)
    # The second run takes the way that the first one prepared.
    for _ in range(2):
        outputs = method.execute(given)
        for output, want in zip(outputs, flat, strict=True):
            torch.testing.assert_close(output, want, rtol=0, atol=0, equal_nan=True)


def test_samples_cover_the_official_operators(official_operators: frozenset[str]) -> None:
    own = {name for name in official_operators if not name.startswith("aten::")}
    elsewhere = {"aten::copy_", "aten::empty.out", "aten::index_put_", "aten::rand.out", "aten::randn.out"}
    numbers = {"aten::_local_scalar_dense", "aten::sym_numel", "aten::sym_size.int"}
    # The format has no complex tensors, so no program can call these.
    complex_only = {"aten::_fft_c2r.out", "aten::_fft_r2c.out", "aten::view_as_real_copy.out"}
    assert official_operators - own - elsewhere - numbers - complex_only == set(SAMPLES)


def test_every_official_operator_has_a_kernel(official_operators: frozenset[str]) -> None:
    assert official_operators - Runtime.get().operator_registry.operator_names == set()
