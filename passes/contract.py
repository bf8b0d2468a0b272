"""The contract of exirkit's own passes: one class, one name, edits only through the editor it is given."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch.export import ExportedProgram

from exirkit.ir import ContractError, Diagnostic, DiagnosticError, GraphEditor, copy_program


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one run of one pass did.

    Attributes:
        name: Name of the pass in kebab case.
        modified: Whether the program differs from before.
        created: How many nodes are new.
        erased: How many nodes are gone.
        changed: How many nodes that were there before and are still there differ.
        seconds: Wall time.
    """

    name: str
    modified: bool
    created: int
    erased: int
    changed: int
    seconds: float


class Pass(ABC):
    """An edit of a program.

    A pass looks at every node at most a few times, changes what it has to through the editor, and never runs the graph.
    Objects carry options only: one object can be used for any number of programs.
    """

    name: ClassVar[str]

    @abstractmethod
    def edit(self, editor: GraphEditor) -> None:
        """Make the edits; the caller has opened a transaction and rolls it back if this raises."""

    def run(self, editor: GraphEditor) -> PassReport:
        """Edit within one transaction and report.

        Raises:
            DiagnosticError: What the pass found wrong with the program; nothing was changed.
            ContractError: EK421, the pass failed in another way; nothing was changed.
        """
        start = time.perf_counter()
        try:
            with editor.transaction(self.name) as transaction:
                self.edit(editor)
        except DiagnosticError:
            raise
        except Exception as error:
            raise ContractError(
                Diagnostic(
                    code="EK421",
                    message=f"pass {self.name} failed: {type(error).__name__}: {error}",
                    notes=("the program is as it was before the pass",),
                    hint="report this with the program, if the pass is one of exirkit's own",
                )
            ) from error
        effect = transaction.effect
        return PassReport(
            name=self.name,
            modified=transaction.modified,
            created=len(effect.created),
            erased=len(effect.erased),
            changed=len(effect.changed),
            seconds=time.perf_counter() - start,
        )

    def apply(self, program: ExportedProgram) -> tuple[ExportedProgram, PassReport]:
        """Run on a copy of a program.

        Returns:
            The copy (the program itself if nothing was modified), and the report.
        """
        copied = copy_program(program)
        report = self.run(GraphEditor(copied))
        return (copied if report.modified else program), report

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def run_passes(editor: GraphEditor, passes: Sequence[Pass]) -> list[PassReport]:
    """Run passes one after another on the editor's program and return their reports."""
    return [one.run(editor) for one in passes]
