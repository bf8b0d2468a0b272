"""Running the passes people bring: exirkit passes, `ExportPass`, `PassBase`, plain functions, and lists of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import ContractError, Diagnostic, DiagnosticError, GraphEditor, UsageError, copy_program

from .contract import Pass
from .lift_constants import LiftConstants
from .pass_base import ExportedProgramPassBase
from .pass_manager import PassManager


class CompleteMetadata(Pass):
    """Infer the value of every node that a graph-level pass made without one."""

    name = "complete-metadata"

    def edit(self, editor: GraphEditor) -> None:
        """Infer what is missing, in graph order."""
        for node in editor.graph.nodes:
            if node.op == "call_function" and "val" not in node.meta:
                editor.refresh(node)


def apply_user_passes(program: ExportedProgram, passes: Any) -> ExportedProgram:
    """Run passes in order on a copy of a program.

    Args:
        program: The program; it is not changed.
        passes: A pass, or any nesting of lists, tuples and pass managers. A pass is an exirkit `Pass`, an
            `ExportedProgramPassBase`, or a callable that takes a graph module and returns a `PassResult`, a graph
            module, or None if it worked in place.

    Returns:
        The new program; its signature agrees with its graph, and every node has a recorded value.

    Raises:
        UsageError: EK424, something in `passes` is no pass.
        ContractError: EK425, a pass failed, returned something else, or changed the number of inputs or outputs.
    """
    current = copy_program(program)
    for one in _flattened(passes):
        current = _run(current, one)
    return current


def _flattened(passes: Any) -> Iterator[Any]:
    if isinstance(passes, PassManager):
        for _ in range(passes.steps):
            yield from _flattened(passes.passes)
    elif isinstance(passes, Iterable):
        for one in passes:
            yield from _flattened(one)
    elif callable(passes) or isinstance(passes, Pass):
        yield passes
    else:
        raise UsageError(
            Diagnostic(
                code="EK424",
                message=f"{type(passes).__name__} is no pass",
                expected="a Pass, an ExportPass, a function of a graph module, or a list of these",
            )
        )


def _run(program: ExportedProgram, one: Any) -> ExportedProgram:
    if isinstance(one, Pass):
        one.run(GraphEditor(program))
        return program
    name = type(one).__name__ if not hasattr(one, "__name__") else one.__name__
    try:
        if isinstance(one, ExportedProgramPassBase):
            result = one(program)
            # A program-level pass may hand back what it was given; what it returns is ours to edit only as a copy.
            return result.exported_program
        module = _graph_module_of(one(program.graph_module), program.graph_module, name)
    except DiagnosticError:
        raise
    except Exception as error:
        raise _broken(name, f"raised {type(error).__name__}: {error}") from error
    _check_arity(program, module, name)
    program._graph_module = module
    editor = GraphEditor(program)
    for repair in (CompleteMetadata(), LiftConstants()):
        repair.run(editor)
    return program


def _graph_module_of(result: Any, given: GraphModule, name: str) -> GraphModule:
    if result is None:
        return given
    module = getattr(result, "graph_module", result)
    if not isinstance(module, GraphModule):
        raise _broken(name, f"returned {type(result).__name__}")
    return module


def _check_arity(program: ExportedProgram, module: GraphModule, name: str) -> None:
    signature = program.graph_signature
    inputs = len(module.graph.find_nodes(op="placeholder"))
    results = module.graph.output_node().args[0]
    outputs = len(results) if isinstance(results, list | tuple) and not isinstance(results, Node) else 1
    for what, found, wanted in (
        ("inputs", inputs, len(signature.input_specs)),
        ("outputs", outputs, len(signature.output_specs)),
    ):
        if found != wanted:
            raise _broken(name, f"changed the number of {what} from {wanted} to {found}")


def _broken(name: str, what: str) -> ContractError:
    return ContractError(
        Diagnostic(
            code="EK425",
            message=f"pass {name} {what}",
            expected="a PassResult or graph module with the inputs and outputs of the one it was given",
            hint="a pass that adds or removes stored tensors edits the program: derive it from exirkit.Pass",
        )
    )
