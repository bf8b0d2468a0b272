"""From a float program to its quantized form, by a quantizer as data and samples."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from exirkit.ir import Diagnostic, FakeTensor, UsageError, pytree
from exirkit.passes.quantizer.model import QuantizerPolicy
from exirkit.passes.quantizer.torchao_quantizer import data_quantizer

from .measuring import State

Sample = tuple[Any, ...]


def quantize_program(
    program: ExportedProgram,
    quantizer: QuantizerPolicy | str | Path,
    samples: Iterable[Sample],
    settings: Mapping[str, bool] | None = None,
) -> ExportedProgram:
    """Quantize a program: `prepare_pt2e`, the samples, `convert_pt2e`, and export again.

    Sizes that vary in the program vary in the quantized one.

    Args:
        program: The float program, as `torch.export.export` gives it.
        quantizer: A policy, a file, or the name of one that comes with exirkit: `xnnpack`.
        samples: Inputs for calibration, a tuple for each run, as the program takes them.
        settings: Choices of the quantizer by name.

    Raises:
        UsageError: EK418, a sample does not fit the program; EK440, there is no such setting; EK479, torchao is not
            installed.
        ModelError: EK438 to EK440, EK469, EK477, the quantizer is wrong or does not fit the model.
        OSError: The file cannot be read.
    """
    made = data_quantizer(quantizer, **(settings or {}))
    library = import_module("torchao.quantization.pt2e.quantize_pt2e")
    with warnings.catch_warnings(), torch.no_grad():
        # torchao warns of its own use of torch.
        warnings.simplefilter("ignore")
        module = program.module(check_guards=False)
        state = State(module)
        prepared = library.prepare_pt2e(module, made)
        try:
            example = _calibrate(prepared, program, samples, state)
            # Folding constants runs calls that write into state.
            converted = library.convert_pt2e(prepared)
        finally:
            state.restore()
        sizes = _varying_sizes(program)
        return torch.export.export(converted, *example, dynamic_shapes=sizes, strict=False)


def _calibrate(
    prepared: GraphModule, program: ExportedProgram, samples: Iterable[Sample], state: State
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Run samples through a prepared model, each from the same state, and return the first."""
    example: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    for place, sample in enumerate(samples, 1):
        args, kwargs = arguments(program, sample, place)
        example = example or (args, kwargs)
        state.restore()
        try:
            prepared(*args, **kwargs)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise unfit(place, "float", error) from error
    if example is None:
        raise UsageError(Diagnostic.of("EK418", "no sample was given to calibrate with"))
    return example


def leaves_of(program: ExportedProgram, sample: Sample, place: int) -> list[Any]:
    """Return the flattened inputs of a sample.

    Args:
        program: The program.
        sample: A tuple of arguments, nested as the program takes them, or flat.
        place: Number of the sample, from 1.

    Raises:
        UsageError: EK418, the program has another number of inputs.
    """
    count = len(program.graph_signature.user_inputs)
    leaves: list[Any] = pytree.tree_leaves(sample)
    if not isinstance(sample, tuple) or len(leaves) != count:
        what = f"has {len(leaves)}" if isinstance(sample, tuple) else f"is a {type(sample).__name__}, not a tuple of"
        raise UsageError(Diagnostic.of("EK418", f"sample {place} {what} inputs; the program has {count}"))
    return leaves


def arguments(program: ExportedProgram, sample: Sample, place: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and named arguments of a sample.

    Raises:
        UsageError: EK418, the program has another number of inputs.
    """
    args, kwargs = pytree.tree_unflatten(leaves_of(program, sample, place), program.call_spec.in_spec)
    return tuple(args), dict(kwargs)


def unfit(place: int, program: str, error: BaseException) -> UsageError:
    """Return the error for a sample that a program does not take."""
    line = next((text for text in str(error).splitlines() if text.strip()), type(error).__name__)
    return UsageError(Diagnostic.of("EK418", f"sample {place} does not run through the {program} program: {line}"))


def _varying_sizes(program: ExportedProgram) -> Any:
    """Return which sizes of which inputs vary, as `torch.export.export` takes them; None if none does."""
    names = set(program.graph_signature.user_inputs)
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    sizes = [_varying(value) for value in values]
    if not any(sizes):
        return None
    args, kwargs = pytree.tree_unflatten(sizes, program.call_spec.in_spec)
    # `convert_pt2e` gives a module that takes what the program took, by the same names.
    return (*args, *kwargs.values()) if kwargs else tuple(args)


def _varying(value: Any) -> dict[int, Any] | None:
    if not isinstance(value, FakeTensor):
        return None
    return {dim: Dim.AUTO for dim, size in enumerate(value.shape) if type(size) is not int} or None
