"""Static checks of a plan: tensors and lists of its value table first, then instructions against kernels' schemas.

Findings are listed up to a limit, so that a malformed file cannot make the report itself large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Final

from exirkit.emit import (
    Bool,
    DelegateCall,
    DeviceType,
    Double,
    ExecutionPlan,
    FreeCall,
    Instruction,
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorList,
    PteFile,
    Tensor,
    TensorLayout,
    TensorList,
)
from exirkit.runtime_ref.kernels.kernel import SCALAR_KINDS, Kernel, KernelKind, Slot
from exirkit.runtime_ref.limits import Findings, Limits

if TYPE_CHECKING:
    from exirkit.runtime_ref.backends import LoadedDelegate
    from exirkit.runtime_ref.kernels.registry import OperatorRegistry


# What the items of a list name, and the least item.
_LISTS: Final[dict[type, tuple[type, int]]] = {
    IntList: (Int, 0),
    TensorList: (Tensor, 0),
    OptionalTensorList: (Tensor, -1),
}


def check_values(
    file: PteFile, plan: ExecutionPlan, findings: Findings, limits: Limits, *, needs_data: bool = True
) -> None:
    """Check every value of a plan by itself, and the arenas that tensors are placed in.

    Args:
        file: The program and its data.
        plan: The method.
        findings: Take what is found.
        limits: How large things may be.
        needs_data: Whether data that is to be in another file has to be there.
    """
    _check_arenas(plan, findings, limits)
    kinds = [type(entry.val) for entry in plan.values]
    for index, kind in enumerate(kinds):
        if findings.full:
            return
        if kind in _LISTS:
            wanted, lowest = _LISTS[kind]
            listed: Any = plan.values[index].val
            _check_items(listed.items, kinds, wanted, findings, index, lowest=lowest)
        elif kind is Tensor:
            tensor: Any = plan.values[index].val
            _TensorCheck(file, plan, findings, limits, index, tensor, needs_data).run()


def is_constant(tensor: Tensor) -> bool:
    """Return whether the tensor shows read-only data of the file, or of another file."""
    return tensor.allocation_info is None and (tensor.data_buffer_idx > 0 or is_external(tensor))


def is_external(tensor: Tensor) -> bool:
    """Return whether the data of the tensor is found by its name."""
    return tensor.external_name is not None


def extent_nbytes(tensor: Tensor) -> int:
    """Return how many bytes from the start of its memory the data of a tensor reaches."""
    elements = prod(tensor.sizes)
    return (tensor.storage_offset + elements) * tensor.scalar_type.itemsize if elements else 0


def _check_arenas(plan: ExecutionPlan, findings: Findings, limits: Limits) -> None:
    sizes = plan.non_const_buffer_sizes
    negative = [number for number, size in enumerate(sizes) if size < 0]
    for number in negative:
        findings.add("EK617", f"arena {number} has a size of {sizes[number]} bytes", expected="0 or more")
    if not negative and sum(sizes[1:]) > limits.arena_nbytes:
        findings.add(
            "EK617",
            f"the arenas take {sum(sizes[1:])} bytes",
            expected=f"at most {limits.arena_nbytes} bytes",
            hint="load with a larger `Limits.arena_nbytes` if the program is meant to be that large",
        )
    for place in plan.non_const_buffer_device or ():
        if place.device_type is not DeviceType.CPU:
            message = f"arena {place.buffer_idx} is on device {place.device_type.name}"
            findings.add("EK618", message, expected="CPU, the only device of this runtime")


def _check_items(
    items: Sequence[int], kinds: Sequence[type], wanted: type, findings: Findings, index: int, *, lowest: int
) -> None:
    count = len(kinds)
    for item in items:
        if lowest <= item < count and (item == -1 or kinds[item] is wanted):
            continue
        found = f"value {item}, a {kinds[item].__name__}" if 0 <= item < count else f"value {item}"
        findings.add(
            "EK603",
            f"the list of value {index} names {found}",
            at=f"value {index}",
            expected=f"index of a {wanted.__name__} among {count} values" + (" or -1" if lowest else ""),
        )
        return


@dataclass(frozen=True)
class _TensorCheck:
    """The rules that one tensor value must keep."""

    _file: PteFile
    _plan: ExecutionPlan
    _findings: Findings
    _limits: Limits
    _index: int
    _tensor: Tensor
    _needs_data: bool

    def run(self) -> None:
        """Check shape and layout first: places in memory mean nothing before those hold."""
        if not self._has_shape():
            return
        self._check_features()
        tensor = self._tensor
        if tensor.allocation_info is not None:
            self._check_place()
        if is_external(tensor):
            self._check_external()
        elif tensor.data_buffer_idx > 0:
            self._check_data()

    def _add(self, code: str, message: str, expected: str | None = None) -> None:
        self._findings.add(code, message, at=f"value {self._index}", expected=expected)

    def _has_shape(self) -> bool:
        tensor, limits = self._tensor, self._limits
        sizes = tensor.sizes
        if len(sizes) > limits.dimensions or (sizes and min(sizes) < 0):
            expected = f"at most {limits.dimensions} dimensions of 0 or more"
            self._add("EK611", f"a tensor has the sizes {_brief(sizes)}", expected)
            return False
        if sorted(tensor.dim_order) != list(range(len(sizes))):
            self._add(
                "EK610",
                f"dim order {_brief(tensor.dim_order)} is not a permutation of {len(sizes)} dimensions",
                f"each of {list(range(len(sizes)))} once",
            )
            return False
        # A dimension of size 0 counts as 1 in the strides, which must not overflow either.
        reach = (tensor.storage_offset + prod(size or 1 for size in sizes)) * tensor.scalar_type.itemsize
        if tensor.storage_offset < 0 or reach > limits.arena_nbytes:
            self._add(
                "EK611",
                f"a tensor of sizes {_brief(sizes)} at storage offset {tensor.storage_offset} takes {reach} bytes",
                f"storage offset of 0 or more, at most {limits.arena_nbytes} bytes",
            )
            return False
        return True

    def _check_features(self) -> None:
        tensor = self._tensor
        if not tensor.scalar_type.is_plain:
            self._add("EK618", f"element type {tensor.scalar_type.name} cannot be computed with")
        if tensor.layout != 0:
            self._add("EK618", f"layout {tensor.layout} is not supported", "0, strided")
        extra = tensor.extra_tensor_info
        if extra is not None and extra.device_type is not DeviceType.CPU:
            self._add("EK618", f"a tensor is on device {extra.device_type.name}", "CPU")

    def _check_place(self) -> None:
        tensor, sizes = self._tensor, self._plan.non_const_buffer_sizes
        place = tensor.allocation_info
        assert place is not None
        if not 1 <= place.memory_id < len(sizes):
            self._add("EK607", f"a tensor is in arena {place.memory_id}", f"1 to {len(sizes) - 1}")
            return
        itemsize = tensor.scalar_type.itemsize
        end = place.memory_offset + extent_nbytes(tensor)
        # A negative size is a finding of its own.
        if end > sizes[place.memory_id] >= 0:
            self._add(
                "EK608",
                f"a tensor takes bytes {place.memory_offset} to {end} of arena {place.memory_id}",
                f"end at most {sizes[place.memory_id]}, the size of the arena",
            )
        elif place.memory_offset % itemsize:
            self._add(
                "EK609",
                f"offset {place.memory_offset} of a tensor is not a multiple of its element size",
                f"a multiple of {itemsize}",
            )

    def _check_data(self) -> None:
        tensor = self._tensor
        extra = tensor.extra_tensor_info
        program = self._file.program
        if tensor.allocation_info is None:
            what, offsets = "constant", program.constant_segment.offsets
            count = len(offsets) or len(program.constant_buffer)
        else:
            what = "initial value"
            number = extra.mutable_data_segments_idx if extra is not None else 0
            segments = program.mutable_data_segments or []
            if number >= len(segments):
                self._add("EK623", f"mutable data segment {number} does not exist", f"one of {len(segments)}")
                return
            offsets = segments[number].offsets
            count = len(offsets)
        index = tensor.data_buffer_idx
        if index >= count:
            self._add("EK612", f"there is no {what} {index}", f"less than {count}")
        elif offsets and offsets[index] % tensor.scalar_type.itemsize and what == "constant":
            expected = f"a multiple of {tensor.scalar_type.itemsize}"
            self._add("EK609", f"{what} {index} starts at byte {offsets[index]} of its segment", expected)
        else:
            self._check_data_nbytes(what)

    def _check_data_nbytes(self, what: str) -> None:
        tensor = self._tensor
        needed, available = extent_nbytes(tensor), len(data_of(self._file, tensor))
        if available < needed:
            message = f"{what} {tensor.data_buffer_idx} has {available} bytes"
            self._add("EK613", message, f"at least {needed} bytes for sizes {_brief(tensor.sizes)}")

    def _check_external(self) -> None:
        tensor = self._tensor
        name = tensor.extra_tensor_info.fully_qualified_name if tensor.extra_tensor_info else None
        if name is None or not self._file.has_named_data(name):
            if name is None or self._needs_data:
                expected = "an entry of this name in a data file that is given"
                self._add("EK619", f"the data of {name!r} is in another file", expected)
            return
        file = self._file.data_file_of(name)
        if file is not None and not self._has_layout(name, file.layout(name)):
            return
        available = len(self._file.named_data(name))
        if available < extent_nbytes(tensor):
            message = f"named data {name!r} has {available} bytes"
            self._add("EK613", message, f"at least {extent_nbytes(tensor)} bytes")

    def _has_layout(self, name: str, found: TensorLayout | None) -> bool:
        tensor = self._tensor
        if found is None:
            self._add("EK629", f"{name!r} is a blob in the data file", "a tensor")
            return False
        pairs = (
            ("element type", found.scalar_type.name, tensor.scalar_type.name),
            ("sizes", _brief(found.sizes), _brief(tensor.sizes)),
            ("dim order", _brief(found.dim_order), _brief(tensor.dim_order)),
        )
        for what, here, wanted in pairs:
            if here != wanted:
                self._add("EK629", f"{name!r} has {what} {here} in the data file", f"{wanted}, as the program says")
                return False
        return True


def missing_data(file: PteFile, plan: ExecutionPlan) -> list[str]:
    """Return the names of the tensors of a method whose data is in files that are not there, each once."""
    tensors = (entry.val for entry in plan.values if isinstance(entry.val, Tensor) and is_external(entry.val))
    extras = (tensor.extra_tensor_info for tensor in tensors)
    names = dict.fromkeys(extra.fully_qualified_name or "" for extra in extras if extra is not None)
    return [name for name in names if not file.has_named_data(name)]


def data_of(file: PteFile, tensor: Tensor) -> memoryview:
    """Return the bytes of a constant, or the initial ones of a buffer; padding behind them may be included.

    Requires: the indices of the tensor have been checked; the reader has checked the offsets.
    """
    extra = tensor.extra_tensor_info
    if extra is not None and is_external(tensor):
        return file.named_data(extra.fully_qualified_name or "")
    if tensor.allocation_info is None:
        return file.constant(tensor.data_buffer_idx)
    segment = extra.mutable_data_segments_idx if extra is not None else 0
    return file.mutable_data(tensor.data_buffer_idx, segment=segment)


def _brief(items: Sequence[int]) -> str:
    """Return a list as text, shortened if a malformed file made it long."""
    return str(list(items)) if len(items) <= 16 else f"[{', '.join(map(str, items[:16]))}, ... {len(items)} in all]"


def numbered(plan: ExecutionPlan) -> Iterator[tuple[int, Instruction, int]]:
    """Yield number within the plan, instruction, and number of instructions of its chain."""
    number = 0
    for chain in plan.chains:
        for instruction in chain.instructions:
            yield number, instruction, len(chain.instructions)
            number += 1


def check_indices(plan: ExecutionPlan, kernels: Sequence[Kernel | None], findings: Findings) -> None:
    """Check that instructions, inputs and outputs name values, operators and places that exist."""
    count = len(plan.values)
    for what, listed in (("input", plan.inputs), ("output", plan.outputs)):
        for position, index in enumerate(listed):
            if not 0 <= index < count:
                place, legal = f"{what} {position}", f"0 to {count - 1}" if count else "no values"
                findings.add("EK601", f"{place} is value {index}", expected=legal, at=place)
    for number, instruction, length in numbered(plan):
        if findings.full:
            return
        _IndexCheck(plan, kernels, findings, number).run(instruction, length)


class _IndexCheck:
    """The indices of one instruction."""

    def __init__(self, plan: ExecutionPlan, kernels: Sequence[Kernel | None], findings: Findings, number: int) -> None:
        self._plan = plan
        self._kernels = kernels
        self._findings = findings
        self._at = f"instruction {number}"

    def run(self, instruction: Instruction, length: int) -> None:
        """Check by kind; the reader has made sure that there is no other kind."""
        step = instruction.instr_args
        if isinstance(step, KernelCall):
            self._values(step.args)
            self._kernel_call(step)
        elif isinstance(step, DelegateCall):
            self._values(step.args)
            if not 0 <= step.delegate_index < len(self._plan.delegates):
                self._add("EK605", f"there is no delegate {step.delegate_index}", len(self._plan.delegates))
        elif isinstance(step, MoveCall):
            self._values((step.move_from, step.move_to))
        elif isinstance(step, JumpFalseCall):
            self._values((step.cond_value_index,))
            # One past the last instruction is a legal place to jump to: the end.
            if not 0 <= step.destination_instruction <= length:
                self._add("EK606", f"a jump leads to instruction {step.destination_instruction}", length + 1)
        else:
            self._values((step.value_index,))

    def _values(self, indices: Sequence[int]) -> None:
        count = len(self._plan.values)
        for index in indices:
            if not 0 <= index < count:
                self._add("EK601", f"there is no value {index}", count)
                return

    def _kernel_call(self, call: KernelCall) -> None:
        if not 0 <= call.op_index < len(self._kernels):
            self._add("EK604", f"there is no operator {call.op_index}", len(self._kernels))
            return
        kernel = self._kernels[call.op_index]
        if kernel is None:
            return
        least = len(kernel.slots) + kernel.tail
        if len(call.args) < least:
            self._findings.add(
                "EK615",
                f"{kernel.name} is called with {len(call.args)} values",
                at=self._at,
                expected=f"{len(kernel.slots)} arguments and {kernel.tail} result",
            )

    def _add(self, code: str, message: str, count: int) -> None:
        expected = f"0 to {count - 1}" if count else "none: there are none"
        self._findings.add(code, message, at=self._at, expected=expected)


def check_kinds(plan: ExecutionPlan, facts: PlanFacts, findings: Findings) -> None:
    """Check that values have the kinds that their uses need.

    Requires: `check_indices` found nothing.
    """
    check = _KindCheck(plan, facts, findings)
    for number, instruction, _ in numbered(plan):
        if findings.full:
            return
        check.run(number, instruction)


class _KindCheck:
    """The kinds of values in one plan."""

    def __init__(self, plan: ExecutionPlan, facts: PlanFacts, findings: Findings) -> None:
        self._plan = plan
        self._facts = facts
        self._findings = findings
        self._kinds = [type(entry.val) for entry in plan.values]
        self._number = 0

    def run(self, number: int, instruction: Instruction) -> None:
        """Check one instruction."""
        self._number = number
        step = instruction.instr_args
        if isinstance(step, KernelCall):
            kernel = self._facts.kernels[step.op_index]
            if kernel is not None:
                self._arguments(kernel, step.args)
                self._results(kernel, step.args)
        elif isinstance(step, MoveCall):
            self._move(step)
        elif isinstance(step, JumpFalseCall):
            condition = step.cond_value_index
            if condition not in self._facts.numbers:
                self._kind(condition, (Bool, Tensor), "the condition of a jump")
        elif isinstance(step, FreeCall) and self._kind(step.value_index, (Tensor,), "what is freed"):
            tensor = self._plan.values[step.value_index].val
            if isinstance(tensor, Tensor) and tensor.allocation_info is not None:
                self._add("EK626", f"value {step.value_index} is freed but has a planned place")

    def _arguments(self, kernel: Kernel, args: Sequence[int]) -> None:
        for slot, index in zip(kernel.slots, args, strict=False):
            kind = self._kinds[index]
            if kind in slot.accepts:
                if slot.decode is not None and kind is Int:
                    self._decodes(kernel, slot, index)
            elif not (slot.takes_scalar and index in self._facts.numbers):
                self._kind(index, slot.accepts, f"argument {slot.name} of {kernel.name}")

    def _decodes(self, kernel: Kernel, slot: Slot, index: int) -> None:
        value = self._plan.values[index].val
        assert slot.decode is not None
        if index in self._facts.numbers or not isinstance(value, Int):
            return
        try:
            slot.decode(value.int_val)
        except ValueError as error:
            self._add("EK602", f"argument {slot.name} of {kernel.name} is value {index}, {value.int_val}: {error}")

    def _results(self, kernel: Kernel, args: Sequence[int]) -> None:
        results = args[len(kernel.slots) :]
        if kernel.kind is KernelKind.OUT:
            outs = [tensor for place in kernel.outs for tensor in tensors_in(self._plan, args[place])]
            named = [tensor for index in results for tensor in tensors_in(self._plan, index)]
            if outs != named:
                expected = f"the out arguments, {outs}"
                self._add("EK622", f"{kernel.name} names the results {list(results)}, tensors {named}", expected)
        elif kernel.kind is KernelKind.IN_PLACE:
            for index in results:
                self._kind(index, (Tensor,), f"the result of {kernel.name}")
        elif kernel.kind is KernelKind.VALUE:
            wanted = SCALAR_KINDS
            if kernel.returns_tensor:
                wanted = (TensorList,) if kernel.returns > 1 else (Tensor,)
            for index in results:
                self._kind(index, wanted, f"the result of {kernel.name}")

    def _move(self, step: MoveCall) -> None:
        source, target = step.move_from, step.move_to
        if self._kind(source, (Tensor, *SCALAR_KINDS), "what is moved"):
            wanted = (Tensor,) if self._kinds[source] is Tensor else SCALAR_KINDS
            self._kind(target, wanted, f"where value {source} is moved")

    def _kind(self, index: int, wanted: tuple[type, ...], what: str) -> bool:
        if self._kinds[index] in wanted:
            return True
        names = " or ".join(kind.__name__ for kind in wanted) or "None"
        self._add("EK602", f"{what} is value {index}, a {self._kinds[index].__name__}", names)
        return False

    def _add(self, code: str, message: str, expected: str | None = None) -> None:
        self._findings.add(code, message, at=f"instruction {self._number}", expected=expected)


# In characters; the longest names of torch have a hundred.
_LONGEST_NAME: Final = 1000


@dataclass
class PlanFacts:
    """Facts about one plan whose indices are in range.

    Attributes:
        kernels: The kernel of each operator of the plan, None where there is none.
        numbers: Values that receive a number when the program runs, so that their stored kind is a placeholder.
        handles: Pairs (source, target): the target value becomes the same tensor as the source.
        written: Pairs (value, instruction): a kernel writes to the memory of that tensor.
        rebound: Values that may become another tensor or number while the program runs.
        reshown: Tensors that may come to show other memory, or none.
        delegates: The delegates of the plan, once they are loaded.
    """

    kernels: Sequence[Kernel | None]
    numbers: set[int] = field(default_factory=set)
    handles: list[tuple[int, int]] = field(default_factory=list)
    written: list[tuple[int, int]] = field(default_factory=list)
    rebound: set[int] = field(default_factory=set)
    reshown: set[int] = field(default_factory=set)
    delegates: Sequence[LoadedDelegate] = ()

    def may_become(self, sources: Iterable[int]) -> set[int]:
        """Return the values that may at some time be one of the tensors `sources`, these included."""
        return _closure(sources, self.handles)

    def may_have_been(self, targets: Iterable[int]) -> set[int]:
        """Return the values whose tensor may at some time be that of one of `targets`, these included."""
        return _closure(targets, [(target, source) for source, target in self.handles])


def resolve_operators(plan: ExecutionPlan, registry: OperatorRegistry) -> list[Kernel | None]:
    """Return the kernel of each operator of the plan, or None for those that are not registered."""
    return [
        # A name that is as long as the file, in every operator, would be copied and looked up as often.
        registry.find(operator_name(plan, index)) if len(one.name) + len(one.overload) < _LONGEST_NAME else None
        for index, one in enumerate(plan.operators)
    ]


def operator_name(plan: ExecutionPlan, index: int) -> str:
    """Return the name of operator `index` with its overload, `aten::add.out`."""
    operator = plan.operators[index]
    return f"{operator.name}.{operator.overload}" if operator.overload else operator.name


def gather_facts(plan: ExecutionPlan, kernels: Sequence[Kernel | None]) -> PlanFacts:
    """Return the facts about a plan.

    Requires: indices of values and operators are in range and every call has at least the arguments of its kernel.
    """
    facts = PlanFacts(kernels)
    facts.reshown.update(_unplanned_inputs(plan))
    # Delegates that are programs are handed numbers that vary.
    facts.rebound.update(index for index in plan.inputs if isinstance(plan.values[index].val, Int | Double | Bool))
    number = 0
    for chain in plan.chains:
        for instruction in chain.instructions:
            step = instruction.instr_args
            if isinstance(step, KernelCall):
                kernel = kernels[step.op_index]
                if kernel is not None:
                    _gather_call(plan, facts, number, kernel, step.args)
            elif isinstance(step, MoveCall):
                facts.rebound.add(step.move_to)
                if isinstance(plan.values[step.move_from].val, Tensor):
                    facts.handles.append((step.move_from, step.move_to))
                else:
                    facts.numbers.add(step.move_to)
            elif isinstance(step, FreeCall):
                facts.reshown.add(step.value_index)
            number += 1
    facts.reshown = facts.may_have_been(facts.reshown)
    return facts


def tensors_in(plan: ExecutionPlan, index: int) -> Iterator[int]:
    """Yield the tensors that a value is or lists."""
    value = plan.values[index].val
    if isinstance(value, Tensor):
        yield index
    elif isinstance(value, TensorList | OptionalTensorList):
        yield from (item for item in value.items if item >= 0)


def _unplanned_inputs(plan: ExecutionPlan) -> Iterator[int]:
    """Yield the inputs that show the caller's own memory."""
    for index in plan.inputs:
        value = plan.values[index].val
        if isinstance(value, Tensor) and value.allocation_info is None:
            yield index


def _gather_call(plan: ExecutionPlan, facts: PlanFacts, number: int, kernel: Kernel, args: Sequence[int]) -> None:
    for place, slot in enumerate(kernel.slots):
        if slot.is_written:
            facts.written += [(index, number) for index in tensors_in(plan, args[place])]
    results = args[len(kernel.slots) :]
    if kernel.kind is KernelKind.VALUE:
        if not kernel.returns_tensor:
            facts.numbers.update(results)
            facts.rebound.update(results)
    elif kernel.kind is KernelKind.IN_PLACE:
        facts.rebound.update(result for result in results if result != args[0])
        facts.handles += [(args[0], result) for result in results if result != args[0]]
    elif kernel.name == "executorch_prim::et_view.default":
        facts.reshown.add(args[2])
        facts.handles.append((args[0], args[2]))


def _closure(start: Iterable[int], edges: Sequence[tuple[int, int]]) -> set[int]:
    following: dict[int, list[int]] = {}
    for source, target in edges:
        following.setdefault(source, []).append(target)
    reached = set(start)
    waiting = list(reached) if following else []
    while waiting:
        for target in following.get(waiting.pop(), ()):
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    return reached
