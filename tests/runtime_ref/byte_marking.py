"""Who is right about memory, found by marking: every byte of an arena gets the colour of the value that wrote it.

Written from the meaning of programs and without any code of the memory sanitizer, which it is there to check. It
understands programs without jumps and moves, made of kernels with out arguments and of `copy_`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

from exirkit.emit import ExecutionPlan, KernelCall, OptionalTensorList, Tensor, TensorList

# Arena, byte.
Byte = tuple[int, int]


def bytes_of(plan: ExecutionPlan, index: int, elements: int | None = None) -> list[Byte]:
    """Return the bytes of a value, none if it has no place; as many as it has elements now, if that is told."""
    tensor = plan.values[index].val
    if not isinstance(tensor, Tensor) or tensor.allocation_info is None:
        return []
    at = tensor.allocation_info
    nbytes = (prod(tensor.sizes) if elements is None else elements) * tensor.scalar_type.itemsize
    return [(at.memory_id, at.memory_offset + one) for one in range(nbytes)]


def is_right(
    plan: ExecutionPlan,
    *,
    state: Collection[int] = (),
    views: Mapping[int, int] | None = None,
    runs: int = 3,
    elements: Sequence[Mapping[int, int]] | None = None,
) -> bool:
    """Return whether every read of every run sees only bytes that its own value wrote last.

    State counts as read at the end of a run. A kernel must not write where it reads.

    Args:
        plan: One method.
        state: The values that are state.
        views: The value that each view without instruction shows.
        runs: Number of runs.
        elements: For each run the number of elements of values with dynamic shape.
    """
    painter = Marker({"": plan}, {"": state}, {"": views or {}})
    return all(painter.run("", elements[run] if elements is not None else {}) for run in range(runs))


class Marker:
    """Methods that share their arenas.

    Args:
        plans: The methods.
        states: The values of each that are state; their own.
        views: For each method, the value that each view without instruction shows.
    """

    def __init__(
        self,
        plans: Mapping[str, ExecutionPlan],
        states: Mapping[str, Collection[int]],
        views: Mapping[str, Mapping[int, int]],
    ) -> None:
        self._plans = plans
        self._states = states
        self._views = views
        self._name = ""
        self._elements: Mapping[int, int] = {}
        self._colours: dict[Byte, tuple[str, int, int]] = {}
        self._latest: dict[tuple[str, int], tuple[str, int, int]] = {}
        self._count = 0
        for name, state in states.items():
            self._name = name
            for index in state:
                self._write([index])

    def run(self, name: str, elements: Mapping[int, int] | None = None) -> bool:
        """Run one method; return whether all that it reads is right, and all state of all methods afterwards."""
        self._name, self._elements = name, elements or {}
        plan = self._plans[name]
        self._forget_all_but_state()
        for index in plan.inputs:
            self._write([index])
        fine = True
        for reads, writes in _steps(plan):
            taken = {byte for index in reads for byte in self._bytes_of(index)}
            given = {byte for index in writes for byte in self._bytes_of(index)}
            fine &= all(self._owns(index) for index in reads) and not taken & given
            fine &= self._write(writes)
        fine &= all(self._owns(index) for index in plan.outputs)
        for method, state in self._states.items():
            self._name = method
            fine &= all(self._owns(index) for index in state)
        return fine

    def _bytes_of(self, index: int) -> list[Byte]:
        return bytes_of(self._plans[self._name], index, self._elements.get(index))

    def _write(self, indices: Collection[int]) -> bool:
        """Paint values that are written at once; return whether they have no byte in common."""
        places = [byte for index in indices for byte in self._bytes_of(index)]
        for index in indices:
            self._count += 1
            self._latest[self._name, index] = colour = (self._name, index, self._count)
            self._colours.update(dict.fromkeys(self._bytes_of(index), colour))
        return len(places) == len(set(places))

    def _owns(self, index: int) -> bool:
        """Return whether all bytes of a value have the colour of the last write to it."""
        places = self._bytes_of(index)
        latest = self._latest.get((self._name, self._views[self._name].get(index, index)))
        return not places or (latest is not None and all(self._colours.get(byte) == latest for byte in places))

    def _forget_all_but_state(self) -> None:
        self._latest = {key: colour for key, colour in self._latest.items() if key[1] in self._states[key[0]]}
        kept = set(self._latest.values())
        self._colours = {byte: colour for byte, colour in self._colours.items() if colour in kept}


def _steps(plan: ExecutionPlan) -> Iterator[tuple[list[int], list[int]]]:
    for instruction in plan.chains[0].instructions:
        call = instruction.instr_args
        assert isinstance(call, KernelCall)
        if plan.operators[call.op_index].name == "aten::copy_":
            yield [call.args[1]], [call.args[0]]
            continue
        writes = _tensors(plan, call.args[-1])
        yield [one for index in call.args for one in _tensors(plan, index) if one not in writes], writes


def _tensors(plan: ExecutionPlan, index: int) -> list[int]:
    value = plan.values[index].val
    if isinstance(value, TensorList | OptionalTensorList):
        return [one for one in value.items if one >= 0]
    return [index] if isinstance(value, Tensor) else []
