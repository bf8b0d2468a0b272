"""O4 and O9: the memory plan holds, and another one gives the same results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, ClassVar

import torch
from torch.export import ExportedProgram, ExportGraphSignature

from exirkit.emit import read_program
from exirkit.fuzz.compilers.compilers import ExirkitCompiler
from exirkit.fuzz.examination.comparing import difference
from exirkit.fuzz.examination.emission import emission_fault
from exirkit.fuzz.examination.examination import Examination, NotRunError
from exirkit.fuzz.examination.file_runs import run_file
from exirkit.fuzz.examination.symptoms import failure_of_error
from exirkit.fuzz.examination.verdict import Failure
from exirkit.ir import DiagnosticError, TensorSpec, copy_program
from exirkit.passes import ExecutorchBackendConfig, MemoryAlgoResult, MemoryPlanningPass, greedy, naive
from exirkit.program import ExecutorchProgramManager
from exirkit.runtime_ref import Runtime
from exirkit.verifiers import check_memory_plan


class PlanHolds:
    """O4: no live value is overwritten, and the file says what the graph says."""

    id: ClassVar[str] = "O4"
    title: ClassVar[str] = "the checker of memory plans, and static checks of the file, by itself and against the graph"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        lowering = examination.lowering
        choices = examination.compiler if isinstance(examination.compiler, ExirkitCompiler) else ExirkitCompiler()
        for method, program in lowering.planned.items():
            findings = check_memory_plan(
                program.graph_module,
                program.graph_signature,
                alloc_graph_input=choices.alloc_graph_input,
                alloc_graph_output=choices.alloc_graph_output,
                alignment=choices.alignment,
                in_place=choices.in_place,
            )
            for one in findings:
                yield Failure(self.id, f"finding {one.code}", f"{method}: {one.render()}", "planner", one.location.node)
        try:
            file = read_program(lowering.data)
            Runtime.get().load_program(file)
        except DiagnosticError as error:
            yield failure_of_error(error, self.id, "emitter")
            return
        for method, program in lowering.planned.items():
            fault = emission_fault(program, file, method)
            if fault is not None:
                message = f"{method}: %{fault[0]}: {fault[1]}"
                yield Failure(self.id, "the file does not say what the graph says", message, "emitter", fault[0])


def _reversed(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: torch.fx.GraphModule,
    graph_signature: ExportGraphSignature | None,
    extra_padding: int = 0,
) -> MemoryAlgoResult:
    """Place the last tensors first, without reuse, behind a gap."""
    return naive(alignment, list(specs)[::-1], graph_module, graph_signature, extra_padding + alignment)


LAYOUTS: dict[str, dict[str, Any]] = {
    "naive": {"memory_planning_algo": naive},
    "aligned": {"alignment": 64},
    "whole objects": {"memory_planning_algo": partial(greedy, allow_overlapping_allocations=False)},
    "in place": {"in_place": True},
    "reversed": {"memory_planning_algo": _reversed},
}
"""Plans to try in the place of the usual one, by name: arguments of the planning pass."""


def replanned(examination: Examination, layout: str) -> bytes:
    """Return the file with another memory plan."""
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
    return ExecutorchProgramManager(programs, backend_config=config).buffer


class OtherLayouts:
    """O9: the results do not depend on where values lie."""

    id: ClassVar[str] = "O9"
    title: ClassVar[str] = "another memory plan gives the same results"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        if not examination.lowering.planned:
            raise NotRunError("the compiler is a black box")
        usual = examination.results
        layout = sorted(LAYOUTS)[examination.seed % len(LAYOUTS)]
        try:
            data = replanned(examination, layout)
            for method in examination.methods:
                calls, buffers = examination.inputs[method], examination.buffers_of(method)
                others = run_file(data, method, calls, buffers, is_knowing=False)
                for index, (one, other) in enumerate(zip(usual[method], others, strict=True)):
                    found = difference(list(other.outputs), list(one.outputs))
                    found = found or difference(list(other.state.values()), list(one.state.values()))
                    if found is not None:
                        message = f"{method}, run {index + 1}: with plan {layout}: {found[1]}"
                        yield Failure(self.id, f"layout {found[0]}", message, "planner", details={"layout": layout})
        except DiagnosticError as error:
            yield failure_of_error(error, self.id, "planner")
