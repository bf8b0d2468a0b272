"""Developer tools: bundled programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tests.diagnostics.provocation import provokes

from exirkit import to_edge
from exirkit.cli.commands.bundle import bundled_methods
from exirkit.devtools import (
    Bundle,
    BundledProgram,
    MethodTestCase,
    MethodTestSuite,
    serialize_from_bundled_program_to_flatbuffer,
)
from exirkit.emit import read_program

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
