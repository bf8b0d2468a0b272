"""Other values for the weights of exported programs, such as those of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch.export import ExportedProgram

from exirkit.ir import Diagnostic, ModelError, copy_program

_MOST_NAMED = 20


def with_weights(
    programs: Mapping[str, ExportedProgram], tensors: Mapping[str, torch.Tensor]
) -> dict[str, ExportedProgram]:
    """Return copies of programs whose parameters and buffers have other values.

    Args:
        programs: Programs by method name; they are not changed.
        tensors: Values by the names of parameters and persistent buffers, all of them, each with the dtype and shape
            that it has in the programs. Layouts stay those of the programs; a tensor that has that layout is shared,
            not copied, so that weights that are mapped from a file stay mapped.

    Raises:
        ModelError: EK790, all names that are missing, that no program has, or whose dtype or shape is another one.
    """
    findings = list(_mismatches(programs, tensors))
    if findings:
        rest = len(findings) - _MOST_NAMED
        notes = (f"and {rest} more",) if rest > 0 else ()
        raise ModelError([Diagnostic.of("EK790", text, notes=notes) for text in findings[:_MOST_NAMED]])
    return {name: _replaced(program, tensors) for name, program in programs.items()}


def _mismatches(programs: Mapping[str, ExportedProgram], tensors: Mapping[str, torch.Tensor]) -> Iterator[str]:
    known: dict[str, torch.Tensor] = {}
    for program in programs.values():
        known.update(program.state_dict)
    yield from (f"the model has no weight {name!r}" for name in sorted(tensors.keys() - known.keys()))
    for name, old in known.items():
        new = tensors.get(name)
        if new is None:
            yield f"there is no value for {name!r}"
        elif (new.dtype, new.shape) != (old.dtype, old.shape):
            yield f"{name!r} is {_type(old)}, and its value {_type(new)}"


def _type(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _replaced(program: ExportedProgram, tensors: Mapping[str, torch.Tensor]) -> ExportedProgram:
    made = copy_program(program)
    for name, old in program.state_dict.items():
        new = tensors[name].detach()
        if new.stride() != old.stride():
            # With the strides that the graph records for it.
            new = torch.empty_strided(old.shape, old.stride(), dtype=old.dtype).copy_(new)
        is_parameter = isinstance(old, torch.nn.Parameter)
        made.state_dict[name] = torch.nn.Parameter(new, requires_grad=old.requires_grad) if is_parameter else new
    return made
