"""A sanitized run lets a result overwrite an argument that dies there, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from tests.runtime_ref.assembly import BOUND, STATIC, Assembly

from exirkit.ir import ModelError
from exirkit.runtime_ref import Runtime


def run(asm: Assembly, inputs: Sequence[int], outputs: Sequence[int], *tensors: torch.Tensor) -> list[torch.Tensor]:
    method = Runtime.get().load_program(asm.file(inputs, outputs), sanitize=True, in_place=True).load_method("forward")
    results: list[torch.Tensor] = method.execute(list(tensors))
    return results


def add(asm: Assembly, left: int, right: int, out: int) -> None:
    asm.call("aten::add.out", left, right, asm.argument(1), out, out)


def test_an_argument_that_dies_may_be_overwritten() -> None:
    asm = Assembly()
    x = asm.tensor([4])
    row = asm.tensor([1])
    total = asm.tensor([4], at=0)
    add(asm, x, row, total)
    twice = asm.tensor([4], at=0)
    add(asm, total, total, twice)
    (result,) = run(asm, [x, row], [twice], torch.arange(4.0), torch.ones(1))
    assert result.tolist() == [2.0, 4.0, 6.0, 8.0]


def test_not_in_a_program_that_was_not_planned_so() -> None:
    asm = Assembly()
    x = asm.tensor([4])
    total = asm.tensor([4], at=0)
    add(asm, x, x, total)
    method = Runtime.get().load_program(asm.file([x], [total]), sanitize=True).load_method("forward")
    with pytest.raises(ModelError, match="EK664"):
        method.execute([torch.ones(4)])


def test_not_one_that_is_read_later() -> None:
    asm = Assembly()
    x = asm.tensor([4])
    total = asm.tensor([4], at=0)
    add(asm, x, x, total)
    again = asm.tensor([4])
    add(asm, x, total, again)
    with pytest.raises(ModelError, match=r"EK66[34]"):
        run(asm, [x], [again], torch.ones(4))


def test_not_one_that_is_returned() -> None:
    asm = Assembly()
    x = asm.tensor([4])
    total = asm.tensor([4], at=0)
    add(asm, x, x, total)
    with pytest.raises(ModelError, match=r"EK66[34]"):
        run(asm, [x], [total, x], torch.ones(4))


@pytest.mark.parametrize("at", [8, 16])
def test_not_in_part(at: int) -> None:
    asm = Assembly()
    x = asm.tensor([8])
    total = asm.tensor([8], at=at)
    add(asm, x, x, total)
    with pytest.raises(ModelError, match="EK664"):
        run(asm, [x], [total], torch.ones(8))


def test_not_by_broadcasting_over_it() -> None:
    asm = Assembly()
    row, x = asm.tensor([4]), asm.tensor([2, 4])
    total = asm.tensor([2, 4], at=0)
    add(asm, x, row, total)
    with pytest.raises(ModelError, match="EK664"):
        run(asm, [x, row], [total], torch.ones(2, 4), torch.ones(4))


def test_not_in_another_form() -> None:
    asm = Assembly()
    x = asm.tensor([2, 2])
    column = asm.tensor([4])
    total = asm.tensor([2, 2], dim_order=[1, 0], at=0)
    add(asm, x, x, total)
    with pytest.raises(ModelError, match="EK664"):
        run(asm, [x, column], [total], torch.ones(2, 2), torch.ones(4))


def test_not_where_sizes_vary() -> None:
    asm = Assembly()
    x = asm.tensor([4], dynamism=BOUND)
    total = asm.tensor([4], dynamism=BOUND, at=0)
    add(asm, x, x, total)
    with pytest.raises(ModelError, match="EK664"):
        run(asm, [x], [total], torch.ones(4))


def test_not_by_an_operator_that_is_not_listed() -> None:
    asm = Assembly()
    x = asm.tensor([4], dynamism=STATIC)
    total = asm.tensor([4], at=0)
    asm.call("aten::flip.out", x, asm.argument([0], "int[]"), total, total)
    with pytest.raises(ModelError, match="EK664"):
        run(asm, [x], [total], torch.ones(4))
