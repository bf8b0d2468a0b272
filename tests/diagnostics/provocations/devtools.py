"""Developer tools: bundled programs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from tests.diagnostics.provocation import provokes

from exirkit import to_edge
from exirkit.cli.commands.devtools.bundle import bundled_methods
from exirkit.devtools import (
    Bundle,
    BundledProgram,
    ETRecord,
    Inspector,
    MethodTestCase,
    MethodTestSuite,
    TimeScale,
    parse_etrecord,
    serialize_from_bundled_program_to_flatbuffer,
)
from exirkit.emit import read_program, trace_file
from exirkit.ir import Diagnostic
from exirkit.runtime_ref import Tracer

X = torch.ones(1, 2)


def program() -> Any:
    return to_edge(torch.export.export(torch.nn.ReLU(), (X,))).to_executorch()


def bundle(*cases: MethodTestCase) -> Bundle:
    suites = [MethodTestSuite("forward", cases)]
    return Bundle.read(serialize_from_bundled_program_to_flatbuffer(BundledProgram(program(), suites)))


@provokes("EK708")
def text_as_an_input(_: Path) -> None:
    MethodTestCase([X, "fast"])


@provokes("EK709")
def suite_of_a_method_that_there_is_not(_: Path) -> None:
    BundledProgram(program(), [MethodTestSuite("backward", [MethodTestCase([X])])])


@provokes("EK710")
def input_of_another_dtype(_: Path) -> None:
    bundle(MethodTestCase([X.double()]))


@provokes("EK739")
def record_without_programs(scratch: Path) -> None:
    ETRecord().save(scratch / "model.etrecord")


@provokes("EK740")
def program_that_torch_does_not_serialise(scratch: Path) -> object:
    edge = to_edge(torch.export.export(torch.nn.ReLU(), (X,)), generate_etrecord=True)
    record = edge.to_executorch().get_etrecord()
    record.programs["forward"] = None  # type: ignore[assignment]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record.save(scratch / "model.etrecord")
    text = str(caught[-1].message)
    return Diagnostic.of("EK740", text.partition(": ")[2])


def trace() -> bytes:
    return trace_file(Tracer().trace()).to_bytes()


@provokes("EK729")
def inspector_of_nothing(_: Path) -> None:
    Inspector()


@provokes("EK730")
def seconds_of_cycles(_: Path) -> None:
    Inspector(etdump_data=trace(), source_time_scale=TimeScale.CYCLES)


@provokes("EK747")
def gap_without_values(_: Path) -> None:
    edge = to_edge(torch.export.export(torch.nn.ReLU(), (X,)), generate_etrecord=True)
    Inspector(etdump_data=trace(), etrecord=edge.to_executorch().get_etrecord()).calculate_numeric_gap("MSE")


@provokes("EK748")
def distance_that_there_is_not(_: Path) -> None:
    Inspector(etdump_data=trace()).calculate_numeric_gap("L7")


@provokes("EK745")
def archive_that_is_not_a_record(scratch: Path) -> None:
    torch.save([1], scratch / "model.etrecord")
    parse_etrecord(scratch / "model.etrecord")


@provokes("EK746")
def record_that_was_not_asked_for(_: Path) -> None:
    program().get_etrecord()


@provokes("EK720")
def case_that_there_is_not(_: Path) -> None:
    bundle(MethodTestCase([X])).run("forward", 1)


@provokes("EK727")
def constant_method_alone(_: Path) -> None:
    edge = to_edge(torch.export.export(torch.nn.ReLU(), (X,)), constant_methods={"width": 2})
    with read_program(edge.to_executorch().buffer) as file:
        bundled_methods(file, "width")


@provokes("EK728")
def wrong_expectation(_: Path) -> object:
    return list(bundle(MethodTestCase([X], [X + 1])).run("forward", 0).differences)


@provokes("EK785")
def record_filled_twice(_: Path) -> None:
    record, exported = ETRecord(), torch.export.export(torch.nn.ReLU(), (X,))
    record.add_exported_program(exported)
    record.add_exported_program(exported)


@provokes("EK786")
def cases_without_expectations(_: Path) -> None:
    suites = [MethodTestSuite("forward", [MethodTestCase([X])])]
    ETRecord().update_reference_outputs(BundledProgram(program(), suites))


@provokes("EK787")
def module_in_a_record(_: Path) -> None:
    ETRecord().add_edge_dialect_program(torch.nn.ReLU())
