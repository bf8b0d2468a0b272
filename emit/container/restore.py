"""Bring a program file back into the in-memory form from which it was laid out."""

from __future__ import annotations

from math import prod
from typing import Final

from exirkit.emit.schema import (
    BackendDelegate,
    BackendDelegateDataReference,
    BackendDelegateInlineData,
    Buffer,
    DataLocation,
    Program,
    SubsegmentOffsets,
    Tensor,
    TensorDataLocation,
)
from exirkit.ir import Diagnostic, ModelError

from .reader import PteFile
from .writer import NamedBlob

# A constant that is followed by more than this is larger than its tensor; alignments are not.
_MAXIMUM_PADDING_NBYTES: Final = 4096


def restore(file: PteFile) -> Program:
    """Return the program with its constants and payloads back in it, as views of the file.

    Ensures: `restore` of a file that `lay_out` made of a program gives that program, if its constants have the size of
    the tensors that use them and its payloads differ and are numbered in the order of their first use. Initial
    values and named data have no place in a program: see `restore_mutable_data` and `restore_named_data`.
    """
    program = file.program
    update: dict[str, object] = {"segments": [], "constant_segment": SubsegmentOffsets()}
    if program.constant_segment.offsets:
        update["constant_buffer"] = _restore_constants(file)
    if program.mutable_data_segments:
        update["mutable_data_segments"] = None
    if program.named_data:
        update["named_data"] = None
    return program.model_copy(update=update | _restore_payloads(file))


def restore_mutable_data(file: PteFile) -> list[Buffer] | None:
    """Return the initial values of mutable buffers as `lay_out` takes them, or `None` if there are none.

    Raises:
        ModelError: EK528 if they are in more than one segment.
    """
    tables = file.program.mutable_data_segments
    if not tables:
        return None
    if len(tables) > 1:
        message = f"the program has {len(tables)} segments of initial values"
        raise ModelError(Diagnostic(code="EK528", message=message, expected="one, which is what can be written"))
    count = len(tables[0].offsets)
    return [Buffer(), *(Buffer(storage=file.mutable_data(index)) for index in range(1, count))]


def restore_named_data(file: PteFile) -> dict[str, NamedBlob] | None:
    """Return the named data as `lay_out` takes it, or `None` if there is none; a file forgets its alignment."""
    entries = file.program.named_data
    return {entry.key: NamedBlob(file.named_data(entry.key)) for entry in entries} if entries else None


def _restore_constants(file: PteFile) -> list[Buffer]:
    used = _used_nbytes(file.program)
    buffers = [Buffer()]
    for index in range(1, len(file.program.constant_segment.offsets)):
        data = file.constant(index)
        stop = used.get(index, len(data))
        buffers.append(Buffer(storage=data[:stop] if _is_padding(data[stop:]) else data))
    return buffers


def _is_padding(tail: memoryview) -> bool:
    return len(tail) < _MAXIMUM_PADDING_NBYTES and not any(tail)


def _used_nbytes(program: Program) -> dict[int, int]:
    """Return how many bytes of each constant the tensors of all plans use."""
    used: dict[int, int] = {}
    for plan in program.execution_plan:
        for value in plan.values:
            tensor = value.val
            if isinstance(tensor, Tensor) and _is_constant(tensor):
                nbytes = (tensor.storage_offset + prod(tensor.sizes)) * tensor.scalar_type.itemsize
                used[tensor.data_buffer_idx] = max(used.get(tensor.data_buffer_idx, 0), nbytes, 0)
    return used


def _is_constant(tensor: Tensor) -> bool:
    extra = tensor.extra_tensor_info
    is_external = extra is not None and extra.location is TensorDataLocation.EXTERNAL
    return tensor.data_buffer_idx > 0 and tensor.allocation_info is None and not is_external


def _restore_payloads(file: PteFile) -> dict[str, object]:
    """Make all payloads inline, numbered in the order of their first use."""
    payloads: list[BackendDelegateInlineData] = []
    numbers: dict[tuple[DataLocation, int], int] = {}

    def place(delegate: BackendDelegate) -> BackendDelegate:
        key = (delegate.processed.location, delegate.processed.index)
        if key not in numbers:
            numbers[key] = len(payloads)
            payloads.append(BackendDelegateInlineData(data=file.delegate_payload(delegate)))
        return delegate.model_copy(update={"processed": BackendDelegateDataReference(index=numbers[key])})

    plans = [
        plan.model_copy(update={"delegates": [place(delegate) for delegate in plan.delegates]})
        for plan in file.program.execution_plan
    ]
    return {"execution_plan": plans, "backend_delegate_data": payloads}
