"""How much room the values of a trace take: the official runtime ends the process if its debug buffer is too small."""

from __future__ import annotations

from math import prod

from exirkit.emit import DelegateCall, ExecutionPlan, KernelCall, Tensor, TensorList

# The runtime aligns every tensor, and writes some bytes of its own at the start.
_ALIGNMENT = 64
_SLACK_NBYTES = 4096


def debug_buffer_nbytes(plan: ExecutionPlan, runs: int = 1) -> int:
    """Return how many bytes the values of some runs of a method take at most, in a trace of the official runtime.

    Requires: instructions do not run more often than once per run, which loops do; multiply by their rounds.

    Args:
        plan: The method.
        runs: How often it runs; nothing is reused.
    """
    nbytes = sum(_value_nbytes(plan, index) for index in plan.outputs)
    for chain in plan.chains:
        for instruction in chain.instructions:
            call = instruction.instr_args
            if isinstance(call, KernelCall | DelegateCall):
                shown = call.args if isinstance(call, DelegateCall) else call.args[-1:]
                nbytes += sum(_value_nbytes(plan, index) for index in shown)
    return runs * nbytes + _SLACK_NBYTES


def _value_nbytes(plan: ExecutionPlan, index: int) -> int:
    value = plan.values[index].val
    if isinstance(value, TensorList):
        return sum(_value_nbytes(plan, item) for item in value.items)
    if not isinstance(value, Tensor):
        return _ALIGNMENT
    return prod(value.sizes) * value.scalar_type.itemsize + _ALIGNMENT
