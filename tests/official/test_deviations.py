"""Where kernels of the official runtime do not compute what torch does: our own kernels of that name do the same."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.fuzz import OfficialRuntime
from exirkit.runtime_ref import OperatorRegistry, Runtime

pytestmark = pytest.mark.executorch

BIG, LESS = 2**53 + 1, 2**24 + 1
WIDE = torch.tensor([BIG, -BIG, 3 * BIG, 5, -7, LESS])
NARROW = torch.tensor([[LESS, 1, -7], [2, 3, 5]], dtype=torch.int32)
SPECIAL = torch.tensor([0.0, math.nan, 1.0, -1.0, -0.0, math.inf])

CASES: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "remainders": (torch.remainder, (WIDE, torch.tensor([10, 10, 10, -3, 3, 1000]))),
    "remainders of a number": (lambda x: torch.remainder(x, -3), (NARROW,)),
    "truncated remainders": (torch.fmod, (WIDE, torch.tensor([10, 10, 10, -3, 3, 7]))),
    "truncated quotients": (lambda x: torch.div(x, 3, rounding_mode="trunc"), (WIDE,)),
    "quotients by zero": (lambda x, y: torch.div(x, y, rounding_mode="floor"), (SPECIAL, torch.zeros(6))),
    "sums of a column": (lambda x: x.sum(0, dtype=torch.int32), (NARROW,)),
    "sums of a row": (lambda x: x.sum(-1, keepdim=True), (NARROW.long(),)),
    "floors": (torch.floor, (NARROW,)),
    "ceilings": (torch.ceil, (WIDE[:2],)),
    "truncations": (torch.trunc, (WIDE[:2],)),
    "powers": (torch.pow, (torch.tensor([3, 7]), torch.tensor([35, 20]))),
    "cubes": (lambda x: torch.pow(x, 3), (torch.tensor([2**19 + 1, -(2**20 + 1)]),)),
    "a multiple of many and one": (lambda x, y: torch.add(x, y, alpha=3), (torch.tensor([2.0]), torch.arange(4.0))),
    "signs": (torch.sign, (SPECIAL,)),
    "no addend": (
        lambda x, y: torch.addmm(x, y, y, beta=0),
        (torch.tensor([[math.nan, 1.0], [math.inf, 0.0]]), torch.ones(2, 2)),
    ),
    "variances of few": (lambda x: torch.var(x, 0, correction=3), (torch.tensor([[1.0, 1.0], [2.0, 1.0]]),)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:var")
@pytest.mark.parametrize("case", CASES)
def test_they_are_the_same_and_lowering_goes_around_them(case: str, official_runtime: OfficialRuntime) -> None:
    function, inputs = CASES[case]

    class Called(torch.nn.Module):
        def forward(self, *given: Tensor) -> Tensor:
            return function(*given)

    program = torch.export.export(Called(), inputs)
    wanted = function(*inputs)
    for target in ("any", "official_host"):
        config = ExecutorchBackendConfig(optimization_level=0, target=target)
        file = to_edge(program).to_executorch(config).buffer
        (theirs,) = official_runtime.run(file, [list(inputs)]).unwrap()[0]
        runtime = Runtime(OperatorRegistry(deviations=True))
        assert isinstance(theirs, Tensor)
        (ours,) = runtime.load_program(file).load_method("forward").execute(list(inputs))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
        is_right = torch.equal(theirs.isnan(), wanted.isnan()) and torch.equal(
            theirs[~theirs.isnan()], wanted[~wanted.isnan()]
        )
        assert is_right is (target == "official_host")
        (plain,) = Runtime.get().load_program(file).load_method("forward").execute(list(inputs))
        torch.testing.assert_close(plain, wanted, rtol=0, atol=0, equal_nan=True)
