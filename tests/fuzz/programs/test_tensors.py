"""Tensors are made from descriptions: the same bytes everywhere, in every layout."""

from __future__ import annotations

import hashlib

import pytest
import torch
from tests.fuzz.programs.program_texts import TEXTS

from exirkit.fuzz.programs import Contents, inputs_of, make_tensor, parse_program
from exirkit.ir import ModelError

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64),
]


def test_bytes_are_the_same_on_every_machine() -> None:
    digest = hashlib.sha256()
    for dtype in DTYPES:
        for kind in ("dyadic", "zeros", "special"):
            tensor = make_tensor(Contents(kind, seed=7, low=-9, high=100, bits=3), dtype, (3, 5, 2))
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    assert digest.hexdigest()[:16] == "cad8f4ab21f5ae4e"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dyadic_values_lie_on_the_grid(dtype: torch.dtype) -> None:
    tensor = make_tensor(Contents(seed=1, low=-1.5, high=3, bits=2), dtype, (40, 30))
    if dtype is torch.bool:
        assert 400 < int(tensor.sum()) < 800
        return
    parts = torch.view_as_real(tensor) if dtype.is_complex else tensor
    wide = parts.to(torch.float64)
    unsigned = dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    least = 0 if unsigned else -1 if not parts.is_floating_point() else -1.5
    assert (float(wide.min()), float(wide.max())) == (least, 3)
    assert torch.equal((wide * 4).round(), wide * 4)


@pytest.mark.parametrize("layout", ["dense", "channels_last", "transposed", "strided"])
@pytest.mark.parametrize(
    "sizes", [(), (0,), (1,), (3,), (2, 3), (2, 1, 3), (2, 3, 1, 1), (2, 3, 5, 7), (2, 0, 3, 1), (1, 2, 3, 4, 5)]
)
def test_layouts_change_strides_only(layout: str, sizes: tuple[int, ...]) -> None:
    plain = make_tensor(Contents(seed=5), torch.float32, sizes)
    laid = make_tensor(Contents(seed=5, layout=layout), torch.float32, sizes)  # type: ignore[arg-type]
    assert torch.equal(plain, laid)


def test_layouts_are_what_they_are_called() -> None:
    def strides(layout: str) -> tuple[int, ...]:
        return make_tensor(Contents(layout=layout), torch.int32, (2, 3, 5, 7)).stride()  # type: ignore[arg-type]

    assert strides("channels_last") == (105, 1, 21, 3)
    assert strides("transposed") == (105, 35, 1, 5)
    assert strides("strided") == (210, 70, 14, 2)
    assert strides("expanded") == (0, 35, 7, 1)
    ones = make_tensor(Contents(layout="channels_last"), torch.int32, (2, 3, 1, 1))
    assert ones.stride() == (3, 1, 3, 3)


def test_special_values_are_there() -> None:
    tensor = make_tensor(Contents("special", seed=2), torch.float32, (400,))
    assert tensor.isnan().any()
    assert tensor.isposinf().any()
    assert tensor.isneginf().any()
    assert bool((torch.signbit(tensor) & (tensor == 0)).any())
    assert bool((tensor.abs().gt(0) & tensor.abs().lt(torch.finfo(torch.float32).tiny)).any())
    whole = make_tensor(Contents("special", seed=2), torch.int64, (400,))
    assert {int(whole.min()), int(whole.max())} == {-(2**63), 2**63 - 1}


def test_listed_numbers_fit() -> None:
    tensor = make_tensor(Contents("numbers", numbers=(2**63 - 1, -1)), torch.int64, (2,))
    assert tensor.tolist() == [2**63 - 1, -1]
    for numbers in ((1,), (1, 2, 3), (1, 2**70), (1, float("nan"))):
        with pytest.raises(ModelError) as caught:
            make_tensor(Contents("numbers", numbers=numbers), torch.int64, (2,))
        assert caught.value.code == "EK805"


def test_inputs_have_the_sizes_of_the_run() -> None:
    program = parse_program(TEXTS["symbols"])
    assert [tuple(one.shape) for one in inputs_of(program, program.runs[0])] == [(9, 5), (5, 9), (3,)]
