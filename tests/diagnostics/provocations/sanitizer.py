"""Programs that use memory wrongly, run under the memory sanitizer."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from tests.diagnostics.provocation import provokes
from tests.runtime_ref.assembly import BOUND, Assembly, registered

from exirkit.runtime_ref import Runtime


def run(made: Assembly, *inputs: Any) -> None:
    Runtime.get().load_program(made.file(), sanitize=True).load_method("forward").execute(inputs)


def negate(made: Assembly, x: int, out: int) -> None:
    made.call("aten::neg.out", x, out, out)


@provokes("EK660")
def rows_overwritten_between_two_rounds_of_a_loop(_: Path) -> None:
    made = Assembly()
    xs, ys = made.tensor([3, 4]), made.tensor([3, 4], dynamism=BOUND)
    scratch, row, out = made.tensor([4], at=64), made.tensor([4]), made.tensor([3, 4])
    at, count, done = made.argument(0), made.argument(3), made.argument(False)
    made.call("aten::select_copy.int_out", xs, made.argument(0), at, scratch, scratch)
    negate(made, scratch, row)
    made.call("executorch_prim::et_copy_index.tensor", ys, row, at)
    made.call("executorch_prim::add.Scalar", at, made.argument(1), at)
    made.call("executorch_prim::eq.Scalar", at, count, done)
    made.jump_if_false(done, 0)
    made.call("executorch_prim::sub.Scalar", at, count, at)
    negate(made, ys, out)
    made.program([xs], [out])
    run(made, torch.ones(3, 4))


@provokes("EK661")
def missing_instruction(_: Path) -> None:
    made = Assembly()
    x, forgotten, out = made.tensor([4]), made.tensor([4]), made.tensor([4])
    made.call("aten::add.out", x, forgotten, made.argument(1), out, out)
    made.program([x], [out])
    run(made, torch.ones(4))


@provokes("EK662")
def view_at_another_place(_: Path) -> None:
    made = Assembly()
    x, hidden, view, out = made.tensor([4]), made.tensor([4]), made.tensor([2, 2], at=8), made.tensor([2, 2])
    negate(made, x, hidden)
    negate(made, view, out)
    made.program([x], [hidden, out])
    run(made, torch.ones(4))


@provokes("EK663")
def two_live_tensors_in_one_place(_: Path) -> None:
    made = Assembly()
    x, first, second, out = made.tensor([4]), made.tensor([4]), made.tensor([4], at=24), made.tensor([4], at=48)
    negate(made, x, first)
    negate(made, x, second)
    made.call("aten::add.out", first, second, made.argument(1), out, out)
    made.program([x], [out])
    run(made, torch.ones(4))


@provokes("EK664")
def result_over_half_of_an_argument(_: Path) -> None:
    made = Assembly()
    x, hidden, out = made.tensor([4]), made.tensor([4]), made.tensor([4], at=24)
    negate(made, x, hidden)
    negate(made, hidden, out)
    made.program([x], [out])
    run(made, torch.ones(4))


@provokes("EK665")
def kernel_that_writes_too_much(_: Path) -> None:
    def overflow(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        if out.is_meta:
            return out.resize_(x.shape)
        ctypes.memset(out.data_ptr(), 7, out.nbytes + 4)
        return out

    made = Assembly()
    x, out = made.tensor([4]), made.tensor([4])
    with registered("provoke_sanitizer::overflow.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", overflow):
        made.call("provoke_sanitizer::overflow.out", x, out, out)
        made.program([x], [out])
        run(made, torch.ones(4))


@provokes("EK666")
def view_with_a_plan_of_its_own(_: Path) -> None:
    made = Assembly()
    x, hidden, view, out = made.tensor([4]), made.tensor([4]), made.tensor([2, 2]), made.tensor([2, 2])
    negate(made, x, hidden)
    made.call("executorch_prim::et_view.default", hidden, made.argument([2, 2]), view)
    negate(made, view, out)
    made.program([x], [out])
    run(made, torch.ones(4))
