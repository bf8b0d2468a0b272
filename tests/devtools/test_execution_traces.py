"""Execution traces: written and read back, and those of the official runtime read."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch
from tests.devtools.damaged_formats import DEBUG_BUFFER, trace

from exirkit import ProgramFormatError
from exirkit.emit import (
    ExecutionTrace,
    TraceBool,
    TraceDouble,
    TraceInt,
    TraceTensor,
    read_trace,
    trace_file,
    traced_tensor,
)
from exirkit.emit.flatbuffer import decode


def test_what_is_written_is_read() -> None:
    written = trace_file(trace()).to_bytes()
    read = read_trace(written)
    assert read == trace()
    assert trace_file(read).to_bytes() == written
    # The size comes first, then the root; a zero has another sign than minus zero.
    assert struct.unpack_from("<I", written)[0] == len(written) - 4
    assert written[8:12] == b"ED00"
    entry = read.run_data[0].events[3].debug_event
    assert entry is not None
    assert entry.debug_entry is not None
    assert entry.debug_entry.float_value is not None
    assert str(entry.debug_entry.float_value.float_val) == "-0.0"


def test_what_a_file_leaves_out_reads_as_the_schema_says() -> None:
    # Root offset, identifier, vtable of an empty table, the table.
    empty = struct.pack("<I4sHHi", 12, b"ED00", 4, 4, 4)
    assert decode(ExecutionTrace, memoryview(empty)) == ExecutionTrace()
    run = trace_file(ExecutionTrace.model_validate({"run_data": [{}]})).to_bytes()
    # Neither -1 is written.
    assert struct.pack("<i", -1) not in run
    assert read_trace(run).run_data[0].bundled_input_index == -1


def test_tensors_come_from_the_debug_buffer() -> None:
    value = torch.frombuffer(bytearray(DEBUG_BUFFER[16:40]), dtype=torch.float32).reshape(2, 3)
    stored = TraceTensor.model_validate({"scalar_type": 6, "sizes": [3, 2], "strides": [1, 3], "offset": 16})
    assert torch.equal(traced_tensor(stored, DEBUG_BUFFER), value.T)
    assert traced_tensor(stored.model_copy(update={"sizes": [0, 2]}), b"").shape == (0, 2)
    with pytest.raises(ProgramFormatError, match="EK532"):
        traced_tensor(stored, DEBUG_BUFFER[:39])
    # Elements that share memory: 64 bytes that would become 2**34.
    shared = stored.model_copy(update={"sizes": [2**16, 2**16], "strides": [0, 0], "offset": 0})
    with pytest.raises(ProgramFormatError, match=r"EK532.*17179869184 bytes, more than the debug buffer"):
        traced_tensor(shared, DEBUG_BUFFER)


def test_a_cut_file_says_so(tmp_path: Path) -> None:
    written = trace_file(trace()).to_bytes()
    with pytest.raises(ProgramFormatError, match="EK509"):
        read_trace(written[:-8])


def test_every_field_of_an_event_is_read() -> None:
    read = read_trace(trace_file(trace()).to_bytes()).run_data[0]
    named, bare = (one.profile_event for one in read.events[-3:-1])
    assert named is not None
    assert bare is not None
    assert (named.name, named.instruction_id, named.delegate_debug_id_int) == ("a", -1, -1)
    assert (named.delegate_debug_id_str, named.delegate_debug_metadata, named.start_time) == ("b", b"123", 2**63)
    assert (bare.name, bare.instruction_id, bare.end_time) == (None, 0, 5)
    allocated = read.events[-1].allocation_event
    assert allocated is not None
    assert (allocated.allocator_id, allocated.allocation_size) == (3, 2**40)
    assert [one.name for one in read.allocators] == ["arena"]
    values = [one.debug_event.debug_entry for one in read.events if one.debug_event is not None]
    numbers = [one for one in values if one is not None and one.val.value in (1, 2, 4)]
    assert [(one.int_value, one.double_value, one.bool_value) for one in numbers] == [
        (TraceInt(int_val=-(2**40)), None, None),
        (None, TraceDouble(double_val=0.1), None),
        (None, None, TraceBool(bool_val=True)),
    ]
