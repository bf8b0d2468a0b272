"""Damage files of each format beside programs, in every field and at random, and count what reading them ends with.

Usage: python -m tests.devtools.damaged_formats [--mutations N] [--seed N] [FORMAT ...]

Fields: each aligned word in turn becomes each of a few words that readers trust too easily. Mutations: N damaged copies
of each file. The exit code is 1 unless every reading ends with a file or with the documented error, in time, and
without memory that grows. Reading means everything: each tensor is made, each program in the file is read.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tests.runtime_ref.damage_campaign import Tally, campaign, damaged_fields
from tests.runtime_ref.mutations import mutations

from exirkit import ExecutorchBackendConfig, ProgramFormatError, to_edge
from exirkit.devtools import (
    Bundle,
    BundledProgram,
    MethodTestCase,
    MethodTestSuite,
    serialize_from_bundled_program_to_flatbuffer,
)
from exirkit.emit import (
    AllocationEvent,
    DebugEvent,
    ExecutionTrace,
    ProfileEvent,
    ScalarType,
    TraceAllocator,
    TraceBool,
    TraceDouble,
    TraceEvent,
    TraceFloat,
    TraceInt,
    TraceRun,
    TraceTensor,
    TraceTensorList,
    TraceValue,
    TraceValueType,
    read_data_file,
    read_trace,
    trace_file,
    traced_tensor,
)
from exirkit.ir import DiagnosticError, UsageError


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        make: Makes a file.
        read: Reads one completely.
        documented: The errors that reading may raise.
    """

    make: Callable[[], bytes]
    read: Callable[[bytearray], object]
    documented: tuple[type[DiagnosticError], ...] = (ProgramFormatError,)


def _model() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(2, 3, 1), torch.nn.ReLU()).eval(), (torch.ones(1, 2, 2, 2),)


def bundle_bytes() -> bytes:
    """Return a bundled program with test cases of two kinds."""
    model, inputs = _model()
    made = to_edge(torch.export.export(model, inputs)).to_executorch()
    cases = [MethodTestCase(inputs, (model(*inputs),)), MethodTestCase(inputs)]
    return serialize_from_bundled_program_to_flatbuffer(BundledProgram(made, [MethodTestSuite("forward", cases)]))


def data_bytes() -> bytes:
    """Return a data file with the weights of a model."""
    model, inputs = _model()
    config = ExecutorchBackendConfig(external_constants=True)
    (data,) = to_edge(torch.export.export(model, inputs)).to_executorch(config).tensor_data.values()
    return data


# The elements of the tensors of `trace`.
DEBUG_BUFFER = bytes(range(64))


def trace() -> ExecutionTrace:
    """Return a trace with values of every kind."""
    tensor = TraceTensor(scalar_type=ScalarType.FLOAT, sizes=[2, 3], strides=[3, 1], offset=16)
    values = [
        TraceValue(val=TraceValueType.TENSOR, tensor=tensor, output=TraceBool(bool_val=True)),
        TraceValue(val=TraceValueType.TENSOR_LIST, tensor_list=TraceTensorList(tensors=[tensor, TraceTensor()])),
        TraceValue(val=TraceValueType.INT, int_value=TraceInt(int_val=-(2**40))),
        TraceValue(val=TraceValueType.FLOAT, float_value=TraceFloat(float_val=-0.0)),
        TraceValue(val=TraceValueType.DOUBLE, double_value=TraceDouble(double_val=0.1)),
        TraceValue(val=TraceValueType.BOOL, bool_value=TraceBool(bool_val=True)),
    ]
    events = [TraceEvent(debug_event=DebugEvent(instruction_id=at, debug_entry=one)) for at, one in enumerate(values)]
    named = ProfileEvent(name="a", delegate_debug_id_str="b", delegate_debug_metadata=b"123", start_time=2**63)
    events += [TraceEvent(profile_event=one) for one in (named, ProfileEvent(instruction_id=0, end_time=5))]
    events.append(TraceEvent(allocation_event=AllocationEvent(allocator_id=3, allocation_size=2**40)))
    run = TraceRun(name="Execute", allocators=[TraceAllocator(name="arena")], events=events)
    return ExecutionTrace(run_data=[run, TraceRun(bundled_input_index=0)])


def read_all_of_trace(data: bytearray) -> None:
    """Read a trace with all its tensors."""
    for run in read_trace(bytes(data)).run_data:
        for event in run.events:
            value = event.debug_event.debug_entry if event.debug_event is not None else None
            if value is not None:
                for tensor in [value.tensor, *(value.tensor_list.tensors if value.tensor_list else [])]:
                    _values(lambda tensor=tensor: tensor and traced_tensor(tensor, DEBUG_BUFFER))  # type: ignore[misc]


def read_bundle(data: bytearray) -> None:
    """Read a bundled program with all values of its test cases."""
    bundle = Bundle.read(bytes(data))
    for method, index in bundle.cases:
        _values(lambda method=method, index=index: bundle.inputs(method, index))  # type: ignore[misc]
        _values(lambda method=method, index=index: bundle.expected_outputs(method, index))  # type: ignore[misc]


def read_data(data: bytearray) -> None:
    """Read a data file with all its tensors."""
    file = read_data_file(bytes(data))
    for key in file.keys:
        _values(lambda key=key: file.tensor(key))  # type: ignore[misc]


def _values(make: Callable[[], object]) -> None:
    try:
        make()
    except UsageError as error:
        # A file may hold values that torch has no tensors for.
        if error.code != "EK535":
            raise


FORMATS = {
    "bpte": Format(bundle_bytes, read_bundle),
    "etdp": Format(lambda: trace_file(trace()).to_bytes(), read_all_of_trace),
    "ptd": Format(data_bytes, read_data),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=", ".join(FORMATS))
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    is_clean = True
    sys.stdout.write(f"seed {options.seed}\n")
    for name in options.formats or FORMATS:
        known = FORMATS[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = known.make()
        for kind, copies, expected in (
            ("fields", damaged_fields(data, len(data)), 2 * len(data)),
            (
                "mutations",
                mutations(data, options.mutations, options.seed, header_nbytes=len(data)),
                options.mutations,
            ),
        ):
            started = time.monotonic()
            tally = campaign(copies, expected, Tally(known.read, known.documented))
            rate = tally.loads / (time.monotonic() - started)
            codes = ", ".join(f"{code} {count}" for code, count in sorted(tally.outcomes.items()))
            sys.stdout.write(
                f"{name} {kind}: {tally.loads} readings of {len(data)} bytes, slowest {tally.slowest_s * 1e3:.1f} ms, "
                f"memory +{tally.grown_bytes >> 20} MiB, {rate:.0f}/s; {codes}\n"
            )
            for text, count in tally.undocumented.most_common(5):
                sys.stdout.write(f"    {count} times {text}\n")
            sys.stdout.flush()
            is_clean &= tally.is_clean
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
