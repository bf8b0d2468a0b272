"""Listings of programs: by default a line per tensor and instruction; the long form has every field of every table."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Sequence
from enum import IntEnum
from typing import Final, TextIO

from exirkit.ir import TensorShapeDynamism

from .flatbuffer import Table
from .schema import (
    Bool,
    BoolList,
    Chain,
    DataLocation,
    DelegateCall,
    DeviceType,
    Double,
    DoubleList,
    EValue,
    ExecutionPlan,
    FreeCall,
    Instruction,
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorList,
    Program,
    ScalarType,
    String,
    Tensor,
    TensorList,
)

# Longer lists and texts are cut short.
_SHOWN_ITEMS: Final = 16
_SHOWN_CHARACTERS: Final = 60
_LONGEST_NAME: Final = 200

_SHORT_DTYPES: Final = {
    ScalarType.BYTE: "u8",
    ScalarType.CHAR: "i8",
    ScalarType.SHORT: "i16",
    ScalarType.INT: "i32",
    ScalarType.LONG: "i64",
    ScalarType.HALF: "f16",
    ScalarType.FLOAT: "f32",
    ScalarType.DOUBLE: "f64",
    ScalarType.BFLOAT16: "bf16",
    ScalarType.FLOAT8E5M2: "f8e5m2",
    ScalarType.FLOAT8E4M3FN: "f8e4m3fn",
    ScalarType.FLOAT8E5M2FNUZ: "f8e5m2fnuz",
    ScalarType.FLOAT8E4M3FNUZ: "f8e4m3fnuz",
    ScalarType.UINT16: "u16",
    ScalarType.UINT32: "u32",
    ScalarType.UINT64: "u64",
}


class ValueNames:
    """Names and literals of the values of one plan; an index that leads nowhere is written `%7?`.

    Attributes:
        values: The values of the plan.
        variables: Values that may change while the program runs, so that their content says little.
    """

    def __init__(self, values: Sequence[EValue], variables: Collection[int] = ()) -> None:
        self.values = values
        self.variables = variables

    def value(self, index: int) -> Table | None:
        """Return a value, or `None` if there is none of that index."""
        return self.values[index].val if 0 <= index < len(self.values) else None

    def name(self, index: int) -> str:
        """Return the name of a value: `%7`."""
        return f"%{index}" if 0 <= index < len(self.values) else f"%{index}?"

    def names(self, indices: Sequence[int]) -> str:
        """Return the names of several values."""
        return ", ".join(self.name(index) for index in indices)

    def argument(self, index: int) -> str:
        """Return a value as an argument: a name if it is a tensor or may change, else what it is."""
        return self.name(index) if index in self.variables else self.literal(index)

    def arguments(self, indices: Sequence[int]) -> str:
        """Return several values as arguments."""
        return ", ".join(self.argument(index) for index in indices)

    def literal(self, index: int) -> str:
        """Return what a value is; a tensor is its name."""
        value = self.value(index)
        if value is None or isinstance(value, Tensor):
            return self.name(index)
        if isinstance(value, String):
            return quoted(value.string_val)
        if isinstance(value, Int):
            return str(value.int_val)
        if isinstance(value, Bool):
            return str(value.bool_val)
        if isinstance(value, Double):
            return repr(value.double_val)
        return self._list(value)

    def _list(self, value: Table) -> str:
        if isinstance(value, (DoubleList, BoolList)):
            return _listing([str(item) for item in value.items[:_SHOWN_ITEMS]], len(value.items))
        if isinstance(value, IntList):
            return _listing([self._boxed(item) for item in value.items[:_SHOWN_ITEMS]], len(value.items))
        if isinstance(value, (TensorList, OptionalTensorList)):
            shown = ["None" if item == -1 else self.name(item) for item in value.items[:_SHOWN_ITEMS]]
            return _listing(shown, len(value.items))
        return "None"

    def _boxed(self, index: int) -> str:
        # Not `argument`: in a file that was not checked a list may contain itself.
        value = self.value(index)
        known = isinstance(value, Int) and index not in self.variables
        return str(value.int_val) if known and isinstance(value, Int) else self.name(index)


def tensor_type(tensor: Tensor) -> str:
    """Return dtype and shape: `f32[2, 4]`, with the dim order unless contiguous, and what is not static."""
    scalar_type = tensor.scalar_type
    text = f"{_SHORT_DTYPES.get(scalar_type, scalar_type.name.lower())}{tensor.sizes}"
    if tensor.dim_order != list(range(len(tensor.sizes))):
        text += f" dim order {tuple(tensor.dim_order)}"
    if tensor.shape_dynamism is not TensorShapeDynamism.STATIC:
        text += f" {tensor.shape_dynamism.name.lower().replace('_', ' ')}"
    return text


def quoted(text: str) -> str:
    """Return a text in quotes, on one line, cut short if it is long."""
    line = json.dumps(text[:_SHOWN_CHARACTERS])
    return line if len(line) <= _SHOWN_CHARACTERS else f'{line[: _SHOWN_CHARACTERS - 4]}..."'


def plain(name: str) -> str:
    """Return a name as it is, unless it is not a name: very long, or with what a terminal would obey."""
    return name if len(name) <= _LONGEST_NAME and name.isprintable() else quoted(name)


def _listing(items: list[str], count: int) -> str:
    more = [f"... {count} in all"] if count > len(items) else []
    return f"[{', '.join(items + more)}]"


def print_program(
    program: Program, *, verbose: bool = False, show_meminfo: bool = True, out: TextIO | None = None
) -> None:
    """Print a program, in the form of a file or of memory.

    The listing reads any well-formed program, also one that cannot run: an index that leads nowhere is printed as
    `%7?`.

    Args:
        program: The program.
        verbose: Print every field of every table instead of the condensed listing.
        show_meminfo: Print the arenas and the place of each tensor in them, in bytes.
        out: Where to print; standard output by default.
    """
    stream = sys.stdout if out is None else out
    for line in format_program(program, verbose=verbose, show_meminfo=show_meminfo):
        stream.write(line + "\n")


def format_program(program: Program, *, verbose: bool = False, show_meminfo: bool = True) -> Iterator[str]:
    """Yield the lines that `print_program` prints."""
    if verbose:
        yield "Program"
        yield from verbose_lines(program, 1)
        return
    yield _summary(program)
    for plan in program.execution_plan:
        yield ""
        yield from MethodListing(plan, show_meminfo).lines()


def _summary(program: Program) -> str:
    constants = max(len(program.constant_segment.offsets), len(program.constant_buffer)) - 1
    in_segments = sum(segment.size for segment in program.segments)
    inline = sum(len(buffer.storage) for buffer in program.constant_buffer)
    inline += sum(len(payload.data) for payload in program.backend_delegate_data)
    counts = [
        _count(len(program.execution_plan), "method"),
        _count(max(constants, 0), "constant"),
        _count(len(program.named_data or []), "named blob"),
        f"{inline + in_segments} bytes of data",
    ]
    return f"program of version {program.version}: {', '.join(counts)}"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


class MethodListing:
    """The condensed listing of one plan.

    Attributes:
        plan: The plan.
        show_meminfo: Whether places in memory are listed.
        names: What its values are called.
    """

    def __init__(self, plan: ExecutionPlan, show_meminfo: bool) -> None:
        self.plan = plan
        self.show_meminfo = show_meminfo
        self.inputs, self.outputs = frozenset(plan.inputs), frozenset(plan.outputs)
        self.names = ValueNames(plan.values)
        self.names.variables = self._variables()

    def lines(self) -> Iterator[str]:
        """Return the lines of the whole method."""
        plan = self.plan
        yield f"method {plain(plan.name)}({self.names.names(plan.inputs)}) -> ({self.names.names(plan.outputs)})"
        if self.show_meminfo:
            yield from self._arenas()
        yield from self._values()
        for index, delegate in enumerate(plan.delegates):
            place = "payload" if delegate.processed.location is DataLocation.INLINE else "segment"
            specs = "".join(f", {spec.key} ({len(spec.value)} bytes)" for spec in delegate.compile_specs)
            yield f"  delegate {index}: {plain(delegate.id)}, {place} {delegate.processed.index}{specs}"
        for number, chain in enumerate(plan.chains):
            yield "  instructions:" if len(plan.chains) == 1 else f"  instructions of chain {number}:"
            yield from self._chain(chain)

    def _variables(self) -> set[int]:
        """Return the values that are not tensors but may change while the program runs."""
        changing = set(self.inputs)
        for chain in self.plan.chains:
            for step in chain.instructions:
                call = step.instr_args
                if isinstance(call, MoveCall):
                    changing |= {call.move_from, call.move_to}
                elif isinstance(call, KernelCall) and call.args and not results_of(self.names, call):
                    # The result of a call without an out argument comes last.
                    changing.add(call.args[-1])
        constant = (Tensor, TensorList, OptionalTensorList, type(None))
        return {index for index in changing if not isinstance(self.names.value(index), constant)}

    def _arenas(self) -> Iterator[str]:
        devices = {entry.buffer_idx: entry for entry in self.plan.non_const_buffer_device or []}
        for index, nbytes in enumerate(self.plan.non_const_buffer_sizes[1:], 1):
            device = devices.get(index)
            where = ""
            if device is not None and device.device_type is not DeviceType.CPU:
                where = f" on {device.device_type.name.lower()}:{device.device_index}"
            yield f"  arena {index}: {nbytes} bytes{where}"

    def _values(self) -> Iterator[str]:
        shown = [
            f"    %{index}: {self._describe(index, value.val)}"
            for index, value in enumerate(self.plan.values)
            if isinstance(value.val, Tensor) or index in self.names.variables
        ]
        if shown:
            yield "  values:"
            yield from shown

    def _describe(self, index: int, value: Table) -> str:
        roles = ["input"] * (index in self.inputs) + ["output"] * (index in self.outputs)
        if not isinstance(value, Tensor):
            return ", ".join([f"{type(value).__name__} {self.names.literal(index)}", *roles])
        return ", ".join([tensor_type(value), *self._places(value), *roles])

    def _places(self, tensor: Tensor) -> Iterator[str]:
        extra, allocation = tensor.extra_tensor_info, tensor.allocation_info
        if tensor.external_name is not None:
            yield "external constant"
        elif tensor.data_buffer_idx:
            yield f"{'initial value' if allocation else 'constant'} {tensor.data_buffer_idx}"
        if extra is not None and extra.fully_qualified_name is not None:
            yield quoted(extra.fully_qualified_name)
        if allocation is not None and self.show_meminfo:
            start = allocation.memory_offset
            yield f"arena {allocation.memory_id} bytes {start}..{start + tensor.nbytes}"

    def _chain(self, chain: Chain) -> Iterator[str]:
        width = len(str(len(chain.instructions) - 1))
        for index, instruction in enumerate(chain.instructions):
            yield f"    {index:>{width}}: {self.instruction(instruction)}"

    def instruction(self, instruction: Instruction) -> str:
        """Return one instruction as a line."""
        call, names = instruction.instr_args, self.names
        if isinstance(call, KernelCall):
            return self._kernel_call(call)
        if isinstance(call, DelegateCall):
            known = 0 <= call.delegate_index < len(self.plan.delegates)
            backend = plain(self.plan.delegates[call.delegate_index].id) if known else "?"
            return f"delegate {call.delegate_index} {backend}({names.names(call.args)})"
        if isinstance(call, MoveCall):
            return f"{names.name(call.move_to)} = {names.name(call.move_from)}"
        if isinstance(call, JumpFalseCall):
            return f"jump to {call.destination_instruction} unless {names.argument(call.cond_value_index)}"
        assert isinstance(call, FreeCall)
        return f"free {names.name(call.value_index)}"

    def _kernel_call(self, call: KernelCall) -> str:
        names, kernel = self.names, called_operator(self.plan, call)
        results = results_of(names, call)
        if not results:
            return f"{kernel}({names.arguments(call.args)})"
        first_out = len(call.args) - 1 - len(results)
        if call.args[first_out:-1] != results:
            return f"{names.name(results[0])} = {kernel}({names.arguments(call.args[:-1])})"
        out = names.names(results) if len(results) == 1 else f"({names.names(results)})"
        return f"{kernel}({', '.join([*map(names.argument, call.args[:first_out]), f'out={out}'])})"


def called_operator(plan: ExecutionPlan, call: KernelCall) -> str:
    """Return the name of the operator that a call names, with its overload; `operator 7?` if there is none."""
    if not 0 <= call.op_index < len(plan.operators):
        return f"operator {call.op_index}?"
    operator = plan.operators[call.op_index]
    return ".".join(plain(part) for part in (operator.name, operator.overload) if part)


def results_of(names: ValueNames, call: KernelCall) -> list[int]:
    """Return the arguments that a call repeats at its end as its results; none if its result is no such argument.

    An out variant repeats its out argument, which may be a list, or gives a list of several; an in-place operator
    repeats an input.
    """
    if len(call.args) < 2:
        return []
    *arguments, result = call.args
    last = names.value(result)
    if isinstance(last, TensorList) and result not in arguments:
        repeats = len(last.items) <= len(arguments) and arguments[-len(last.items) :] == last.items
        return last.items if repeats else []
    return [result] if isinstance(last, (Tensor, TensorList)) and result in arguments else []


_INDENT = "  "


def verbose_lines(table: Table, depth: int = 0) -> Iterator[str]:
    """Yield the fields of a table, one per line; blobs are told by their size."""
    pad = _INDENT * depth
    for name in type(table).model_fields:
        value = getattr(table, name)
        if isinstance(value, Table):
            yield f"{pad}{name}: {type(value).__name__}"
            yield from verbose_lines(value, depth + 1)
        elif isinstance(value, list) and any(isinstance(item, Table) for item in value):
            yield f"{pad}{name}:"
            yield from _list_lines(value, depth + 1)
        else:
            yield f"{pad}{name}: {_inline(value)}"


def _list_lines(tables: list[Table], depth: int) -> Iterator[str]:
    for index, table in enumerate(tables):
        yield f"{_INDENT * depth}[{index}] {type(table).__name__}"
        yield from verbose_lines(table, depth + 1)


def _inline(value: object) -> str:
    if isinstance(value, IntEnum):
        return f"{value.name} ({int(value)})"
    if isinstance(value, (bytes, memoryview)):
        return f"{len(value)} bytes"
    return repr(value)
