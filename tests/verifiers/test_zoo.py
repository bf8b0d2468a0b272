"""Nothing right is refused: the models of the zoo have no findings in any dialect, nor between any two passes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.models.case import ModelCase
from tests.models.zoo import CASES
from torch.export import ExportedProgram

from exirkit import Diagnostic, ExecutorchBackendConfig, Pipeline, to_edge
from exirkit.passes import shipped_text
from exirkit.verifiers import EXIREdgeDialectVerifier, check_memory_plan, check_program
from exirkit.verifiers.program_check import DialectName

# Lowered by one pipeline each; with checks after every stage.
PIPELINES = ("to_edge", "to_executorch")


def complaints(programs: Mapping[str, ExportedProgram], dialect: DialectName) -> list[str]:
    found: list[Diagnostic] = []
    for program in programs.values():
        found += check_program(program, dialect, debug_handles=dialect == "edge")
        if dialect == "executorch":
            found += check_memory_plan(program.graph_module, program.graph_signature)
    return [each.render() for each in found]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_valid_programs_have_no_findings(case: ModelCase) -> None:
    programs = case.make().export()
    assert complaints(programs, "exported") == []
    verified = [shipped_text(name).replace("verify: none", "verify: each") for name in PIPELINES]
    first, second = map(Pipeline.parse, verified)
    edge = to_edge(programs, pipeline=first)
    methods = {name: edge.exported_program(name) for name in edge.methods}
    assert complaints(methods, "edge") == []
    for program in methods.values():
        EXIREdgeDialectVerifier()(program)
    for level in (0, 2):
        config = ExecutorchBackendConfig(optimization_level=level)
        lowered = edge.to_executorch(config, pipeline=second if level == 0 else None)
        assert complaints({name: lowered.exported_program(name) for name in lowered.methods}, "executorch") == []
