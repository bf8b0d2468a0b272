"""Damage files of each format at random and, in flatbuffers, in every field; count what reading them ends with.

Usage: python -m tests.devtools.damaged_formats [--mutations N] [--chunk N] [--seed N] [FORMAT ...]

Fields: each aligned word in turn becomes each of a few words that readers trust too easily. Mutations: N damaged copies
of each file; of archives mostly in one member, and in the structure of documents. The exit code is 1 unless every
reading ends with a file or with the documented error, in time, without memory that grows, and with the process alive.
Reading means everything: each tensor is made, each program in the file is read.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import torch
from tests.devtools.damaged_archives import (
    archive_mutations,
    etrecord_bytes,
    exported,
    failure_bundle_bytes,
    header_mutations,
    packaged_programs_bytes,
    read_all_safetensors,
    read_etrecord,
    read_exported,
    read_failure_bundle,
    safetensors_bytes,
    saved_program_bytes,
)
from tests.runtime_ref.damage_campaign import Tally, campaign, damaged_fields, load_program
from tests.runtime_ref.mutations import mutations

from exirkit import ExecutorchBackendConfig, ProgramFormatError, ProgramVerifyError, to_edge
from exirkit.cli.errors import CommandError
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
from exirkit.ir import ModelError, UsageError


def anywhere(data: bytes, count: int, seed: int) -> Iterator[bytearray]:
    """Yield copies that are damaged anywhere."""
    return mutations(data, count, seed, header_nbytes=len(data))


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        make: Makes a file.
        read: Reads one completely.
        documented: The errors that reading may raise.
        codes: The codes that these may have, where not all of them are documented.
        damaged: Returns damaged copies, of a file, a number and a seed.
        has_fields: Whether each word of a file is a field.
    """

    make: Callable[[], bytes]
    read: Callable[[bytearray], object]
    documented: tuple[type[Exception], ...] = (ProgramFormatError,)
    codes: frozenset[str] = frozenset()
    damaged: Callable[[bytes, int, int], Iterator[bytearray]] = anywhere
    has_fields: bool = True

    def tally(self) -> Tally:
        """Return an empty tally of its readings."""
        return Tally(self.read, self.documented, self.codes)


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


def program_bytes() -> bytes:
    """Return a program of two methods with branches, state and shapes that vary."""
    return bytes(to_edge({"forward": exported(), "other": exported()}).to_executorch().buffer)


def _archive(
    make: Callable[[], bytes], read: Callable[[bytearray], object], error: type[Exception], code: str
) -> Format:
    return Format(make, read, (error,), frozenset({code}), archive_mutations, has_fields=False)


FORMATS = {
    "bpte": Format(bundle_bytes, read_bundle),
    "etdp": Format(lambda: trace_file(trace()).to_bytes(), read_all_of_trace),
    "ptd": Format(data_bytes, read_data),
    "pte": Format(program_bytes, load_program, (ProgramFormatError, ProgramVerifyError)),
    "etrecord": _archive(etrecord_bytes, read_etrecord, ModelError, "EK745"),
    "pt2": _archive(saved_program_bytes, read_exported, CommandError, "EK718"),
    "pt2 of several": _archive(packaged_programs_bytes, read_exported, CommandError, "EK718"),
    "failure": _archive(failure_bundle_bytes, read_failure_bundle, UsageError, "EK772"),
    "safetensors": Format(
        safetensors_bytes,
        read_all_safetensors,
        (ModelError,),
        frozenset({"EK546"}),
        header_mutations,
        has_fields=False,
    ),
}


def _readings(name: str, kind: str, data: bytes, count: int, seed: int) -> Tally:
    known = FORMATS[name]
    copies = damaged_fields(data, len(data)) if kind == "fields" else known.damaged(data, count, seed)
    return campaign(copies, count, known.tally())


def in_a_process(name: str, kind: str, data: bytes, count: int, seed: int) -> Tally:
    """Read damaged copies in a process that may die, which is a finding."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        try:
            return pool.submit(_readings, name, kind, data, count, seed).result()
        except BrokenProcessPool:
            tally = FORMATS[name].tally()
            tally.undocumented[f"the process died, seed {seed}"] += 1
            return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=", ".join(FORMATS))
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--chunk", type=int, default=2000, help="readings of a process")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    is_clean = True
    sys.stdout.write(f"seed {options.seed}\n")
    warnings.simplefilter("ignore")
    logging.disable()
    torch.set_num_threads(1)
    for name in options.formats or FORMATS:
        known = FORMATS[name]
        data = known.make()
        known.read(bytearray(data))
        chunks = [("fields", 2 * len(data), 0)] if known.has_fields else []
        for start in range(0, options.mutations, options.chunk):
            count = min(options.chunk, options.mutations - start)
            chunks.append(("mutations", count, options.seed * 1_000_003 + start))
        totals = {kind: known.tally() for kind, _, _ in chunks}
        seconds = dict.fromkeys(totals, 0.0)
        for number, (kind, count, seed) in enumerate(chunks):
            started = time.monotonic()
            tally = in_a_process(name, kind, data, count, seed)
            seconds[kind] += time.monotonic() - started
            totals[kind].add(tally)
            sys.stderr.write(f"\r{name}: {number + 1} of {len(chunks)} ")
        sys.stderr.write("\n")
        for kind, tally in totals.items():
            codes = ", ".join(f"{code} {count}" for code, count in sorted(tally.outcomes.items()))
            sys.stdout.write(
                f"{name} {kind}: {tally.loads} readings of {len(data)} bytes, slowest {tally.slowest_s * 1e3:.1f} ms, "
                f"memory +{tally.grown_bytes >> 20} MiB, {tally.loads / seconds[kind]:.0f}/s; {codes}\n"
            )
            for text, count in tally.undocumented.most_common(8):
                sys.stdout.write(f"    {count} times {text}\n")
            sys.stdout.flush()
            is_clean &= tally.is_clean
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
