"""Which constants of a program lie in data files beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import EXTERNAL_DATA_KEY, Diagnostic, ProgramInterface, UsageError, copy_program
from exirkit.passes import ExecutorchBackendConfig

DEFAULT_FILE = "_default_external_constant"
"""Name of the data file of constants for which no other is asked."""

# In the names of placeholders: constants of the code rather than weights, and numbers that became tensors.
_OF_THE_CODE = ("_lifted_tensor", "c_scalar")

FileOfConstant = Callable[[Node], str | None]


def has_external_constants(config: ExecutorchBackendConfig) -> bool:
    """Return whether anything is to lie in a data file."""
    return bool(config.external_constants) or config.external_mutable_weights


def mark_external_constants(
    programs: Mapping[str, ExportedProgram], config: ExecutorchBackendConfig
) -> dict[str, ExportedProgram]:
    """Return copies of programs in which the placeholders of external constants say in which file these are to lie.

    Args:
        programs: Edge programs by method name.
        config: Which constants are external.

    Raises:
        UsageError: EK769, the function of the user returns something else than the name of a file.
    """
    return {name: _marked(program, config) for name, program in programs.items()}


def file_of_constant(config: ExecutorchBackendConfig) -> FileOfConstant:
    """Return what tells, of a placeholder in a lowered program, the data file of its constant.

    Without folding that is what was marked before anything was lowered; with it, the function of the user is asked
    about what lowering has made.
    """
    if config.fold_external_constants and config.external_constants:
        return lambda node: node.meta.get(EXTERNAL_DATA_KEY) or _file(node, config.external_constants)
    return lambda node: node.meta.get(EXTERNAL_DATA_KEY)


def _marked(program: ExportedProgram, config: ExecutorchBackendConfig) -> ExportedProgram:
    made = copy_program(program)
    interface = ProgramInterface.of(made)
    trained = set(interface.trained)
    for node in interface.inputs:
        if not interface.is_stored(node):
            continue
        file = None
        if node in trained:
            file = DEFAULT_FILE if config.external_mutable_weights else None
        elif interface.is_written(node):
            continue
        elif config.external_constants and not config.fold_external_constants:
            file = _file(node, config.external_constants)
        if file is not None:
            node.meta[EXTERNAL_DATA_KEY] = file
    return made


def _file(node: Node, wanted: bool | FileOfConstant) -> str | None:
    if any(part in node.name for part in _OF_THE_CODE):
        return None
    if not callable(wanted):
        return DEFAULT_FILE
    found: Any = wanted(node)
    if found is None:
        return None
    is_name = isinstance(found, str) and found.removesuffix(".ptd") not in ("", "..") and PurePath(found).name == found
    if not is_name:
        raise UsageError(
            Diagnostic.of("EK769", f"external_constants returns {found!r} for the placeholder {node.name}")
        )
    name: str = found.removesuffix(".ptd")
    return name
