"""Everything that can be known to be wrong with a program of a dialect, at once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from torch.export import ExportedProgram

from exirkit.ir import Diagnostic

from .dialects import (
    check_aten_program,
    check_backend_program,
    check_dtypes,
    check_edge_program,
    check_executorch_program,
)
from .out_arguments import check_out_arguments
from .recorded_values import check_metadata
from .signature import check_debug_handles, check_signature, check_symbols
from .structure import check_calls, check_control_flow, check_structure
from .tensor_specs import check_specs

DialectName = Literal["exported", "aten", "edge", "backend", "executorch"]
Level = Literal["quick", "full"]


def check_form(program: ExportedProgram) -> list[Diagnostic]:
    """Make the checks that hold in every dialect and run nothing: structure, signature, arguments, bodies, symbols."""
    return [
        *check_structure(program),
        *check_signature(program),
        *check_calls(program),
        *check_control_flow(program),
        *check_symbols(program),
    ]


def check_program(
    program: ExportedProgram,
    dialect: DialectName,
    *,
    level: Level = "full",
    accepted: Collection[Any] = (),
    layouts: bool | None = None,
    debug_handles: bool = False,
    allow_missing_out: bool = False,
) -> list[Diagnostic]:
    """Make all checks of a dialect.

    Args:
        program: The program, with its signature and the bodies of its control flow.
        dialect: `exported`, as torch.export leaves programs: any ATen operator, views and writes included; `aten`: core
            operators; `edge`; `backend`; or `executorch`.
        level: `quick` reads the program; `full` also runs each operator on recorded values and looks its dtypes up.
        accepted: ATen overloads that are accepted although they are not core.
        layouts: Compare dim orders with those that operators make; where specs are there when absent.
        debug_handles: Ask for debug handles.
        allow_missing_out: Accept operators without out variant in the ExecuTorch dialect.

    Returns:
        All findings; those of the form of the graph first, because others may follow from them.
    """
    findings = check_form(program)
    findings += _legality(program, dialect, accepted, allow_missing_out)
    if dialect == "executorch":
        findings += [*check_out_arguments(program), *check_specs(program)]
    if debug_handles:
        findings += check_debug_handles(program)
    if level == "full":
        findings += check_metadata(program, layouts=dialect == "executorch" if layouts is None else layouts)
        if dialect in ("edge", "backend", "executorch"):
            findings += check_dtypes(program)
    return findings


def _legality(
    program: ExportedProgram, dialect: DialectName, accepted: Collection[Any], allow_missing_out: bool
) -> list[Diagnostic]:
    if dialect == "aten":
        return check_aten_program(program, exceptions=accepted)
    if dialect == "edge":
        return check_edge_program(program)
    if dialect == "backend":
        return check_backend_program(program)
    if dialect == "executorch":
        return check_executorch_program(program, allow_missing_out=allow_missing_out)
    return []
