"""The memory plan, and the file against the graph, without running anything."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.emit import PteFile, read_program
from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.examination import Examination, Failure, emission_fault, failure_of_error
from exirkit.fuzz.oracles.oracle import Oracle
from exirkit.ir import DiagnosticError
from exirkit.runtime_ref import Runtime
from exirkit.verifiers import check_memory_plan


class MemoryPlan(Oracle):
    """No live value is overwritten, and the file states what the graph states."""

    name = "memory-plan"
    title = "the checker of memory plans, and static checks of the file, by itself and against the graph"
    cost = 40
    needs = ("file",)
    suspects = ("earlier oracles", "allocation", "loader", "stage")
    former_name = "O4"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield findings of the static checks."""
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
                yield Failure(
                    self.name, f"finding {one.code}", f"{method}: {one.render()}", "planner", one.location.node
                )
        try:
            file = read_program(lowering.data)
            Runtime.get().load_program(file)
        except DiagnosticError as error:
            yield failure_of_error(error, self.name, "emitter")
            return
        # What another compiler was asked for is not known.
        own = isinstance(examination.compiler, ExirkitCompiler)
        if own and (shifted := _shifted_segment(file, choices.config().segment_alignment)) is not None:
            yield Failure(self.name, "segment not aligned", shifted, "emitter")
        for method, program in lowering.planned.items():
            fault = emission_fault(program, file, method)
            if fault is not None:
                message = f"{method}: %{fault[0]}: {fault[1]}"
                yield Failure(self.name, "file and graph differ", message, "emitter", fault[0])


def _shifted_segment(file: PteFile, alignment: int) -> str | None:
    """Return what is wrong where a segment does not start in the file at a multiple of the alignment."""
    base = file.header.segment_base_offset if file.header is not None else 0
    for number, segment in enumerate(file.program.segments):
        if (start := base + segment.offset) % alignment:
            return f"segment {number} starts at byte {start} of the file, which is not a multiple of {alignment}"
    return None
