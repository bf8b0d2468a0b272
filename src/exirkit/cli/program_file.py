"""What is in a program file, which may be malformed in any way, as documents and as tables.

Sizes are in bytes. Fields of documents may be added; those that are here keep their names and meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

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
)
from exirkit.patterns import book_of_operator, is_shipped, load_books

from .bundles import open_program_or_bundle
from .console import nbytes_text, print_line, print_table
from .errors import WRONG_USAGE, CommandError

_LARGEST = 5
_MOST_CALLED = 8


@dataclass(frozen=True)
class BookOperator:
    """An operator of a file that a rule book defines.

    Attributes:
        name: As the file has it, with its overload.
        book: The book, as `--rules` takes it.
    """

    name: str
    book: str


@dataclass(frozen=True)
class OperatorCount:
    """One operator of a method and how often it is called."""

    name: str
    calls: int


@dataclass(frozen=True)
class BytesByKind:
    """Where the bytes of a file are; together they are its size.

    Attributes:
        flatbuffer: The program without its data, header included.
        constants: Weights, with the padding between them.
        mutable_data: Initial values of buffers that a method changes.
        delegates: Payloads of backends.
        named_data: Data that delegates find by name.
        padding: Bytes between the parts.
    """

    flatbuffer: int
    constants: int
    mutable_data: int
    delegates: int
    named_data: int
    padding: int


@dataclass(frozen=True)
class ValueReport:
    """One value of a method.

    Attributes:
        index: Position in the value table of the method.
        kind: `Tensor`, `Int`, `Double`, `Bool`, `String`, `Null`, or a list of these such as `IntList`.
        dtype: Element type of a tensor as torch spells it, without the prefix `torch.`.
        shape: Sizes of a tensor; upper bounds unless `dynamism` is `static`.
        dim_order: Dimensions of a tensor from the outermost to the innermost in memory.
        dynamism: `static`, `bound` or `unbound`.
        nbytes: Size of a tensor at its upper bound.
        role: `constant`, `planned`, `state` (planned, with an initial value), `external` (data in another file) or
            `caller` (the caller of the method supplies the memory).
        name: Name of a tensor whose data is in another file.
        arena: Number of the arena that holds a planned tensor.
        offset: Where in the arena it starts.
        content: The value of a number, a string or a list; the entries of tensor lists and of integer lists are indices
            of the value table.
    """

    index: int
    kind: str
    dtype: str | None = None
    shape: list[int] | None = None
    dim_order: list[int] | None = None
    dynamism: str | None = None
    nbytes: int | None = None
    role: str | None = None
    name: str | None = None
    arena: int | None = None
    offset: int | None = None
    content: Any = None


@dataclass(frozen=True)
class MethodReport:
    """One method of a file.

    Attributes:
        arenas: Sizes of the planned memory, arena 1 first.
        operators: By number of calls, then by name.
        delegates: Identifiers of the backends of the delegates, one for each delegate.
        listing: The instructions as text, if they were asked for.
        values: The value table, if it was asked for.
    """

    name: str
    inputs: list[ValueReport]
    outputs: list[ValueReport]
    value_count: int
    instruction_count: int
    operators: list[OperatorCount]
    arenas: list[int]
    delegates: list[str]
    listing: list[str] | None = None
    values: list[ValueReport] | None = None


@dataclass(frozen=True)
class ConstantReport:
    """One constant: its number in the file, and the first value that shows it."""

    index: int
    method: str
    dtype: str
    shape: list[int]
    nbytes: int


@dataclass(frozen=True)
class ExternalConstantReport:
    """One constant whose data is in another file, where it is found by its name."""

    name: str
    method: str
    dtype: str
    shape: list[int]
    nbytes: int


@dataclass(frozen=True)
class InspectReport:
    """The document of `exirkit inspect`.

    Attributes:
        nbytes: Size of the file.
        largest_constants: At most five.
        external_constants: Constants whose data is in other files, each once.
        book_operators: Operators that the given books define.
        test_cases: Number of test cases by method; None unless the file is a bundled program.
    """

    file: str
    nbytes: int
    bytes_by_kind: BytesByKind
    methods: list[MethodReport]
    largest_constants: list[ConstantReport]
    external_constants: list[ExternalConstantReport]
    book_operators: list[BookOperator]
    test_cases: dict[str, int] | None = None
    ok: bool = True


def inspect_file(
    path: str | PathLike[str],
    *,
    method: str | None = None,
    instructions: bool = False,
    values: bool = False,
    rules: Sequence[str] | None = None,
) -> InspectReport:
    """Read a program file and report what is in it; it is not checked beyond what reading needs.

    Args:
        path: The file.
        method: Only this method.
        instructions: List the instructions of every method.
        values: List the value table of every method.
        rules: Books whose operators are to be reported.

    Raises:
        ProgramFormatError: It is not a program file.
        CommandError: EK723, there is no such method.
        OSError: It cannot be read.
    """
    nbytes = Path(path).stat().st_size
    register_operators(rules)
    file, bundle = open_program_or_bundle(Path(path))
    with file:
        plans = chosen_plans(file.program, method)
        return InspectReport(
            book_operators=book_operators(file.program) if rules else [],
            file=str(path),
            nbytes=nbytes,
            bytes_by_kind=bytes_by_kind(file, nbytes if bundle is None else len(bundle.table.program)),
            methods=[_method(plan, instructions, values) for plan in plans],
            largest_constants=_largest_constants(file.program),
            external_constants=_external_constants(file.program),
            test_cases=None if bundle is None else dict(Counter(name for name, _ in bundle.cases)),
        )


def register_operators(books: Sequence[str] | None) -> None:
    """Make the operators of books known to this process.

    Args:
        books: Files, or names of shipped books.

    Raises:
        ModelError: A book has errors.
        OSError: A book cannot be read.
    """
    load_books(books or ())


def book_operators(program: Program) -> list[BookOperator]:
    """Return the operators of a file that books of this process define, each once, in the order of their names."""
    names = {operator_label(plan, index) for plan in program.execution_plan for index in range(len(plan.operators))}
    return [BookOperator(name, book) for name in sorted(names) if (book := book_of(name)) is not None]


def book_of(name: str) -> str | None:
    """Return the book that defines an operator, as `--rules` takes it; None if no book of this process does."""
    file = book_of_operator(name)
    if file is None:
        return None
    shipped = file.removesuffix(".yaml")
    return shipped if is_shipped(shipped) and not Path(file).exists() else file


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


def operator_counts(plan: ExecutionPlan) -> list[OperatorCount]:
    """Return the operators of a plan and how often each is called, most calls first."""
    calls: Counter[str] = Counter()
    for instruction in _instructions(plan):
        step = instruction.instr_args
        calls[operator_label(plan, step.op_index) if isinstance(step, KernelCall) else type(step).__name__] += 1
    ordered = sorted(calls.items(), key=lambda item: (-item[1], item[0]))
    return [OperatorCount(name, count) for name, count in ordered]


def operator_label(plan: ExecutionPlan, index: int) -> str:
    """Return the name of an operator with its overload, whatever the index is."""
    if not 0 <= index < len(plan.operators):
        return f"operator {index}, which is not there"
    operator = plan.operators[index]
    return f"{operator.name}.{operator.overload}" if operator.overload else operator.name


def value_report(plan: ExecutionPlan, index: int) -> ValueReport:
    """Return a description of one entry of the value table, or of its absence."""
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
        nbytes=value.nbytes,
        role=_role(value),
        name=value.external_name,
        arena=place.memory_id if place else None,
        offset=place.memory_offset if place else None,
    )


def dtype_text(tensor: Tensor) -> str:
    """Return the element type of a tensor as torch spells it, `float32`."""
    return str(tensor.scalar_type.dtype).removeprefix("torch.")


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
    if tensor.external_name is not None:
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
                    nbytes=tensor.nbytes,
                )
                found.setdefault(tensor.data_buffer_idx, report)
    return sorted(found.values(), key=lambda each: (-each.nbytes, each.index))[:_LARGEST]


def _external_constants(program: Program) -> list[ExternalConstantReport]:
    found: dict[str, ExternalConstantReport] = {}
    for plan in program.execution_plan:
        for value in plan.values:
            tensor = value.val
            name = tensor.external_name if isinstance(tensor, Tensor) else None
            if isinstance(tensor, Tensor) and name is not None:
                report = ExternalConstantReport(name, plan.name, dtype_text(tensor), list(tensor.sizes), tensor.nbytes)
                found.setdefault(name, report)
    return list(found.values())


def print_bytes(kinds: BytesByKind) -> None:
    """Print where the bytes of a file are."""
    print_line()
    rows = [(kind.replace("_", " "), nbytes_text(size)) for kind, size in asdict(kinds).items() if size]
    print_table(["part of the file", ">bytes"], rows)


def print_book_operators(operators: Sequence[BookOperator]) -> None:
    """Print which books define operators of the file."""
    if operators:
        books = " ".join(f"--rules {book}" for book in dict.fromkeys(one.book for one in operators))
        print_line()
        print_table(["operator of a book", "book"], [(one.name, one.book) for one in operators])
        print_line(f"`exirkit run`, `verify`, `inspect` and `memory` know them with {books}")


def print_operators(operators: Sequence[OperatorCount], most: int = _MOST_CALLED) -> None:
    """Print the operators that are called most, and how many others there are."""
    rows = [(each.name, each.calls) for each in operators[:most]]
    rest = operators[most:]
    if rest:
        rows.append((f"{len(rest)} others", sum(each.calls for each in rest)))
    print_line()
    print_table(["operator", ">calls"], rows)


def arenas_text(arenas: Sequence[int]) -> str:
    """Return the sizes of arenas as text: `1,024 + 64`."""
    return " + ".join(nbytes_text(size) for size in arenas) or "0"
