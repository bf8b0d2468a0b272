"""The same planned programs with another memory plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram, ExportGraphSignature

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.ir import TensorSpec, copy_program
from exirkit.passes import ExecutorchBackendConfig, MemoryAlgoResult, MemoryPlanningPass, greedy, naive
from exirkit.program import ExecutorchProgramManager

from .examination import Examination


def _reversed(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: torch.fx.GraphModule,
    graph_signature: ExportGraphSignature | None,
    extra_padding: int = 0,
) -> MemoryAlgoResult:
    """Place the last tensors first, without reuse, behind a gap."""
    return naive(alignment, list(specs)[::-1], graph_module, graph_signature, extra_padding + alignment)


LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "naive": {"memory_planning_algo": naive},
    "aligned": {"alignment": 64},
    "whole objects": {"memory_planning_algo": partial(greedy, allow_overlapping_allocations=False)},
    "in place": {"in_place": True},
    "reversed": {"memory_planning_algo": _reversed},
}
"""Plans to try instead of the usual one, by name: arguments of the planning pass."""


def replanned(examination: Examination, layout: str) -> ExecutorchProgramManager:
    """Return the programs with another memory plan, and their file."""
    choices = examination.compiler if isinstance(examination.compiler, ExirkitCompiler) else ExirkitCompiler()
    planner = MemoryPlanningPass(
        **LAYOUTS[layout],
        alloc_graph_input=choices.alloc_graph_input,
        alloc_graph_output=choices.alloc_graph_output,
    )
    programs: dict[str, ExportedProgram] = {}
    for method, program in examination.lowering.planned.items():
        copied = copy_program(program)
        planner.run(copied.graph_module, copied.graph_signature)
        programs[method] = copied
    config = ExecutorchBackendConfig(emit_mutable_buffer_names=examination.trace.has_state)
    return ExecutorchProgramManager(programs, backend_config=config)
