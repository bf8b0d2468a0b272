"""A pass manager over whole programs, for backends that run their own passes while they compile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

from torch.export import ExportedProgram, ExportGraphSignature
from torch.fx import GraphModule

from exirkit.ir import DiagnosticError, UsageError, Verifier, agreed_inputs, agreed_outputs
from exirkit.passes.export_pass.snapshot import remembering

from .base import (
    ExportedProgramPassBase,
    ExportedProgramPassResult,
    PassManager,
    history,
    name_of_pass,
    raised,
    run_graph_pass,
)

Constraint = Callable[[Any, Any], bool]


class ExportedProgramPassManager(PassManager):
    """Runs passes over graph modules and passes over programs, in order.

    The program that comes out shares graph, signature and tables with the one that goes in, as long as no pass makes
    others: a pass that was given the program when it was made edits that while it runs, and what it returns has to fit
    to it. `transform` of an `EdgeProgramManager` runs passes on a copy, and checks what they do to the outputs.

    Args:
        passes: Passes, in any nesting of lists.
        constraints: Functions `(first, second)` that say whether a pass may run before another.
        run_checks_after_each_pass: As for `PassManager`.
        suppress_check_failures: As for `PassManager`.
        steps: As for `PassManager`.

    Raises:
        UsageError: EK410, the order of the passes violates a constraint.

    Source: `ExportedProgramPassManager` of the ExecuTorch package.
    """

    def __init__(
        self,
        passes: Iterable[Any] | None = None,
        constraints: Iterable[Constraint] | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
        steps: int = 1,
    ) -> None:
        self.constraints = list(constraints or ())
        super().__init__(passes, run_checks_after_each_pass, suppress_check_failures, steps)

    def add_pass(self, pass_: Any) -> None:
        """Append a pass.

        Raises:
            UsageError: EK410, it is not a pass, or may not run behind those that are there.
        """
        for first in self.passes:
            if not all(allowed(first, pass_) for allowed in self.constraints):
                names = f"{name_of_pass(first)} would run before {name_of_pass(pass_)}"
                raise UsageError(code="EK410", message=f"{names}, which a constraint does not allow")
        if isinstance(pass_, ExportedProgramPassBase):
            self.passes.append(pass_)  # type: ignore[arg-type]
        else:
            super().add_pass(pass_)

    def __call__(  # type: ignore[override]
        self, exported_program: ExportedProgram, override_verifiers: Iterable[type[Verifier]] | None = None
    ) -> ExportedProgramPassResult:
        """Run the passes.

        Args:
            exported_program: The program; what passes edit in place is edited in it as well.
            override_verifiers: What torch checks of the dialect, instead of what the program says.

        Returns:
            The program after the passes, and whether one of them changed it.

        Raises:
            ModelError: EK414, the graph was malformed before the first pass (only with checks after each pass).
            ContractError: EK411 a pass raised, EK412 a pass returned no result, EK413 a check failed after a pass,
                EK113 a pass over a graph module changed the number of inputs or outputs.
        """
        program = copy(exported_program)
        if override_verifiers:
            program._verifiers = list(override_verifiers)
        self.check_input(program.graph_module)
        is_modified = False
        for _ in range(self.steps):
            program, changed = self._run_round(program)
            is_modified = is_modified or changed
            if not changed:
                break
        self.check_result(program.graph_module)
        return ExportedProgramPassResult(program, is_modified)

    def _run_round(self, program: ExportedProgram) -> tuple[ExportedProgram, bool]:
        is_modified = False
        for position, one in enumerate(self.passes):
            before = [name_of_pass(earlier) for earlier in self.passes[:position]]
            if isinstance(one, ExportedProgramPassBase):
                made = _run_on_program(one, program, before)
                program, changed = made.exported_program, made.modified
            else:
                with remembering(program.graph_module):
                    result = run_graph_pass(one, program.graph_module, before)
                changed = result.modified
                if changed:
                    program._graph_signature = updated_signature(program.graph_signature, result.graph_module)
                    program._graph_module = result.graph_module
            is_modified = is_modified or changed
            self.check_after(position, program.graph_module)
        return program, is_modified


def _run_on_program(
    one: ExportedProgramPassBase, program: ExportedProgram, before: list[str]
) -> ExportedProgramPassResult:
    try:
        made = one(program)
    except DiagnosticError as error:
        error.add_note(f"raised while pass {name_of_pass(one)} ran, {history(before)}")
        raise
    except Exception as error:
        raise raised(one, error, "EK411", (history(before),)) from error
    made.exported_program.graph_module.recompile()
    return made


def updated_signature(signature: ExportGraphSignature, module: GraphModule) -> ExportGraphSignature:
    """Return a signature with the names of the inputs and outputs of a graph.

    Args:
        signature: The signature of the graph as it was, with as many inputs and outputs.
        module: The graph as it is.

    Raises:
        ContractError: EK113, the graph has more or fewer of them.
    """
    inputs = agreed_inputs(module.graph, signature.input_specs)
    pairs = zip(signature.input_specs, inputs, strict=True)
    renamed = {old.arg.name: new.arg.name for old, new in pairs if old is not new}
    return ExportGraphSignature(inputs, agreed_outputs(module.graph, signature.output_specs, renamed))
