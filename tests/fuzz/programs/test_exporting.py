"""Programs as source code: they run as modules, and torch exports them to graphs of the same meaning."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.fuzz.programs.program_texts import TEXTS
from tests.fuzz.programs.test_building import assert_same, run_exported, same

from exirkit.fuzz.programs import Runner, eager_modules, export, inputs_of, parse_program, run_eagerly


@pytest.mark.parametrize("name", TEXTS)
def test_modules_mean_what_the_reference_says(name: str) -> None:
    program = parse_program(TEXTS[name])
    modules, runner = eager_modules(program), Runner(program)
    for run in program.runs:
        wanted = runner.run(run)
        given = inputs_of(program, run)
        with torch.no_grad():
            found: Any = modules[run.method](*given)
        assert len(found) == len(wanted.outputs)
        assert all(map(same, found, wanted.outputs))
        for one, tensor in wanted.buffers.items():
            assert same(modules[run.method].get_buffer(one), tensor)
        names = [one.name for method in program.methods if method.name == run.method for one in method.inputs]
        for one, tensor in wanted.inputs.items():
            assert same(given[names.index(one)], tensor)


@pytest.mark.parametrize("name", TEXTS)
def test_exports_mean_what_the_reference_says(name: str) -> None:
    program = parse_program(TEXTS[name])
    assert_same(run_exported(program, export(program)), run_eagerly(program))
