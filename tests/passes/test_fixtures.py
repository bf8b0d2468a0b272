"""Passes on programs in text form: what they make of them, and that what they make is right.

After a deliberate change: `UPDATE_SNAPSHOTS=1 pytest tests/passes/test_fixtures.py` (in one process) writes what comes
after; read the difference before it is committed.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines the operators of quantization
from tests.ir.program_snapshot import agrees
from tests.passes.fixtures.cases import Case, cases, rewrite
from tests.passes.graph_text import graph_text
from tests.passes.lowering import run
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from exirkit.fuzz.programs import Program, Run, build, inputs_of, parse_program, run_eagerly
from exirkit.fuzz.programs.model import Contents
from exirkit.ir import DiagnosticError, EdgeProgramVerifier, GraphEditor, copy_program
from exirkit.passes import Pass, decomposition_passes, run_passes, to_edge_passes
from exirkit.passes.contract import PassRegistry
from exirkit.verifiers import check_form, check_metadata

UPDATE = os.environ.get("UPDATE_SNAPSHOTS") == "1"
CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=[f"{case.file.stem}: {case.name}" for case in CASES])
def test_fixture(case: Case) -> None:
    program = read_program(case)
    before = given(case, program)
    text = graph_text(before)
    changed = copy_program(before)
    try:
        passes = list(made(case.settings.passes))
        run_passes(GraphEditor(changed), passes)
    except DiagnosticError as error:
        found = [f"{one.code} {one.location.node or ''}".strip() + f": {one.message}\n" for one in error.diagnostics]
        expect(case, "error", "".join(found))
        return
    assert graph_text(before) == text, "the pass has changed its input"
    report: Any = getattr(passes[-1], "reports", [None])[-1]
    reported = "".join(f"# {name}: {getattr(report, name)}\n" for name in case.settings.report)
    expect(case, "after", "# unchanged\n" + reported if graph_text(changed) == text else reported + graph_text(changed))
    agrees(changed)
    assert check_form(changed) == []
    assert check_metadata(changed) == []
    assert_same_results(program, changed, case.settings.tolerance)
    if case.settings.stable:
        assert not passes[-1].run(GraphEditor(changed)).modified, "a second run finds something to do"


def read_program(case: Case) -> Program:
    """Read the program before; where it has no runs, add two, at the smallest and at larger sizes."""
    program = parse_program("program(1)\n" + case.before.removeprefix("program(1)\n"), file=str(case.file))
    if program.runs:
        return program
    inputs = program.methods[0].inputs
    sizes = [{one.name: min(one.high, one.low + more) for one in program.symbols} for more in (0, 5)]
    runs = [
        Run("forward", each, {one.name: Contents("dyadic", seed=seed + place) for place, one in enumerate(inputs)})
        for seed, each in enumerate(sizes, 1)
    ]
    return dataclasses.replace(program, runs=tuple(runs))


def given(case: Case, program: Program) -> ExportedProgram:
    """Return the input of the passes that are tested."""
    built = copy_program(build(program)["forward"], verifier=EdgeProgramVerifier)
    run_passes(GraphEditor(built), list(made(case.settings.given)))
    return built


def made(listed: list[str | dict[str, dict[str, Any]]]) -> Iterator[Pass]:
    registry = PassRegistry()
    for one in listed:
        ((name, options),) = one.items() if isinstance(one, dict) else ((one, {}),)
        if name == "to-edge":
            yield from [*decomposition_passes(), *to_edge_passes(**options)]
            continue
        found = registry.find(name)
        assert found is not None, name
        yield found.build(found.options.model_validate(options))


def expect(case: Case, kind: str, text: str) -> None:
    if UPDATE:
        rewrite(case, kind, text)
    else:
        assert f"--- {kind}\n{text}" == f"--- {case.kind}\n{case.after}", "UPDATE_SNAPSHOTS=1 writes what is expected"


def assert_same_results(program: Program, changed: ExportedProgram, tolerance: float) -> None:
    """Compare the runs of a program with eager PyTorch: outputs, buffers and inputs that are written to."""
    state = {name: one.detach().clone() for name, one in {**changed.state_dict, **changed.constants}.items()}
    for one, wanted in zip(program.runs, run_eagerly(program), strict=True):
        inputs = [each.clone() for each in inputs_of(program, one)]
        values = run(changed, inputs, state)
        specs = changed.graph_signature.output_specs
        outputs = [value for value, spec in zip(values, specs, strict=True) if spec.target is None]
        torch.testing.assert_close(outputs, list(wanted.outputs), rtol=tolerance, atol=tolerance, equal_nan=True)
        written = [(value, spec) for value, spec in zip(values, specs, strict=True) if spec.target is not None]
        for value, spec in written:
            buffers = wanted.buffers if spec.kind is OutputKind.BUFFER_MUTATION else wanted.inputs
            torch.testing.assert_close(value, buffers[str(spec.target)], rtol=tolerance, atol=tolerance)
        state.update({str(spec.target): value.clone() for value, spec in written})
