"""In what two program files differ: what they compute, in which order, on which constants, in how much memory.

Values of two files have different numbers after one more instruction at the start, so nothing is compared by number.
Each value is known by a digest of how it was computed instead: inputs by their position, constants by their bytes,
results by operator and arguments. Two methods whose outputs and states have equal digests compute the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from .container import PteFile
from .flatbuffer import Table
from .printer import MethodListing, called_operator, plain, results_of, tensor_type
from .schema import (
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    Instruction,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorList,
    Tensor,
    TensorList,
)

Digest = bytes


@dataclass(frozen=True)
class FirstDifference:
    """The first instruction of each method that the other does not have.

    Attributes:
        first_at: Position in the first method; None if the second has all of its instructions.
        first: The instruction, as `print_program` writes it, with the types of its results.
        second_at: Position in the second method; None if the first has all of its instructions.
        second: The instruction.
    """

    first_at: int | None
    first: str | None
    second_at: int | None
    second: str | None


@dataclass(frozen=True)
class MethodDifference:
    """In what a method differs between two files.

    Attributes:
        name: The method.
        is_same_meaning: Whether its outputs and states are computed in the same way from inputs and constants.
        is_same_order: Whether its instructions are the same ones in the same order.
        inputs: Types of inputs that differ: position, type in the first file, type in the second.
        outputs: The same of outputs.
        operators: Operators that are called another number of times: calls in the first file and in the second.
        instructions: Numbers of instructions.
        arenas: Sizes of arenas in bytes, arena 1 first.
        first_difference: The first instruction that differs, unless all are the same.
        differing_outputs: Positions of outputs that are computed in different ways.
        differing_states: Names of states that are left with different values.
    """

    name: str
    is_same_meaning: bool
    is_same_order: bool
    inputs: tuple[tuple[int, str, str], ...]
    outputs: tuple[tuple[int, str, str], ...]
    operators: Mapping[str, tuple[int, int]]
    instructions: tuple[int, int]
    arenas: tuple[tuple[int, ...], tuple[int, ...]]
    first_difference: FirstDifference | None
    differing_outputs: tuple[int, ...] = ()
    differing_states: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        same = self.arenas[0] == self.arenas[1]
        return same and self.is_same_meaning and self.is_same_order and not self.inputs and not self.outputs


@dataclass(frozen=True)
class ConstantsDifference:
    """Which constants two files share, by their bytes.

    Attributes:
        shared: Number and bytes of those in both.
        only_first: Number and bytes of those in the first file only.
        only_second: Number and bytes of those in the second file only.
    """

    shared: tuple[int, int]
    only_first: tuple[int, int]
    only_second: tuple[int, int]


@dataclass(frozen=True)
class ProgramDifference:
    """In what two program files differ.

    Attributes:
        only_first: Methods of the first file that the second does not have.
        only_second: Methods of the second file that the first does not have.
        methods: The methods of both.
        constants: What became of the constants.
    """

    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    methods: tuple[MethodDifference, ...]
    constants: ConstantsDifference

    @property
    def is_same_meaning(self) -> bool:
        """Whether both have the same methods, which compute the same."""
        return not self.only_first and not self.only_second and all(one.is_same_meaning for one in self.methods)


def compare_programs(first: PteFile, second: PteFile, *, method: str | None = None) -> ProgramDifference:
    """Compare two program files.

    Args:
        first: The file that is taken as the older one.
        second: The other file.
        method: Only this method.

    Returns:
        In what they differ. Results are not calculated: methods of equal meaning give equal results on one runtime;
        methods of different meaning may do so too (`x + x` and `2 * x`).
    """
    plans = [
        {plan.name: plan for plan in file.program.execution_plan if method in (None, plan.name)}
        for file in (first, second)
    ]
    shared = [name for name in plans[0] if name in plans[1]]
    return ProgramDifference(
        only_first=tuple(name for name in plans[0] if name not in plans[1]),
        only_second=tuple(name for name in plans[1] if name not in plans[0]),
        methods=tuple(
            _compare(_Meaning(first, plans[0][name]), _Meaning(second, plans[1][name]), name) for name in shared
        ),
        constants=_compare_constants(_constants(first), _constants(second)),
    )


@dataclass
class _Done:
    """One instruction: what it computes, and how it is written."""

    digest: Digest
    text: str
    label: str


class _Memory:
    """Which write each byte of an arena holds; pieces of writes do not overlap."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        # By the first byte: the end, the first byte of the write that it is a piece of, and the digest of that write.
        self._pieces: dict[int, tuple[int, int, Digest]] = {}

    def write(self, start: int, end: int, digest: Digest) -> None:
        """Note that bytes are overwritten."""
        self._cut(start)
        self._cut(end)
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        for each in self._starts[first:last]:
            del self._pieces[each]
        self._starts[first:last] = [start]
        self._pieces[start] = (end, start, digest)

    def read(self, start: int, end: int) -> Digest:
        """Return the digest of bytes: that of the write if it wrote just these, else that of all pieces."""
        if self._pieces.get(start, (None, None))[:2] == (end, start):
            return self._pieces[start][2]
        parts: list[str | bytes] = []
        at = max(bisect_right(self._starts, start) - 1, 0)
        for first in self._starts[at : bisect_left(self._starts, end)]:
            last, origin, digest = self._pieces[first]
            if last > start:
                parts += [str((max(first, start) - start, min(last, end) - start, max(first, start) - origin)), digest]
        return _digest("memory", *parts)

    def is_written(self, start: int, end: int) -> bool:
        """Return whether one write wrote just these bytes."""
        return self._pieces.get(start, (None, None))[:2] == (end, start)

    def is_touched(self, start: int, end: int) -> bool:
        """Return whether something wrote at least one of these bytes."""
        index = bisect_left(self._starts, end) - 1
        return index >= 0 and self._pieces[self._starts[index]][0] > start

    def _cut(self, at: int) -> None:
        index = bisect_left(self._starts, at) - 1
        if index >= 0:
            start = self._starts[index]
            end, origin, digest = self._pieces[start]
            if end > at:
                self._pieces[start] = (at, origin, digest)
                self._starts.insert(index + 1, at)
                self._pieces[at] = (end, origin, digest)


class _Meaning:
    """What the instructions of a method compute.

    Attributes:
        plan: The method.
        done: The instructions, without those that free memory.
        outputs: Digests of the outputs.
        states: Digests of what states hold in the end, by name.
    """

    def __init__(self, file: PteFile, plan: ExecutionPlan) -> None:
        self.file = file
        self.plan = plan
        self.done: list[_Done] = []
        self._listing = MethodListing(plan, show_meminfo=False)
        self._names = self._listing.names
        # Planned tensors are known by their bytes, since several tensors may show the same ones; others by number.
        self._memory: defaultdict[int, _Memory] = defaultdict(_Memory)
        self._known: dict[int, Digest] = {}
        self._written: set[int] = set(plan.inputs)
        # What a conditional jump has decided so far: a move behind it happens in one of two cases.
        self._decided = b""
        for position, index in enumerate(plan.inputs):
            self._write(index, _digest("input", str(position), self.type_of(index)))
        self._state_indices: dict[str, int] = {}
        for index, value in enumerate(plan.values):
            tensor = value.val
            if isinstance(tensor, Tensor) and tensor.allocation_info is not None and tensor.data_buffer_idx:
                self._add_state(index, tensor, self._stored_digest(tensor))
        for instruction in (each for chain in plan.chains for each in chain.instructions):
            if not isinstance(instruction.instr_args, FreeCall):
                self._execute(instruction)
        self.outputs = [self._value(index) for index in plan.outputs]
        self.states = {name: self._value(index) for name, index in sorted(self._state_indices.items())}

    def type_of(self, index: int) -> str:
        """Return the type of a value as text: `f32[2, 4]`, `Int`."""
        value = self._names.value(index)
        return tensor_type(value) if isinstance(value, Tensor) else type(value).__name__

    def _add_state(self, index: int, tensor: Tensor, start: Digest) -> None:
        extra = tensor.extra_tensor_info
        name = (extra.fully_qualified_name if extra else None) or f"state {len(self._state_indices)}"
        self._state_indices.setdefault(name, index)
        self._write(index, _digest("state", name, self.type_of(index), start))

    def _stored_digest(self, tensor: Tensor) -> Digest:
        """Return the digest of the stored value of a tensor; of the name of one that is in another file."""
        if tensor.external_name is not None:
            return _digest("external", tensor.external_name)
        return blake2b(_stored_bytes(self.file, tensor), digest_size=16).digest()

    def _value(self, index: int) -> Digest:
        """Return the digest of what a value holds now."""
        value = self._names.value(index)
        if isinstance(value, (TensorList, OptionalTensorList, IntList)):
            return _digest("list", *(b"none" if item == -1 else self._item(item) for item in value.items))
        if isinstance(value, Tensor) and (place := _place(value)) is not None:
            arena, start, end = place
            if not self._memory[arena].is_touched(start, end):
                # What is read before anything is written there is a state that the file has no initial value of.
                self._add_state(index, value, b"")
            return _digest(self.type_of(index), self._memory[arena].read(start, end))
        if index not in self._known:
            self._known[index] = self._stored(index, value)
        return self._known[index]

    def _item(self, index: int) -> Digest:
        # A list of lists is in no valid file, and one that contains itself has no end.
        is_list = isinstance(self._names.value(index), (TensorList, OptionalTensorList, IntList))
        return _digest("list in a list") if is_list else self._value(index)

    def _stored(self, index: int, value: Table | None) -> Digest:
        if not isinstance(value, Tensor):
            return _digest(type(value).__name__, "" if value is None else value.model_dump_json())
        if value.allocation_info is None and (value.data_buffer_idx or value.external_name is not None):
            return _digest("constant", self.type_of(index), self._stored_digest(value))
        return _digest("not computed", self.type_of(index))

    def _execute(self, instruction: Instruction) -> None:
        call = instruction.instr_args
        text = self._listing.instruction(instruction)
        if isinstance(call, MoveCall):
            digest = _digest("move", self._value(call.move_from), self._decided)
            label, results = "move", [call.move_to]
        elif isinstance(call, JumpFalseCall):
            distance = call.destination_instruction - len(self.done)
            digest = self._decided = _digest("jump", self._value(call.cond_value_index), str(distance), self._decided)
            label, results = "jump", []
        elif isinstance(call, DelegateCall):
            label, digest, results = self._delegate(call)
        else:
            assert isinstance(call, KernelCall)
            label, digest, results = self._kernel(call)
        types = ", ".join(self.type_of(index) for index in results)
        self.done.append(_Done(digest, f"{text}  # {types}" if types else text, label))
        for number, index in enumerate(results):
            self._write(index, _digest(digest, str(number)))

    def _kernel(self, call: KernelCall) -> tuple[str, Digest, list[int]]:
        name = called_operator(self.plan, call)
        results = results_of(self._names, call)
        if results:
            start = len(call.args) - 1 - len(results)
            arguments = call.args[:start] if call.args[start:-1] == results else call.args[:-1]
        else:
            arguments, results = call.args[:-1], call.args[-1:]
        results = [item for index in results for item in self._listed(index)]
        types = [self.type_of(index) for index in results]
        return name, _digest("call", name, *map(self._value, arguments), *types), results

    def _listed(self, index: int) -> list[int]:
        """Return the tensors of a list of results, or the result."""
        value = self._names.value(index)
        return value.items if isinstance(value, TensorList) else [index]

    def _delegate(self, call: DelegateCall) -> tuple[str, Digest, list[int]]:
        if not 0 <= call.delegate_index < len(self.plan.delegates):
            return "delegate", _digest("delegate", str(call.delegate_index)), []
        delegate = self.plan.delegates[call.delegate_index]
        payload = blake2b(self.file.delegate_payload(delegate), digest_size=16).digest()
        specs = [part for spec in delegate.compile_specs for part in (spec.key, bytes(spec.value))]
        # The file does not say which arguments are results: the last ones that nothing has written under their numbers.
        # One of them may be an input that shows the bytes of another tensor, so such bytes count as an argument too.
        count = next((at for at, index in enumerate(reversed(call.args)) if not self._is_new(index)), len(call.args))
        results = call.args[len(call.args) - count :]
        arguments = [index for index in call.args if index not in results or self._shows_result(index)]
        types = [self.type_of(index) for index in results]
        digest = _digest(delegate.id, payload, *specs, *map(self._value, arguments), *types)
        return f"delegate {delegate.id}", digest, results

    def _is_new(self, index: int) -> bool:
        value = self._names.value(index)
        is_stored = isinstance(value, Tensor) and (value.data_buffer_idx > 0 or value.external_name is not None)
        return isinstance(value, Tensor) and not is_stored and index not in self._written

    def _shows_result(self, index: int) -> bool:
        """Return whether one write wrote just the bytes of a value."""
        value = self._names.value(index)
        place = _place(value) if isinstance(value, Tensor) else None
        return place is not None and self._memory[place[0]].is_written(*place[1:])

    def _write(self, index: int, digest: Digest) -> None:
        value = self._names.value(index)
        self._written.add(index)
        if isinstance(value, Tensor) and (place := _place(value)) is not None:
            arena, start, end = place
            self._memory[arena].write(start, end, digest)
        else:
            self._known[index] = digest


def _place(tensor: Tensor) -> tuple[int, int, int] | None:
    """Return the arena, first byte and end of a planned tensor; None if it has no bytes that others could show."""
    if tensor.allocation_info is None or not tensor.nbytes:
        return None
    start = tensor.allocation_info.memory_offset
    return tensor.allocation_info.memory_id, start, start + tensor.nbytes


def _compare(first: _Meaning, second: _Meaning, name: str) -> MethodDifference:
    sides = (first, second)
    # A digest says how a value is computed, whatever state or output it is.
    states = sorted(key for key in {**first.states, **second.states} if first.states.get(key) != second.states.get(key))
    outputs = [at for at, (one, two) in enumerate(zip(first.outputs, second.outputs, strict=False)) if one != two]
    outputs += range(*sorted((len(first.outputs), len(second.outputs))))
    orders = [[one.digest for one in side.done] for side in sides]
    calls = [Counter(one.label for one in side.done) for side in sides]
    return MethodDifference(
        name=name,
        is_same_meaning=not states and not outputs,
        is_same_order=orders[0] == orders[1],
        inputs=tuple(_types([_types_of(side, side.plan.inputs) for side in sides])),
        outputs=tuple(_types([_types_of(side, side.plan.outputs) for side in sides])),
        operators={
            each: (calls[0][each], calls[1][each])
            for each in sorted({**calls[0], **calls[1]})
            if calls[0][each] != calls[1][each]
        },
        instructions=(len(first.done), len(second.done)),
        arenas=(tuple(first.plan.non_const_buffer_sizes[1:]), tuple(second.plan.non_const_buffer_sizes[1:])),
        first_difference=_first_difference(first.done, second.done),
        differing_outputs=tuple(outputs),
        differing_states=tuple(map(plain, states)),
    )


def _first_difference(first: Sequence[_Done], second: Sequence[_Done]) -> FirstDifference | None:
    digests = [{one.digest for one in side} for side in (first, second)]
    at = [
        next((number for number, one in enumerate(mine) if one.digest not in others), None)
        for mine, others in ((first, digests[1]), (second, digests[0]))
    ]
    if at == [None, None]:
        return None
    texts = [None if number is None else side[number].text for number, side in zip(at, (first, second), strict=True)]
    return FirstDifference(at[0], texts[0], at[1], texts[1])


def _types_of(side: _Meaning, indices: Sequence[int]) -> list[str]:
    return [side.type_of(index) for index in indices]


def _types(sides: Sequence[Sequence[str]]) -> Iterator[tuple[int, str, str]]:
    for position in range(max(map(len, sides))):
        one, two = (side[position] if position < len(side) else "not there" for side in sides)
        if one != two:
            yield position, one, two


def _constants(file: PteFile) -> dict[Digest, int]:
    """Return the sizes of all constants and initial values of a file, by their bytes."""
    found: dict[Digest, int] = {}
    tensors = [value.val for plan in file.program.execution_plan for value in plan.values]
    for tensor in tensors:
        if isinstance(tensor, Tensor) and tensor.data_buffer_idx and tensor.external_name is None:
            data = _stored_bytes(file, tensor)
            found[blake2b(data, digest_size=16).digest()] = len(data)
    return found


def _stored_bytes(file: PteFile, tensor: Tensor) -> bytes | memoryview:
    """Return the constant, or the initial value, that a tensor shows."""
    if tensor.allocation_info is None:
        return file.constant(tensor.data_buffer_idx, tensor.nbytes)
    segment = tensor.extra_tensor_info.mutable_data_segments_idx if tensor.extra_tensor_info else 0
    return file.mutable_data(tensor.data_buffer_idx, tensor.nbytes, segment=segment)


def _compare_constants(first: Mapping[Digest, int], second: Mapping[Digest, int]) -> ConstantsDifference:
    def total(sizes: Iterable[int]) -> tuple[int, int]:
        listed = list(sizes)
        return len(listed), sum(listed)

    return ConstantsDifference(
        shared=total(size for digest, size in first.items() if digest in second),
        only_first=total(size for digest, size in first.items() if digest not in second),
        only_second=total(size for digest, size in second.items() if digest not in first),
    )


def _digest(*parts: str | bytes) -> Digest:
    made = blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        # With their lengths, so that no two sequences of parts are the same bytes.
        made.update(len(data).to_bytes(8, "little"))
        made.update(data)
    return made.digest()
