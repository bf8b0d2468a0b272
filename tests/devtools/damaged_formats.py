"""Damage files of each format at random and, in flatbuffers, in every field; count what reading them ends with.

Usage: python -m tests.devtools.damaged_formats [--mutations N] [--torch-share N] [--figures FILE] [FORMAT ...]

Fields: each aligned word in turn becomes each of a few words that readers trust too easily. Mutations: N damaged copies
of each file; of archives mostly in one member, and in the structure of documents. The exit code is 1 unless every
reading ends with a file or with the documented error, in time, without memory that grows, and with the process alive.
Reading means everything: each tensor is made, each program in the file is read. Of damaged programs in archives,
torch, which takes tens of milliseconds for one, makes one in `--torch-share`: see `torch_readings`.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import multiprocessing
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tests.devtools.damaged_archives import (
    archive_mutations,
    certificate_bytes,
    document_mutations,
    etrecord_bytes,
    exported,
    failure_bundle_bytes,
    header_mutations,
    packaged_programs_bytes,
    read_all_of_certificate,
    read_all_safetensors,
    read_etrecord,
    read_exported,
    read_failure_bundle,
    safetensors_bytes,
    saved_program_bytes,
)
from tests.devtools.torch_readings import TorchReadings, sparing
from tests.runtime_ref.damage_campaign import Tally, campaign, damaged_fields, load_program, resident_bytes
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

# More than this at once is too much for files of some ten thousand bytes.
PEAK_BYTES = 512 << 20


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
    "failure": _archive(lambda: failure_bundle_bytes(stores_weights=True), read_failure_bundle, UsageError, "EK772"),
    "failure, drawn": _archive(
        lambda: failure_bundle_bytes(stores_weights=False), read_failure_bundle, UsageError, "EK772"
    ),
    "certificate": Format(
        certificate_bytes, read_all_of_certificate, (ModelError,), frozenset({"EK781"}), document_mutations, False
    ),
    "safetensors": Format(
        safetensors_bytes,
        read_all_safetensors,
        (ModelError,),
        frozenset({"EK546"}),
        header_mutations,
        has_fields=False,
    ),
}


@dataclass
class Readings:
    """What readings of damaged copies of one file ended with.

    Attributes:
        tally: The ends.
        programs: How often torch made a program, by the kinds of `TorchReadings`, and `stood in` for files whose
            reading ended well with another program instead of one that torch was not given.
        seconds: How long they took, of processor time.
        peak_bytes: How much more memory than at the start was needed at once.
    """

    tally: Tally
    programs: Counter[str]
    seconds: float = 0.0
    peak_bytes: int = 0

    @property
    def is_clean(self) -> bool:
        return self.tally.is_clean and self.peak_bytes < PEAK_BYTES

    def add(self, other: Readings) -> None:
        """Add other readings."""
        self.tally.add(other.tally)
        self.programs += other.programs
        self.seconds += other.seconds
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)

    def figures(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "readings": self.tally.loads,
            "ends": dict(sorted(self.tally.outcomes.items())),
            "undocumented": dict(self.tally.undocumented.most_common(20)),
            "programs": dict(sorted(self.programs.items())),
            "slowest_ms": round(self.tally.slowest_s * 1e3, 2),
            "processor_ms_of_one": round(self.seconds * 1e3 / max(self.tally.loads, 1), 3),
            "peak_mib": self.peak_bytes >> 20,
            "is_clean": self.is_clean,
        }


def readings_of(name: str, kind: str, data: bytes, count: int, seed: int, torch_readings: TorchReadings) -> Readings:
    """Read damaged copies."""
    known = FORMATS[name]
    programs = torch_readings.counts = Counter()

    def read(damaged: bytearray) -> None:
        torch_readings.stands_in = False
        known.read(damaged)
        programs["stood in"] += torch_readings.stands_in

    copies = damaged_fields(data, len(data)) if kind == "fields" else known.damaged(data, count, seed)
    base, started = resident_bytes(), time.process_time()
    tally = campaign(copies, count, Tally(read, known.documented, known.codes))
    tally.read = known.read
    if torch_readings.changed_documents():
        tally.undocumented["a document that is parsed once was changed by a reading"] += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Readings(tally, programs, time.process_time() - started, max(0, peak - base))


def in_a_process(name: str, kind: str, data: bytes, count: int, seed: int, torch_readings: TorchReadings) -> Readings:
    """Read damaged copies in a process that may die, which is a finding."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=lambda: sender.send(readings_of(name, kind, data, count, seed, torch_readings)), daemon=True
    )
    process.start()
    sender.close()
    try:
        found: Readings = receiver.recv()
    except EOFError:
        found = Readings(FORMATS[name].tally(), Counter())
        found.tally.undocumented[f"the process died, {kind}, seed {seed}"] += 1
    process.join()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=", ".join(FORMATS))
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--chunk", type=int, default=5000, help="readings of a process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--torch-share", type=int, default=1, metavar="N", help="torch makes one damaged program in N")
    parser.add_argument("--figures", type=Path, metavar="FILE", help="JSON, written again after each process")
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}\n")
    warnings.simplefilter("ignore")
    logging.disable()
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"seed": options.seed, "torch_share": options.torch_share}
    is_clean = True
    for name in options.formats or FORMATS:
        data = FORMATS[name].make()
        torch_readings = TorchReadings(options.torch_share)
        with sparing(torch_readings, lambda name=name, data=data: FORMATS[name].read(bytearray(data))):  # type: ignore[misc]
            # What torch and the undamaged file need is not looked through again in each process.
            gc.collect()
            gc.freeze()
            for kind, found in _readings_of_format(name, data, options, torch_readings):
                figures.setdefault(name, {"bytes": len(data)})[kind] = found.figures()
                if options.figures is not None:
                    options.figures.write_text(json.dumps(figures, indent=1) + "\n")
        sys.stderr.write("\n")
        for kind, text in figures[name].items():
            if kind != "bytes":
                sys.stdout.write(f"{name} {kind}: {json.dumps(text)}\n")
                is_clean &= text["is_clean"]
        sys.stdout.flush()
    return 0 if is_clean else 1


def _readings_of_format(
    name: str, data: bytes, options: argparse.Namespace, torch_readings: TorchReadings
) -> Iterator[tuple[str, Readings]]:
    """Yield the kind of damage and what is known so far, after each process."""
    chunks = [("fields", 2 * len(data), 0)] if FORMATS[name].has_fields else []
    for start in range(0, options.mutations, options.chunk):
        count = min(options.chunk, options.mutations - start)
        chunks.append(("mutations", count, options.seed * 1_000_003 + start))
    totals: dict[str, Readings] = {}
    for number, (kind, count, seed) in enumerate(chunks):
        found = in_a_process(name, kind, data, count, seed, torch_readings)
        if kind in totals:
            totals[kind].add(found)
        else:
            totals[kind] = found
        sys.stderr.write(f"\r{name}: {number + 1} of {len(chunks)} ")
        yield kind, totals[kind]


if __name__ == "__main__":
    sys.exit(main())
