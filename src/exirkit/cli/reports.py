"""What the commands report: the documents that `--json` prints, one model for each command.

Sizes are in bytes, times in seconds. New fields may be added; those that are here keep their names and meaning.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Report(BaseModel):
    """Base of all documents: frozen, without unknown fields, infinities and NaN as text."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Finding(Report):
    """One diagnostic, as `exirkit.Diagnostic` has it; `exirkit explain CODE` says more about its code."""

    code: str
    severity: Literal["error", "warning", "note"] = "error"
    message: str
    location: dict[str, Any] = {}
    expected: str | None = None
    notes: tuple[str, ...] = ()
    hint: str | None = None


class FailureReport(Report):
    """What `--json` prints instead of the report of a command that failed.

    Attributes:
        exit_code: 1 the model or file cannot be handled, 2 wrong usage, 3 a pass or backend broke its contract,
            4 a bug of exirkit.
        diagnostics: All findings, the first one is also on standard error.
    """

    ok: Literal[False] = False
    exit_code: int
    diagnostics: list[Finding]


class ValueReport(Report):
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
            `caller` (whoever runs the method gives the memory).
        arena: Number of the arena that holds a planned tensor.
        offset: Where in the arena it starts.
        content: The value of a number, a text or a list; the entries of tensor lists and of integer lists are indices
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
    arena: int | None = None
    offset: int | None = None
    content: Any = None


class BookOperatorReport(Report):
    """An operator of a file that a rule book defines.

    Attributes:
        name: As the file has it, with its overload.
        book: The book, as `--rules` takes it.
    """

    name: str
    book: str


class OperatorReport(Report):
    """One operator of a method and how often it is called."""

    name: str
    calls: int


class MethodReport(Report):
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
    operators: list[OperatorReport]
    arenas: list[int]
    delegates: list[str]
    listing: list[str] | None = None
    values: list[ValueReport] | None = None


class BytesByKind(Report):
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


class ConstantReport(Report):
    """One constant: its number in the file, and the first value that shows it."""

    index: int
    method: str
    dtype: str
    shape: list[int]
    nbytes: int


class InspectReport(Report):
    """The document of `exirkit inspect`.

    Attributes:
        nbytes: Size of the file.
        largest_constants: At most five.
        book_operators: Operators that the given books define.
    """

    ok: Literal[True] = True
    file: str
    nbytes: int
    bytes_by_kind: BytesByKind
    methods: list[MethodReport]
    largest_constants: list[ConstantReport]
    book_operators: list[BookOperatorReport] = []


class LoweredMethod(Report):
    """What lowering made of one method.

    Attributes:
        nodes_exported: Graph nodes of the exported program.
        nodes_edge: Graph nodes in the Edge dialect.
        nodes_lowered: Graph nodes in the ExecuTorch dialect.
        instructions: Instructions of the emitted program.
        operators: By number of calls, then by name.
        arenas: Sizes of the planned memory, arena 1 first.
        delegates: Backends of its delegates, in the order in which they are loaded.
    """

    name: str
    nodes_exported: int
    nodes_edge: int
    nodes_lowered: int
    instructions: int
    operators: list[OperatorReport]
    arenas: list[int]
    delegates: list[str] = []


class LowerReport(Report):
    """The document of `exirkit lower`.

    Attributes:
        file: The file that was written.
        book_operators: Operators of the file that rule books define: a runtime needs them.
        seconds: Wall time by phase: `load` (torch and the model), `export`, `to_edge`, `to_executorch`, `write`.
    """

    ok: Literal[True] = True
    target: str
    file: str
    nbytes: int
    bytes_by_kind: BytesByKind
    methods: list[LoweredMethod]
    book_operators: list[BookOperatorReport] = []
    seconds: dict[str, float]


class OutputReport(Report):
    """One output of a run.

    Attributes:
        kind: `tensor`, `int`, `float`, `bool` or `none`.
        first: The first few elements in row-major order, or the number itself.
    """

    index: int
    kind: str
    dtype: str | None = None
    shape: list[int] | None = None
    first: list[float | int | bool] = []


class RunReport(Report):
    """The document of `exirkit run`.

    Attributes:
        inputs: `random`, `ones`, or the names of the files.
        seed: What random inputs were made from.
        seconds: Wall time of every call.
        saved: The file that holds the outputs.
    """

    ok: Literal[True] = True
    file: str
    method: str
    inputs: list[str]
    seed: int | None
    outputs: list[OutputReport]
    seconds: list[float]
    saved: str | None = None


class VerifyReport(Report):
    """The document of `exirkit verify`; `ok` is false if there is a finding."""

    ok: bool
    file: str
    methods: list[str]
    diagnostics: list[Finding]


class DemoReport(Report):
    """The document of `exirkit demo`.

    Attributes:
        parameters: Number of weights of the model.
        kept: Whether the program file is still there.
        max_abs_output: Largest output of eager PyTorch, to compare the error with.
        max_abs_error: Largest difference between the run and eager PyTorch.
        run_seconds: Wall time of one run on the reference runtime.
    """

    ok: Literal[True] = True
    model: str
    parameters: int
    lowering: LowerReport
    kept: bool
    max_abs_output: float
    max_abs_error: float
    tolerance: float
    run_seconds: float


class CodeReport(Report):
    """One diagnostic code and what it means."""

    code: str
    title: str
    text: str


class ExplainReport(Report):
    """The document of `exirkit explain`: the code asked for, or all codes."""

    ok: Literal[True] = True
    codes: list[CodeReport]
