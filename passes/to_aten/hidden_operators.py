"""Operators that a backend wants and that stand in others, such as linear layers in an LSTM, as calls of their own."""

from __future__ import annotations

from collections.abc import Iterable

from torch._export.utils import _is_preservable_cia_op, _special_op_to_preserve_cia
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.exported_program import _override_composite_implicit_decomp

from exirkit.ir import GraphEditor, copy_program

from .decompose_to_core import DecomposeToCore
from .decomposition_recording import Recording
from .generate_debug_handles import GenerateDebugHandles
from .whole_graph_needed import WholeGraphNeededError


class _ExposeOperators(DecomposeToCore):
    """Takes apart what contains certain operators, and leaves these and all else as they are."""

    name = "expose-operators"

    def _is_kept(self, recording: Recording) -> bool:
        return not any(step.target in self.preserve for step in recording.steps)


def expose_operators(program: ExportedProgram, wanted: Iterable[OpOverload]) -> ExportedProgram:
    """Return a copy of a program in which operators that others consist of are calls.

    Args:
        program: As torch.export made it; it is not changed.
        wanted: The operators. What contains none of them stays as it is.

    Returns:
        The copy, or the program itself if nothing could be done about it.
    """
    operators = frozenset(wanted)
    # What torch itself takes apart before anybody is asked has to be kept by other means.
    composite = {op: _special_op_to_preserve_cia for op in operators if _is_preservable_cia_op(op)}
    copied = copy_program(program)
    # Before anything is taken apart, so that all parts of an operator share a handle.
    GenerateDebugHandles().run(GraphEditor(copied))
    try:
        with _override_composite_implicit_decomp(composite):
            _ExposeOperators(operators).run(GraphEditor(copied))
    except WholeGraphNeededError:
        return program
    return copied
