"""Exchange of operators of a target: the official package's for its passes, the book's for everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from executorch.exir.dialects._ops import ops as official_ops
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch.export import ExportedProgram

from exirkit.ir import OpOverload, called_graphs, copy_program
from exirkit.patterns import defined_beside, registered_beside


def with_operators_of_package(program: ExportedProgram) -> ExportedProgram:
    """Return a program that calls the package's operator wherever a book has defined the same one beside it.

    Books loaded in `beside_other_libraries()` define their operators in a namespace of their own, which no pass of the
    package looks for. Operators whose schema the package states otherwise stay those of the book.
    """
    return _with_operators(program, registered_beside)


def with_operators_of_books(program: ExportedProgram) -> ExportedProgram:
    """Return a program that calls the book's operator wherever one is defined beside the package's.

    Packages may register an operator without a kernel for this processor; the book's runs by its definition.
    """
    return _with_operators(program, defined_beside)


def _with_operators(program: ExportedProgram, other: Callable[[OpOverload], Any]) -> ExportedProgram:
    # Most programs call no operator of a target, and are not copied.
    if not _renamed(program, other):
        return program
    mine = copy_program(program)
    for node, target in _renamed(mine, other):
        node.target = target
    for module in called_graphs(mine.graph_module):
        module.recompile()
    return mine


def _renamed(program: ExportedProgram, other: Callable[[OpOverload], Any]) -> list[tuple[Any, Any]]:
    """Return the calls whose operator has a counterpart, each with the counterpart in the dialect of the call."""
    found = []
    for module in called_graphs(program.graph_module):
        for node in module.graph.nodes:
            is_edge = isinstance(node.target, EdgeOpOverload)
            plain = node.target._op if is_edge else node.target
            counterpart = other(plain) if isinstance(plain, OpOverload) else None
            if counterpart is not None:
                found.append((node, _edge(counterpart) if is_edge else counterpart))
    return found


def _edge(op: OpOverload) -> Any:
    namespace, _, name = op._schema.name.partition("::")
    return getattr(getattr(getattr(official_ops.edge, namespace), name), op._overloadname)
