"""Running a method with some values as another runtime computed them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from exirkit.emit import ExecutionPlan, KernelCall
from exirkit.runtime_ref.checks.calls import PlanFacts

from .values import TensorCell

_Step: TypeAlias = Callable[[], int | None]


@dataclass
class Substitution:
    """Values that take the place of those that kernels of a method compute, in one run.

    What the calls behind them compute then follows from the given values: if another runtime gave these values, its
    other results must be the same to the last bit.

    Attributes:
        given: Tensors by their index in the value table of the method, of the shape and dtype that they have there.
        computed: What the kernels computed instead; filled by the run.
        operands: Magnitudes of the operands of these kernels, the largest first: no finite element is farther from 0.
    """

    given: Mapping[int, torch.Tensor]
    computed: dict[int, torch.Tensor] = field(default_factory=dict)
    operands: dict[int, list[float]] = field(default_factory=dict)

    def wrapped(
        self, plan: ExecutionPlan, facts: PlanFacts, values: list[Any], chains: Sequence[Sequence[_Step]]
    ) -> list[list[_Step]]:
        """Return the steps of a method, with the given values written behind those that compute them."""
        made = [list(steps) for steps in chains]
        for chain, steps in zip(plan.chains, made, strict=True):
            for at, instruction in enumerate(chain.instructions):
                call = instruction.instr_args
                if not isinstance(call, KernelCall):
                    continue
                written = _written(call, facts) & self.given.keys()
                if written:
                    read = [one for one in call.args if isinstance(values[one], TensorCell) and one not in written]
                    steps[at] = self._wrapped(steps[at], sorted(written), read, values)
        return made

    def _wrapped(self, step: _Step, written: Sequence[int], read: Sequence[int], values: list[Any]) -> _Step:
        def run() -> int | None:
            magnitudes = sorted((_magnitude(values[one].tensor()) for one in read), reverse=True)
            target = step()
            for index in written:
                shown = values[index].tensor()
                self.computed[index] = shown.clone()
                self.operands[index] = magnitudes
                shown.copy_(self.given[index])
            return target

        return run


def _magnitude(tensor: torch.Tensor) -> float:
    numbers = tensor[tensor.isfinite()]
    return float(numbers.abs().amax()) if numbers.numel() else 0.0


def _written(call: KernelCall, facts: PlanFacts) -> set[int]:
    kernel = facts.kernels[call.op_index]
    assert kernel is not None, "a loaded method has all its kernels"
    outs = {call.args[place] for place, slot in enumerate(kernel.slots) if slot.is_written}
    return outs | set(call.args[len(kernel.slots) :])
