"""Passes of the official package by name, run on official programs as their own pass managers run them."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

# Kernels and out variants of quantised operators, which official passes ask for.
import executorch.kernels.quantized  # noqa: F401
import torch
from executorch.exir._program_utils import _get_updated_graph_signature, _get_updated_range_constraints
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import GraphModule

from exirkit.fuzz import load_object
from exirkit.ir import Diagnostic, UsageError, called_graphs, copy_program

from .absent_tools import install_absent_tools

# Names of constructors' arguments that stand for the program.
_PROGRAM = frozenset({"exported_program", "edge_program", "program", "ep"})
_MODULE = frozenset({"graph_module", "gm"})

# Kernels of a target's operators for the processor that this runs on, by package.
_KERNELS = {"executorch.backends.cadence.": "executorch.backends.cadence.aot.ref_implementations"}

# Passes of the Arm backend ask which version of TOSA they lower for, and which extensions it has.
_ARM, _TOSA = "executorch.backends.arm.", "TOSA-1.0+INT+FP"

Dialect = Literal["edge", "aten"]


@dataclass(frozen=True)
class OriginalPass:
    """A pass of the official package, or of anything that takes programs as its passes do.

    Attributes:
        target: `MODULE:NAME`.
        dialect: What it runs on: Edge programs, or what the exporter returns (`aten`).
        factory: Makes an object for a program, since passes may keep state.
        takes_program: The class takes the program when an object is made.
    """

    target: str
    dialect: Dialect
    factory: Callable[[ExportedProgram], Any]
    takes_program: bool = False

    @property
    def name(self) -> str:
        """Name of the class."""
        return self.target.rpartition(":")[2]

    @property
    def source(self) -> str:
        """Text of the module that defines the pass; empty if it has none."""
        module = inspect.getmodule(load_object(self.target))
        try:
            return inspect.getsource(module) if module is not None else ""
        except OSError:
            return ""

    def __call__(self, program: ExportedProgram) -> ExportedProgram:
        """Return what the pass makes of a program, which is not changed.

        Raises:
            Exception: Whatever the pass raises.
        """
        mine = copy_program(program)
        for module in called_graphs(mine.graph_module):
            module.recompile()
        with _surroundings(self.target):
            made = self.factory(mine)
            if self.dialect == "aten" and not self.takes_program and not _takes_program(made) and _can_be_module(mine):
                return _run_on_module(made, mine)
            given: Any = mine if _takes_program(made) else mine.graph_module
            found = made(given)
        if isinstance(found, ExportedProgram):
            return found
        whole = getattr(found, "exported_program", None)
        if isinstance(whole, ExportedProgram):
            return whole
        module = getattr(found, "graph_module", found)
        made_module = module if isinstance(module, GraphModule) else mine.graph_module
        return _with_module(mine, made_module, keeps_ranges=self.dialect == "aten")


def _surroundings(target: str) -> AbstractContextManager[Any]:
    """Return what the pass manager of a package sets up around its passes."""
    if not target.startswith(_ARM):
        return nullcontext()
    tosa = importlib.import_module("executorch.backends.arm.tosa.specification")
    made: AbstractContextManager[Any] = tosa.TosaLoweringContext(tosa.TosaSpecification.create_from_string(_TOSA))
    return made


def original_pass(name: str) -> OriginalPass:
    """Return a pass by its name.

    Args:
        name: `MODULE:CLASS`, a class that takes nothing or the program; or a function without arguments that returns a
            pass, or one of a graph module. With `@aten` behind it, the pass runs on what the exporter returns.

    Raises:
        ModelError: EK863, there is no such module or name.
        UsageError: EK766, the class takes arguments that are not known here.
    """
    target, _, dialect = name.partition("@")
    if dialect not in ("", "edge", "aten"):
        raise UsageError(
            Diagnostic(
                code="EK766",
                message=f"{name} names a dialect {dialect!r}",
                expected="edge, the default, or aten: programs as the exporter returns them",
            )
        )
    install_absent_tools()
    found = load_object(target)
    for package, kernels in _KERNELS.items():
        if target.startswith(package):
            importlib.import_module(kernels)
    factory, takes_program = _factory(found, target)
    return OriginalPass(target, "aten" if dialect == "aten" else "edge", factory, takes_program)


def _factory(found: Any, target: str) -> tuple[Callable[[ExportedProgram], Any], bool]:
    """Return what makes an object for a program, and whether the class takes the program."""
    if not callable(found):
        raise UsageError(Diagnostic(code="EK766", message=f"{target} is a {type(found).__name__}, not a pass"))
    if not inspect.isclass(found) and not inspect.isroutine(found):
        return lambda program: copy.deepcopy(found), False
    required = _required(found)
    if not inspect.isclass(found) and len(required) == 1:
        return lambda program: found, False
    unknown = [one.name for one in required if one.name not in _PROGRAM | _MODULE]
    if unknown:
        raise UsageError(
            Diagnostic(
                code="EK766",
                message=f"{target} takes {', '.join(unknown)}, and nothing says what to give it",
                hint="name a function without arguments that returns the pass: path/to/file.py:FUNCTION",
            )
        )

    def make(program: ExportedProgram) -> Any:
        return found(**{one.name: program if one.name in _PROGRAM else program.graph_module for one in required})

    return make, any(one.name in _PROGRAM for one in required)


def _required(found: Any) -> list[inspect.Parameter]:
    """Return the parameters that have to be given, and those for the program; one of what says nothing.

    A class may do without the program where weights are attributes of the module, which they are not here.
    """
    try:
        parameters = inspect.signature(found).parameters.values()
    except ValueError:
        return [inspect.Parameter("gm", inspect.Parameter.POSITIONAL_ONLY)]
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        one
        for one in parameters
        if one.kind not in variable and (one.default is one.empty or (one.default is None and one.name in _PROGRAM))
    ]


def _takes_program(made: Any) -> bool:
    """Whether a pass takes exported programs instead of graph modules, by what its method says."""
    called = getattr(made, "call", None) or made
    try:
        parameters = list(inspect.signature(called).parameters.values())
    except (TypeError, ValueError):
        return False
    return bool(parameters) and ("ExportedProgram" in str(parameters[0].annotation) or parameters[0].name in _PROGRAM)


def _can_be_module(program: ExportedProgram) -> bool:
    """Whether a program can be traced again as a module: nothing but results comes out, and no size varies.

    Sizes that vary would be those of the examples wherever two of them are equal.
    """
    kinds = {one.kind for one in program.graph_signature.output_specs}
    return program.example_inputs is not None and kinds <= {OutputKind.USER_OUTPUT} and not program.range_constraints


def _run_on_module(run: Callable[[Any], Any], program: ExportedProgram) -> ExportedProgram:
    """Run a pass before quantising as quantising flows do: weights are attributes of the module, which is traced again.

    Args:
        run: The pass.
        program: The program; its weights are copied.
    """
    module = copy.deepcopy(program.module(check_guards=False))
    for name in program.constants:
        value = getattr(module, name, None)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            # Weights of models are parameters, which passes exchange for others.
            delattr(module, name)
            module.register_parameter(name, torch.nn.Parameter(value, requires_grad=False))
    before = str(module.graph)
    found = run(module)
    made = getattr(found, "graph_module", found)
    made = made if isinstance(made, GraphModule) else module
    if str(made.graph) == before:
        return program
    made.recompile()
    args, kwargs = program.example_inputs or ((), {})
    return torch.export.export(made, args, kwargs, strict=False)


def _with_module(program: ExportedProgram, module: GraphModule, *, keeps_ranges: bool) -> ExportedProgram:
    """Return a program with another graph: its inputs and outputs are those of the old one, in their order.

    Args:
        program: What the pass was given.
        module: What it returned.
        keeps_ranges: The ranges of sizes are those of the program. Passes on what exporters return are followed by
            another export, and what they note on nodes may belong to another environment of sizes.
    """
    made = copy.copy(program)
    made._graph_module = module
    made._graph_signature = _get_updated_graph_signature(program.graph_signature, module)
    if not keeps_ranges:
        made._range_constraints = _get_updated_range_constraints(module)
    return made
