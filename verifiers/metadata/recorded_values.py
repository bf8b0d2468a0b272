"""What nodes say that they compute against what their operators make of their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import _ShapeEnvGuardError
from torch.utils import _pytree as pytree

from exirkit.ir import (
    Diagnostic,
    DiagnosticError,
    Inference,
    alloc,
    dim_order_from_stride,
    fake_mode_of,
    free,
    functional_call,
    same_argument,
    same_value,
    underlying,
    view,
)
from exirkit.verifiers.graph.program_graphs import ProgramGraph, graphs_of

from .confirmed_calls import Recorded
from .numeric_agreement import Agreement, agreement

# Memory is what its spec says.
_MEMORY = frozenset({alloc, free})

# Where torch notes on a tensor what it has said of its data.
_MEMOS = ("nonzero_memo", "item_memo", "unique_memo", "unique_consecutive_memo")


def check_metadata(program: ExportedProgram | GraphModule, *, layouts: bool = False) -> list[Diagnostic]:
    """Run every operator again on the recorded values of its arguments, and compare with what is recorded of it.

    Args:
        program: Program of any dialect; calls of out variants are compared with the operators they stand for.
        layouts: Also compare dim orders, which hold from the legalization of dim orders on.

    Returns:
        All findings (EK315: dtype, EK316: shape, EK317: layout, EK318: kind of value, EK319: the operator does not take
        the arguments), in graph order. Nodes without a value, and control flow, are judged elsewhere.
    """
    graphs = graphs_of(program)
    # Values of bodies belong to the mode of the program.
    comparison = _Comparison(Inference(fake_mode_of(graphs[0].module), ("fake",)), layouts)
    return [finding for graph in graphs for node in graph.calls() for finding in comparison.findings(graph, node)]


def check_layouts(program: ExportedProgram | GraphModule) -> list[Diagnostic]:
    """Return what `check_metadata` finds about dim orders only (EK317)."""
    return [finding for finding in check_metadata(program, layouts=True) if finding.code == "EK317"]


class _Comparison:
    """Compares recorded with computed values.

    Args:
        inference: Computes them, and remembers.
        layouts: Whether to compare layouts.
    """

    def __init__(self, inference: Inference, layouts: bool) -> None:
        self._inference = inference
        self._layouts = layouts

    def findings(self, graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
        if isinstance(node.target, HigherOrderOperator) or node.target in _MEMORY or not _is_recorded(node):
            return
        target, args, kwargs, keeps_dtype = functional_call(node)
        if target is None:
            return
        call = Recorded(underlying(target), args, kwargs, node.meta["val"])
        if call.is_confirmed(self._layouts):
            return
        known = agreement(self._inference.mode, target, args, kwargs, node.meta["val"])
        if known is Agreement.ALL or (known is Agreement.SIZES and not self._layouts):
            call.confirm(known is Agreement.ALL)
            return
        try:
            with _forgetful(node):
                computed, bindings = self._inference.value(target, args, kwargs, node)
        except DiagnosticError as error:
            # An operator that asks torch for a guard may well take all sizes that the program promises.
            if not isinstance(error.__cause__, _ShapeEnvGuardError):
                yield from _refusal(graph, node, error)
            return
        if bindings or node.meta.get("unbacked_bindings"):
            # The symbols of a value that data decide are new each time.
            found = list(_kinds(graph, node, node.meta["val"], computed))
        else:
            found = list(self._differences(graph, node, node.meta["val"], computed, keeps_dtype))
        if not found:
            call.confirm(True)
        elif all(one.code == "EK317" for one in found):
            call.confirm(False)
        yield from (one for one in found if self._layouts or one.code != "EK317")

    def _differences(
        self, graph: ProgramGraph, node: Node, recorded: Any, computed: Any, keeps_dtype: bool
    ) -> Iterator[Diagnostic]:
        if same_value(recorded, computed):
            return
        wrong = list(_kinds(graph, node, recorded, computed))
        if wrong:
            yield from wrong
            return
        pairs = list(zip(pytree.tree_leaves(recorded), pytree.tree_leaves(computed), strict=True))
        for place, (said, found) in enumerate(pairs):
            which = f"result {place} of " if len(pairs) > 1 else ""
            if isinstance(said, torch.Tensor):
                yield from self._tensor_differences(graph, node, which, said, found, keeps_dtype)
            elif not same_argument(said, found):
                yield _difference(graph, node, "EK316", which, "number", said, found)

    def _tensor_differences(
        self, graph: ProgramGraph, node: Node, which: str, said: torch.Tensor, found: torch.Tensor, keeps_dtype: bool
    ) -> Iterator[Diagnostic]:
        if said.dtype != found.dtype and keeps_dtype:
            yield _difference(graph, node, "EK315", which, "dtype", said.dtype, found.dtype)
        if not same_argument(tuple(said.shape), tuple(found.shape)):
            yield _difference(graph, node, "EK316", which, "shape", _sizes(said), _sizes(found))
        elif node.target is view or _is_empty(said):
            return
        elif _dim_order(said) != _dim_order(found):
            yield _difference(graph, node, "EK317", which, "dim order", _dim_order(said), _dim_order(found))
        elif _repeated_dims(said) != _repeated_dims(found):
            yield _difference(graph, node, "EK317", which, "strides", said.stride(), found.stride())


def _is_empty(value: torch.Tensor) -> bool:
    """Tell whether a tensor surely has no elements: it has no layout, whatever its strides say."""
    return any(isinstance(size, int) and size == 0 for size in value.shape)


@contextmanager
def _forgetful(node: Node) -> Iterator[None]:
    """Keep torch from noting on the arguments of a call the symbols that checking it makes.

    Whoever infers the call afterwards would be given symbols that no program knows.
    """
    tensors = [
        one
        for operand in (node.all_input_nodes if node.meta.get("unbacked_bindings") else ())
        for one in pytree.tree_leaves(operand.meta["val"])
        if isinstance(one, FakeTensor)
    ]
    before = [(one, name, getattr(one, name)) for one in tensors for name in _MEMOS]
    try:
        yield
    finally:
        for one, name, memo in before:
            setattr(one, name, memo)


def _is_recorded(node: Node) -> bool:
    """Tell whether a node and all its arguments have a recorded value; who has none is a finding of its own."""
    return all("val" in one.meta for one in (node, *node.all_input_nodes) if one.op != "get_attr")


def _kinds(graph: ProgramGraph, node: Node, recorded: Any, computed: Any) -> Iterator[Diagnostic]:
    if _kind(recorded) != _kind(computed):
        yield graph.finding(
            "EK318",
            node,
            f"%{node.name} is recorded to be {_kind(recorded)}",
            expected=_kind(computed),
            hint="infer the value with the graph editor instead of writing it down",
        )


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_kind, value))})"
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dim()} dims"
    for name, kinds in (
        ("a truth value", (bool, torch.SymBool)),
        ("an integer", (int, torch.SymInt)),
        ("a float", (float, torch.SymFloat)),
    ):
        if isinstance(value, kinds):
            return name
    return "nothing" if value is None else f"a {type(value).__name__}"


def _difference(
    graph: ProgramGraph, node: Node, code: str, which: str, what: str, recorded: Any, computed: Any
) -> Diagnostic:
    return graph.finding(
        code,
        node,
        f"the recorded {what} of {which}%{node.name} is {recorded}",
        expected=f"{computed}, which is what its operator makes of the recorded arguments",
        hint="an edit changed an argument and left the values after it as they were: infer them anew",
    )


def _refusal(graph: ProgramGraph, node: Node, error: DiagnosticError) -> Iterator[Diagnostic]:
    first = error.diagnostics[0]
    yield graph.finding(
        "EK319", node, first.message, notes=first.notes, hint="no kernel will take them either: mend the arguments"
    )


def _sizes(tensor: torch.Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"


def _dim_order(tensor: torch.Tensor) -> list[int]:
    return dim_order_from_stride(tensor.stride(), tensor.shape)


def _repeated_dims(tensor: torch.Tensor) -> list[int]:
    """Return the dims along which all elements are one piece of memory, of which dim orders say nothing."""
    pairs = enumerate(zip(tensor.shape, tensor.stride(), strict=True))
    return [dim for dim, (size, step) in pairs if type(step) is int and not step and type(size) is int and size > 1]
