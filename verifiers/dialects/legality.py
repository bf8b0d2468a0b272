"""Operators, arguments and dtypes that are legal in a dialect."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from torch._export.verifier import Verifier
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import (
    BACKEND,
    EDGE,
    EXECUTORCH,
    BackendOpOverload,
    DefinedOperator,
    Diagnostic,
    Dialect,
    EdgeOpOverload,
    OperatorDtypes,
    alloc,
    facts_of,
    free,
    functional_variant,
    has_trait,
    is_out_variant,
    known_dtypes,
    named_arguments,
    operator_name,
    returns_view,
    underlying,
    value_of,
    view,
)
from exirkit.verifiers.graph.structure import ProgramGraph, graphs_of

# Arithmetic on sizes and numbers, as torch leaves it in graphs.
_FUNCTIONS = frozenset(
    {
        *Verifier().allowed_builtin_ops(),
        torch.sym_int,
        torch.sym_float,
        torch.sym_ite,
        torch.sym_max,
        torch.sym_min,
        torch.sym_not,
        torch.sym_sqrt,
        torch.sym_sum,
    }
)
_MEMORY = (alloc, view, free)
# The write-back of state.
_WRITES_IN_EXECUTORCH = frozenset({torch.ops.aten.copy_.default})


def check_aten_program(program: ExportedProgram, *, exceptions: Collection[Any] = ()) -> list[Diagnostic]:
    """Check that a program is functional and uses core ATen operators.

    Args:
        program: Program after decomposition.
        exceptions: Overloads that are accepted although they are not core.

    Returns:
        All findings (EK301: not core, EK302: writes to its arguments), in graph order.
    """
    return [
        finding
        for graph in graphs_of(program)
        for node in graph.calls()
        for finding in _aten_findings(graph, node, exceptions)
    ]


def check_edge_program(program: ExportedProgram) -> list[Diagnostic]:
    """Check that the calls of a program are those of the Edge dialect.

    Returns:
        All findings (EK302: writes to its arguments, EK303: no edge operator, EK304: number in a tensor's place,
        EK305: no recorded value, EK312: no operator at all, EK314: returns a view), in graph order.
    """
    return _check_functional(program, EDGE)


def check_backend_program(program: ExportedProgram) -> list[Diagnostic]:
    """Check that the calls of a program are those of the Edge dialect, or operators that a target has introduced.

    Returns:
        All findings, with the codes of `check_edge_program`, in graph order.
    """
    return _check_functional(program, BACKEND)


def check_executorch_program(program: ExportedProgram, *, allow_missing_out: bool = False) -> list[Diagnostic]:
    """Check that the calls of a program are those of the ExecuTorch dialect.

    Args:
        program: Program after the conversion to out variants.
        allow_missing_out: Accept operators that return new tensors, which only certain runtimes can run.

    Returns:
        All findings (EK305: no recorded value, EK312: no target of the dialect, EK313: no out variant), in graph order.
    """
    findings: list[Diagnostic] = []
    for graph in graphs_of(program):
        for node in graph.calls():
            findings += _executorch_findings(graph, node, allow_missing_out)
    return findings


def _aten_findings(graph: ProgramGraph, node: Node, exceptions: Collection[Any]) -> Iterator[Diagnostic]:
    op = node.target
    if not isinstance(op, OpOverload) or op in exceptions:
        return
    if op._schema.is_mutable:
        yield _writes(graph, node, op)
    elif op.namespace == "aten" and not is_core(op):
        yield _not_core(graph, node, op)


def _check_functional(program: ExportedProgram, dialect: Dialect) -> list[Diagnostic]:
    findings: list[Diagnostic] = []
    for graph in graphs_of(program):
        for node in graph.calls():
            if not isinstance(node.target, HigherOrderOperator):
                findings += _functional_findings(graph, node, dialect)
            findings += _missing_value(graph, node)
    return findings


def _functional_findings(graph: ProgramGraph, node: Node, dialect: Dialect) -> Iterator[Diagnostic]:
    target = node.target
    if isinstance(target, EdgeOpOverload):
        if isinstance(target, BackendOpOverload) and "backend" not in dialect.targets:
            yield _not_edge(graph, node, "an operator of a backend")
        if target._schema.is_mutable:
            yield _writes(graph, node, target)
        elif returns_view(target):
            yield _view(graph, node, target)
        yield from _numbers_for_tensors(graph, node)
    elif isinstance(target, OpOverload | DefinedOperator):
        if not _is_assertion(target):
            yield _not_edge(graph, node, "not an operator of the Edge dialect")
    elif target not in _FUNCTIONS and underlying(target) is target:
        yield _illegal(graph, node, dialect)


def _executorch_findings(graph: ProgramGraph, node: Node, allow_missing_out: bool) -> Iterator[Diagnostic]:
    target: Any = node.target
    if isinstance(target, HigherOrderOperator) or target is free:
        return
    yield from _missing_value(graph, node)
    if target in _MEMORY or target in _FUNCTIONS or target in _WRITES_IN_EXECUTORCH:
        return
    if isinstance(target, BackendOpOverload) or not isinstance(target, OpOverload | DefinedOperator):
        if not (allow_missing_out and isinstance(target, BackendOpOverload)):
            yield _illegal(graph, node, EXECUTORCH)
    elif not is_out_variant(target) and _returns_tensors(target) and not allow_missing_out:
        yield graph.finding(
            "EK313",
            node,
            f"{target.name()} returns a new tensor, for which no memory is planned",
            expected="an out variant, which writes into a tensor that it is given",
            hint="register an out variant in the library of the operator, or decompose it before lowering",
        )


def _is_assertion(target: Any) -> bool:
    return has_trait(target, "assertion") and has_trait(target, "any_dialect")


def _returns_tensors(op: Any) -> bool:
    return any("Tensor" in str(result.type) for result in op._schema.returns)


def is_core(op: OpOverload) -> bool:
    """Return whether an ATen operator may be left over by decomposition."""
    return torch.Tag.core in op.tags or torch.Tag.view_copy in op.tags or has_trait(op, "accepted_in_core")


def is_left_to_runtime(op: Any) -> bool:
    """Return whether an operator is legal in any dialect as it is: assertions, and arithmetic on sizes."""
    return has_trait(op, "any_dialect") or op._schema.name.startswith("executorch_prim::")


def _numbers_for_tensors(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    given = named_arguments(node)
    for argument in underlying(node.target)._schema.arguments:
        if not isinstance(argument.type, torch.TensorType) or argument.name not in given:
            continue
        value = given[argument.name]
        if not isinstance(value, Node):
            yield graph.finding(
                "EK304",
                node,
                f"argument {argument.name} of {node.target} is {value!r} where a tensor must stand",
                hint="lift the number to a constant tensor",
            )


def _missing_value(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    if "val" not in node.meta and not _is_assertion(node.target):
        yield graph.finding(
            "EK305",
            node,
            "node has no recorded value",
            expected='a fake tensor in meta["val"]',
            hint="make nodes through the graph editor or ExportPass, which record it",
        )


def _not_core(graph: ProgramGraph, node: Node, op: OpOverload) -> Diagnostic:
    advice = facts_of(op).advice
    return graph.finding(
        "EK301",
        node,
        f"{op.name()} is not a core ATen operator",
        notes=(
            "torch has no decomposition for it, or it was preserved on purpose",
            *(() if advice is None else (advice,)),
        ),
        hint=f"if your runtime has a kernel: EdgeCompileConfig(_core_aten_ops_exception_list=[torch.ops.{op}])",
    )


def _not_edge(graph: ProgramGraph, node: Node, what: str) -> Diagnostic:
    target: Any = node.target
    name = operator_name(target)
    return graph.finding(
        "EK303",
        node,
        f"{target.name()} is {what}",
        expected=f"the handle `exirkit.ops.edge.{name}`",
        hint=f"passes on Edge programs call `exirkit.ops.edge.{name}`, not `torch.ops.{name}`",
    )


def _illegal(graph: ProgramGraph, node: Node, dialect: Dialect) -> Diagnostic:
    name = getattr(node.target, "__name__", str(node.target))
    return graph.finding(
        "EK312",
        node,
        f"{name} is not a legal call target of the {dialect.name} dialect",
        expected=f"operators of these kinds: {', '.join(sorted(dialect.targets))}; or arithmetic on sizes",
        hint="register a function of your own as a torch operator, and call that",
    )


def _view(graph: ProgramGraph, node: Node, op: Any) -> Diagnostic:
    name = underlying(op)._schema.name.partition("::")[2]
    return graph.finding(
        "EK314",
        node,
        f"{op.name()} returns a view of its argument",
        expected="an operator that returns a tensor with memory of its own",
        hint=f"use the copying operator, {name}_copy; whether memory is shared is decided by the memory plan",
    )


def _writes(graph: ProgramGraph, node: Node, op: Any) -> Diagnostic:
    return graph.finding(
        "EK302",
        node,
        f"{op.name()} writes to its arguments in a functional graph",
        expected="an operator that returns its result",
        hint="export under torch.no_grad(), or use the functional form of the operator",
    )


def check_dtypes(program: ExportedProgram | GraphModule, *, runtime: bool = False) -> list[Diagnostic]:
    """Look up whether operators take the dtypes that they are given, and return those that are recorded.

    Args:
        program: Program of any dialect.
        runtime: Look up what kernels of the ExecuTorch runtime take; without, what those of torch take.

    Returns:
        All findings (EK353: no kernel takes these arguments, EK354: it returns another dtype), in graph order.
        Operators and dtypes that the catalogue does not know are passed over.
    """
    known = known_dtypes(runtime)
    findings: list[Diagnostic] = []
    for graph in graphs_of(program):
        for node in graph.calls():
            op = _functional(node)
            entry = None if op is None else known.get(operator_name(op))
            if entry is not None:
                findings += _findings(graph, node, entry, runtime)
    return findings


def _functional(node: Node) -> OpOverload | DefinedOperator | None:
    op = underlying(node.target)
    if not isinstance(op, OpOverload | DefinedOperator):
        return None
    if is_out_variant(op):
        functional: OpOverload | DefinedOperator | None = functional_variant(op)
        return functional
    return op


def _findings(graph: ProgramGraph, node: Node, entry: OperatorDtypes, runtime: bool) -> Iterator[Diagnostic]:
    arguments = named_arguments(node)
    given = tuple(_dtype(arguments.get(name)) for name in entry.arguments)
    if None in given or not entry.is_known(given) or _is_weak(arguments.values()):  # type: ignore[arg-type]
        return
    where = "the ExecuTorch runtime" if runtime else "torch"
    possible = entry.results.get(given)  # type: ignore[arg-type]
    if possible is None:
        shown = ", ".join(f"{name}: {dtype}" for name, dtype in zip(entry.arguments, given, strict=True))
        yield graph.finding(
            "EK353",
            node,
            f"no kernel of {where} takes {shown}",
            expected=f"one of: {'  /  '.join(entry.rules[:4])}{'  ...' if len(entry.rules) > 4 else ''}",
            hint="cast the arguments first, for example by LegalizeDtypes",
        )
        return
    returned = _returned(node)
    if returned is not None and returned not in possible and _says_dtype(node):
        yield graph.finding(
            "EK354",
            node,
            f"%{node.name} is recorded to be {', '.join(returned)}",
            expected=" or ".join(sorted(", ".join(each) for each in possible)),
            hint="record the dtype that the operator returns, and cast it where another is wanted",
        )


def _is_weak(arguments: Iterable[Any]) -> bool:
    """Return whether tensors without dims stand beside others of another dtype, which they may not widen."""
    tensors = [value for one in arguments if isinstance(value := value_of(one), torch.Tensor)]
    return len({one.dtype for one in tensors}) > 1 and len({one.dim() == 0 for one in tensors}) > 1


def _says_dtype(node: Node) -> bool:
    """Return whether the dtype of the result follows from the arguments: it is lost for some out variants."""
    return not is_out_variant(underlying(node.target))


def _returned(node: Node) -> tuple[str, ...] | None:
    value = node.meta.get("val")
    values: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not values or not all(isinstance(one, torch.Tensor) for one in values):
        return None
    returns = underlying(node.target)._schema.returns
    if len(returns) == 1 and isinstance(value, list | tuple):
        values = values[:1]
    return tuple(str(one.dtype).removeprefix("torch.") for one in values)


def _dtype(argument: Any) -> str | None:
    """Return the dtype of an argument, `none` if it is not given, or None if there is no saying."""
    if isinstance(argument, list | tuple):
        found = {_dtype(one) for one in argument} - {"none"}
        return found.pop() if len(found) == 1 else "none" if not found else None
    value = value_of(argument)
    if value is None:
        return None if isinstance(argument, Node) else "none"
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.")
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else None
