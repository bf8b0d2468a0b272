"""Programs by way of their source code and `torch.export`: what a user's model would become."""

from __future__ import annotations

import importlib.util
import linecache
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.export import ExportedProgram

from exirkit.ir import Diagnostic, Location, ModelError

from .checking import check_program
from .model import Contents, Method, Program, Symbol
from .modules import class_name, linear_in, module_source
from .sizes import size_value, symbols_of
from .tensors import inputs_of, make_tensor, stored_tensor


def export(program: Program, *, functional: bool = True) -> dict[str, ExportedProgram]:
    """Print a program as modules, export them, and make them functional.

    It takes seconds where `build` takes milliseconds. The methods share the tensors that are stored.

    Args:
        program: Any program; it is checked first, since its names become code.
        functional: Run the decompositions without any, which leaves no writes but those of the signature.

    Returns:
        The exported program of each method.

    Raises:
        ModelError: EK802 to EK810, the program is none; EK813, `torch.export` does not take it, which the bench reports
            as its finding about torch or about the program.
    """
    modules = eager_modules(program)
    return {method.name: _exported(program, method, modules[method.name], functional) for method in program.methods}


def eager_modules(program: Program) -> dict[str, torch.nn.Module]:
    """Return a module for each method, made from the source code of the program; they share what is stored.

    Raises:
        ModelError: EK802 to EK810, the program is none.
    """
    check_program(program)
    tensors: dict[str, torch.Tensor] = {}
    for one in program.stored:
        tensor = stored_tensor(program, one.name)
        is_parameter = one.kind == "parameter"
        tensors[one.name] = torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor
    source = _loaded(f"import torch\n\n\n{module_source(program)}")
    return {one.name: getattr(source, class_name(one))(tensors) for one in program.methods}


def _loaded(source: str) -> ModuleType:
    """Load source code that was printed from a checked program."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "program.py"
        path.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("program_of_the_bench", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        # Torch looks up lines of the source long after the file is gone.
        linecache.updatecache(str(path))
    return module


def _exported(program: Program, method: Method, module: torch.nn.Module, functional: bool) -> ExportedProgram:
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            found = torch.export.export(
                module, _examples(program, method), dynamic_shapes=dynamic_shapes(program, method), strict=False
            )
            return found.run_decompositions({}) if functional else found
    except Exception as error:
        note = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:400]}"
        place = Location(method=method.name)
        message = "torch.export does not take the program"
        raise ModelError(Diagnostic(code="EK813", message=message, location=place, notes=(note,))) from error


def _examples(program: Program, method: Method) -> tuple[torch.Tensor, ...]:
    """Return the inputs of a run whose sizes torch keeps apart from zero and one, or inputs in its manner."""
    runs = [one for one in program.runs if one.method == method.name]
    for run in runs:
        if all(size > 1 for name, size in run.sizes.items() if _range(program, name)):
            return inputs_of(program, run)
    sizes = {one.name: max(2, (one.low + one.high) // 2) if one.low < one.high else one.low for one in program.symbols}
    contents = runs[0].inputs if runs else {}
    layouts = {one.name: contents[one.name].layout if contents else "dense" for one in method.inputs}
    return tuple(
        make_tensor(
            Contents(seed=place, layout=layouts[one.name]),
            one.type.dtype,
            [size_value(dim, sizes) for dim in one.type.sizes],
        )
        for place, one in enumerate(method.inputs)
    )


def dynamic_shapes(program: Program, method: Method) -> dict[str, Any]:
    """Return what `torch.export` is told of the sizes of a method's inputs."""
    dims = {
        one.name: torch.export.Dim(one.name, min=one.low, max=one.high) for one in program.symbols if one.low < one.high
    }
    found: dict[str, Any] = {}
    for one in method.inputs:
        sizes = {place: _dynamic(dim, dims) for place, dim in enumerate(one.type.sizes)}
        found[one.name] = {place: size for place, size in sizes.items() if size is not None}
    return found


def _dynamic(dim: int | str, dims: Mapping[str, Any]) -> Any:
    free = [name for name in symbols_of(dim) if name in dims]
    if not free:
        return None
    linear = linear_in(dim, free[0]) if len(symbols_of(dim)) == 1 else None
    if linear is None or linear[0] < 0:
        return torch.export.Dim.AUTO
    factor, summand = linear
    found = dims[free[0]]
    found = factor * found if factor != 1 else found
    return found + summand if summand else found


def _range(program: Program, name: str) -> Symbol | None:
    """Return a symbol if it has more than one value."""
    return next((one for one in program.symbols if one.name == name and one.low < one.high), None)
