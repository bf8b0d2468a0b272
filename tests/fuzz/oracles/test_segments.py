"""Segments of files start where they were asked to."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.mutants.fresh_mutants import LIST, read_mutants

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.fuzz.compilers import ExirkitCompiler, FunctionCompiler
from exirkit.fuzz.mutants import applied
from exirkit.fuzz.mutants.model import named
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import parse_program

_SHIFTED = named("segments-right-behind-the-program", read_mutants(LIST.with_name("mutants_sixth_set.yaml")))


@pytest.mark.parametrize("alignment", [None, 64])
def test_a_segment_that_is_not_aligned_is_found(alignment: int | None) -> None:
    program, compiler = parse_program(_SHIFTED.program), ExirkitCompiler(constant_tensor_alignment=alignment)
    assert check(program, compiler=compiler).is_good
    with applied(_SHIFTED):
        (failure,) = check(program, compiler=compiler).failures
    assert (failure.oracle, failure.symptom) == ("memory-plan", "segment not aligned")
    assert "which is not a multiple of 128" in failure.message


def test_what_another_compiler_was_asked_for_is_not_known() -> None:
    def lower(programs: Any) -> bytes:
        return to_edge(dict(programs)).to_executorch(ExecutorchBackendConfig(segment_alignment=16)).buffer

    program = parse_program(_SHIFTED.program)
    assert check(program, compiler=FunctionCompiler(lower), oracles=("memory-plan",)).is_good
