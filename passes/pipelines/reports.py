"""What a run of a pipeline says about itself."""

from __future__ import annotations

from dataclasses import dataclass

from torch.export import ExportedProgram


@dataclass(frozen=True, slots=True)
class StageReport:
    """What one run of one stage did.

    Attributes:
        number: Place of the stage: `3`, or `3.2` inside stage 3.
        name: What the stage is called.
        round: Which round of the innermost `repeat`, from 1; 0 outside of one.
        modified: Whether the program differs from before.
        nodes_before: Nodes of the graph before.
        nodes_after: Nodes of the graph afterwards.
        created: How many nodes are new; 0 for passes over graph modules, which do not tell.
        erased: How many nodes are gone; likewise.
        changed: How many nodes that were there before and are still there differ; likewise.
        seconds: Wall time.
    """

    number: str
    name: str
    round: int
    modified: bool
    nodes_before: int
    nodes_after: int
    created: int
    erased: int
    changed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What came out of a run.

    Attributes:
        program: The new program.
        reports: What the stages did, in the order in which they ran; groups and repetitions themselves have none.
        is_complete: Whether the last stage was reached.
    """

    program: ExportedProgram
    reports: tuple[StageReport, ...]
    is_complete: bool

    def table(self) -> str:
        """Return the reports as text, a line for each stage."""
        lines = [f"{'stage':<8}{'name':<34}{'nodes':>14}  {'ms':>8}  changes"]
        for one in self.reports:
            nodes = f"{one.nodes_before} -> {one.nodes_after}"
            counts = f"+{one.created} -{one.erased} ~{one.changed}" if one.modified else "none"
            name = one.name + (f" (round {one.round})" if one.round else "")
            lines.append(f"{one.number:<8}{name:<34}{nodes:>14}  {one.seconds * 1e3:>8.2f}  {counts}")
        return "\n".join(lines)
