"""What is in a program file: the report of `exirkit inspect`, made from files that may be wrong in any way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from exirkit.emit import (
    DataLocation,
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Program,
    PteFile,
    Tensor,
    TensorDataLocation,
    open_program,
)

from .failures import WRONG_USAGE, CommandError
from .reports import (
    BookOperatorReport,
    BytesByKind,
    ConstantReport,
    InspectReport,
    MethodReport,
    OperatorReport,
    ValueReport,
)

_LARGEST = 5


def inspect_file(
    path: str | PathLike[str],
    *,
    method: str | None = None,
    instructions: bool = False,
    values: bool = False,
    rules: Sequence[str] = (),
) -> InspectReport:
    """Read a program file and report what is in it; it is not checked beyond what reading needs.

    Args:
        path: The file.
        method: Only this method.
        instructions: List the instructions of every method.
        values: List the value table of every method.
        rules: Books whose operators are to be told.

    Raises:
        ProgramFormatError: It is no program file.
        CommandError: EK723, there is no such method.
        OSError: It cannot be read.
    """
    nbytes = Path(path).stat().st_size
    with open_program(path) as file:
        plans = chosen_plans(file.program, method)
        return InspectReport(
            book_operators=_book_operators(file.program, rules),
            file=str(path),
            nbytes=nbytes,
            bytes_by_kind=bytes_by_kind(file, nbytes),
            methods=[_method(plan, instructions, values) for plan in plans],
            largest_constants=_largest_constants(file.program),
        )


def _book_operators(program: Program, rules: Sequence[str]) -> list[BookOperatorReport]:
    if not rules:
        return []
    from .book_operators import book_operators, register_operators

    register_operators(rules)
    return book_operators(program)


def chosen_plans(program: Program, method: str | None) -> list[ExecutionPlan]:
    """Return the plans of a program, or the one that is asked for.

    Raises:
        CommandError: EK723, there is no such method.
    """
    plans = [plan for plan in program.execution_plan if method in (None, plan.name)]
    if method is not None and not plans:
        names = ", ".join(plan.name for plan in program.execution_plan) or "none"
        raise CommandError(
            code="EK723", message=f"there is no method {method!r}", hint=f"methods: {names}", exit_code=WRONG_USAGE
        )
    return plans


def bytes_by_kind(file: PteFile, nbytes: int) -> BytesByKind:
    """Return where the bytes of a file are.

    Args:
        file: The program in the file.
        nbytes: Size of the file.
    """
    program = file.program
    inline = sum(len(buffer.storage) for buffer in program.constant_buffer)
    payloads = sum(len(payload.data) for payload in program.backend_delegate_data)
    kinds = Counter({"constants": inline, "delegates": payloads})
    segment_kinds = _segment_kinds(program)
    for index, segment in enumerate(program.segments):
        kinds[segment_kinds.get(index, "padding")] += segment.size
    size = file.header.program_size if file.header else nbytes
    kinds["flatbuffer"] = max(size - inline - payloads, 0)
    rest = nbytes - sum(kinds.values())
    return BytesByKind(
        flatbuffer=kinds["flatbuffer"],
        constants=kinds["constants"],
        mutable_data=kinds["mutable_data"],
        delegates=kinds["delegates"],
        named_data=kinds["named_data"],
        padding=rest + kinds["padding"],
    )


def operator_counts(plan: ExecutionPlan) -> list[OperatorReport]:
    """Return the operators of a plan and how often each is called, most calls first."""
    calls: Counter[str] = Counter()
    for instruction in _instructions(plan):
        step = instruction.instr_args
        calls[operator_label(plan, step.op_index) if isinstance(step, KernelCall) else type(step).__name__] += 1
    ordered = sorted(calls.items(), key=lambda item: (-item[1], item[0]))
    return [OperatorReport(name=name, calls=count) for name, count in ordered]


def operator_label(plan: ExecutionPlan, index: int) -> str:
    """Return the name of an operator with its overload, whatever the index is."""
    if not 0 <= index < len(plan.operators):
        return f"operator {index}, which is not there"
    operator = plan.operators[index]
    return f"{operator.name}.{operator.overload}" if operator.overload else operator.name


def value_report(plan: ExecutionPlan, index: int) -> ValueReport:
    """Return what stands at one place of the value table, or that nothing does."""
    if not 0 <= index < len(plan.values):
        return ValueReport(index=index, kind="not there")
    value = plan.values[index].val
    kind = type(value).__name__
    if not isinstance(value, Tensor):
        return ValueReport(index=index, kind=kind, content=next(iter(value.model_dump().values()), None))
    place = value.allocation_info
    return ValueReport(
        index=index,
        kind=kind,
        dtype=dtype_text(value),
        shape=list(value.sizes),
        dim_order=list(value.dim_order),
        dynamism=value.shape_dynamism.name.lower().removeprefix("dynamic_"),
        nbytes=tensor_nbytes(value),
        role=_role(value),
        arena=place.memory_id if place else None,
        offset=place.memory_offset if place else None,
    )


def dtype_text(tensor: Tensor) -> str:
    """Return the element type of a tensor as torch spells it, `float32`."""
    return str(tensor.scalar_type.dtype).removeprefix("torch.")


def tensor_nbytes(tensor: Tensor) -> int:
    """Return the size of a tensor at its upper bound, in bytes."""
    nbytes = tensor.scalar_type.itemsize
    for size in tensor.sizes:
        nbytes *= max(size, 0)
    return nbytes


def _method(plan: ExecutionPlan, instructions: bool, values: bool) -> MethodReport:
    listed = list(_instructions(plan))
    return MethodReport(
        name=plan.name,
        inputs=[value_report(plan, index) for index in plan.inputs],
        outputs=[value_report(plan, index) for index in plan.outputs],
        value_count=len(plan.values),
        instruction_count=len(listed),
        operators=operator_counts(plan),
        arenas=list(plan.non_const_buffer_sizes[1:]),
        delegates=[delegate.id for delegate in plan.delegates],
        listing=[instruction_text(plan, each) for each in listed] if instructions else None,
        values=[value_report(plan, index) for index in range(len(plan.values))] if values else None,
    )


def instruction_text(plan: ExecutionPlan, instruction: Instruction) -> str:
    """Return one instruction as text; `%7` is value 7 of the method."""
    step = instruction.instr_args
    if isinstance(step, KernelCall):
        return f"{operator_label(plan, step.op_index)}({_references(step.args)})"
    if isinstance(step, DelegateCall):
        known = 0 <= step.delegate_index < len(plan.delegates)
        name = plan.delegates[step.delegate_index].id if known else "not there"
        return f"delegate {step.delegate_index} [{name}]({_references(step.args)})"
    if isinstance(step, MoveCall):
        return f"move %{step.move_from} to %{step.move_to}"
    if isinstance(step, JumpFalseCall):
        return f"unless %{step.cond_value_index} go to {step.destination_instruction}"
    assert isinstance(step, FreeCall), "a sixth kind of instruction"
    return f"free %{step.value_index}"


def _references(indices: Sequence[int]) -> str:
    return ", ".join(f"%{index}" for index in indices)


def _instructions(plan: ExecutionPlan) -> list[Instruction]:
    return [instruction for chain in plan.chains for instruction in chain.instructions]


def _role(tensor: Tensor) -> str:
    extra = tensor.extra_tensor_info
    if extra is not None and extra.location is TensorDataLocation.EXTERNAL:
        return "external"
    if tensor.allocation_info is not None:
        return "state" if tensor.data_buffer_idx else "planned"
    return "constant" if tensor.data_buffer_idx else "caller"


def _segment_kinds(program: Program) -> dict[int, str]:
    """Return what each segment holds that something refers to; of several references the first one counts."""
    delegates = [delegate.processed for plan in program.execution_plan for delegate in plan.delegates]
    constants = [program.constant_segment.segment_index] if program.constant_segment.offsets else []
    references = {
        "constants": constants,
        "mutable_data": [table.segment_index for table in program.mutable_data_segments or ()],
        "named_data": [entry.segment_index for entry in program.named_data or ()],
        "delegates": [each.index for each in delegates if each.location is DataLocation.SEGMENT],
    }
    kinds: dict[int, str] = {}
    for kind, indices in references.items():
        for index in indices:
            kinds.setdefault(index, kind)
    return kinds


def _largest_constants(program: Program) -> list[ConstantReport]:
    found: dict[int, ConstantReport] = {}
    for plan in program.execution_plan:
        for value in plan.values:
            tensor = value.val
            if isinstance(tensor, Tensor) and _role(tensor) == "constant":
                report = ConstantReport(
                    index=tensor.data_buffer_idx,
                    method=plan.name,
                    dtype=dtype_text(tensor),
                    shape=list(tensor.sizes),
                    nbytes=tensor_nbytes(tensor),
                )
                found.setdefault(tensor.data_buffer_idx, report)
    return sorted(found.values(), key=lambda each: (-each.nbytes, each.index))[:_LARGEST]
