"""Running an emitted program on our interpreter, with the state that it keeps between runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.export import ExportedProgram

from exirkit.emit import PteFile
from exirkit.ir import pytree
from exirkit.runtime_ref import OperatorRegistry, Runtime, Verification

from .graph_runs import GraphSession


@dataclass(frozen=True)
class FileResult:
    """What one run gave.

    Attributes:
        outputs: What the method returned.
        state: Copies of the buffers that the method writes to, by name, where the file keeps names.
    """

    outputs: list[Any]
    state: Mapping[str, torch.Tensor]


def run_file(
    data: bytes | PteFile,
    method: str,
    calls: Sequence[Sequence[Any]],
    buffers: Sequence[str] = (),
    *,
    is_sanitized: bool = True,
    views: Mapping[int, int] | None = None,
    in_place: bool = False,
    is_for_official: bool = False,
) -> list[FileResult]:
    """Load a program and run one of its methods again and again.

    Every second time its inputs lie in memory as no program declares them, as those of a caller may.

    Args:
        data: The file.
        method: Name of the method.
        calls: Inputs of every run.
        buffers: Names of buffers to read after every run.
        is_sanitized: Watch every byte of the arenas, which are poisoned before.
        views: For a sanitized run: the value whose memory each view without instruction shows.
        in_place: For a sanitized run: results may lie over arguments where their kernels allow it.
        is_for_official: It was lowered for the official runtime: kernels deviate from torch as those of that runtime.

    Raises:
        DiagnosticError: Whatever is wrong with the file or with a run.
    """
    given = None if views is None else {method: views}
    program = _runtime(is_for_official).load_program(
        data,
        verification=Verification.Minimal,
        sanitize=is_sanitized,
        views=given if is_sanitized else None,
        in_place=in_place and is_sanitized,
    )
    loaded = program.load_method(method)
    results: list[FileResult] = []
    for number, inputs in enumerate(calls):
        outputs = loaded.execute(_copied(inputs) if number % 2 == 0 else _scattered(inputs))
        results.append(FileResult(outputs, {name: loaded.get_attribute(name) for name in buffers}))
    return results


def _runtime(is_for_official: bool) -> Runtime:
    return _deviating_runtime() if is_for_official else Runtime.get()


@cache
def _deviating_runtime() -> Runtime:
    return Runtime(OperatorRegistry(deviations=True))


def run_in_turn(
    data: bytes,
    calls: Sequence[tuple[str, Sequence[Any]]],
    *,
    share_arenas: bool = False,
    is_for_official: bool = False,
) -> list[FileResult]:
    """Load all methods that are called, and call them in turn on one loaded program.

    Args:
        data: The file.
        calls: Method and inputs of every run.
        share_arenas: Methods have their arenas together, and with these the buffers that have one place.
        is_for_official: As for `run_file`.

    Raises:
        DiagnosticError: Whatever is wrong with the file or with a run.
    """
    program = _runtime(is_for_official).load_program(data, verification=Verification.Minimal, share_arenas=share_arenas)
    # Loading a method writes the initial values of its buffers.
    methods = {name: program.load_method(name) for name in sorted({name for name, _ in calls})}
    return [FileResult(methods[name].execute(_copied(inputs)), {}) for name, inputs in calls]


def run_function(function: Callable[..., Any] | ExportedProgram, calls: Sequence[Sequence[Any]]) -> list[FileResult]:
    """Run what a compiler made that makes no file.

    Args:
        function: Is called with inputs, and returns a tensor or several; or a program, which torch runs.
        calls: Inputs of every run.
    """
    if isinstance(function, ExportedProgram):
        session = GraphSession(function)
        return [FileResult(list(session.run(_copied(inputs)).outputs), {}) for inputs in calls]
    return [FileResult(list(pytree.tree_leaves(function(*_copied(inputs)))), {}) for inputs in calls]


def _copied(inputs: Sequence[Any]) -> list[Any]:
    """Return inputs that may be written: those that lie where the caller has them are, and are wanted again."""
    return [one.clone() if isinstance(one, torch.Tensor) else one for one in inputs]


def _scattered(inputs: Sequence[Any]) -> list[Any]:
    """Return inputs of the same elements, turned over in memory and with gaps."""
    return [_turned(one) if isinstance(one, torch.Tensor) and one.dim() > 0 else one for one in _copied(inputs)]


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    dims = tuple(reversed(range(tensor.dim())))
    memory = torch.zeros((*(tensor.shape[dim] for dim in dims), 2), dtype=tensor.dtype)
    return memory[..., 0].permute(dims).copy_(tensor)
