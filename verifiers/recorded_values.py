"""Recorded values of nodes against what their operators return for the recorded arguments."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import (
    Diagnostic,
    DiagnosticError,
    FakeTensor,
    FakeTensorMode,
    HigherOrderOperator,
    Inference,
    ShapeEnvGuardError,
    Sizes,
    alloc,
    dim_order_from_stride,
    fake_mode_of,
    free,
    functional_call,
    has_meta_value,
    meta_value,
    pytree,
    same_argument,
    same_value,
    sample_sizes,
    symbols_within,
    underlying,
    view,
    with_sizes,
)

from .structure import ProgramGraph, graphs_of
from .unchanged_calls import current_memory

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_MOST = 50_000

# What is known of calls: whether layouts were found in order as well, and references to the tensors whose identities
# are part of what a call is known by: those with sizes that vary, which belong to one program.
_CONFIRMED: dict[Any, tuple[bool, tuple[weakref.ref[Any], ...]]] = {}


class _UnknownFormError(Exception):
    """An argument or value is of a kind that cannot be known again."""


class Recorded:
    """A call and what is recorded of it.

    Args:
        target: The operator.
        args: Arguments as in the graph, nodes included, each with a recorded value.
        kwargs: Keyword arguments as in the graph.
        value: What is recorded of the call.
    """

    def __init__(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], value: Any) -> None:
        self._tensors: list[torch.Tensor] = []
        try:
            named = tuple((name, self._argument(given)) for name, given in kwargs.items())
            given = (self._argument(tuple(args)), named, self._value(value))
            self._key: Any = (target, *given, torch.get_default_dtype())
        except _UnknownFormError:
            self._key = None

    def is_confirmed(self, layouts: bool) -> bool:
        """Return whether the call was found in order before, and all values are the same objects still."""
        known = None if self._key is None else _CONFIRMED.get(self._key)
        # A reference that is dead may have lent its identity to another object.
        return known is not None and known[0] >= layouts and all(one() is not None for one in known[1])

    def confirm(self, layouts: bool) -> None:
        """Remember that the call is in order.

        Args:
            layouts: The layout of its result, too.
        """
        if self._key is None:
            return
        if len(_CONFIRMED) >= _MOST:
            _CONFIRMED.clear()
        _CONFIRMED[self._key] = (layouts, tuple(map(weakref.ref, self._tensors)))

    def _value(self, given: Any) -> Any:
        if isinstance(given, torch.Tensor):
            known = _layout(given)
            if known is None:
                self._tensors.append(given)
                return id(given)
            return known
        return _described(given, self._value)

    def _argument(self, given: Any) -> Any:
        if isinstance(given, Node):
            return self._value(given.meta["val"]) if "val" in given.meta else _unknown_form(given)
        return _described(given, self._argument)


def _layout(tensor: torch.Tensor) -> Any:
    """Return all that an operator without data is told of a tensor, or None if a size varies or data are known."""
    if tensor.layout is not torch.strided or getattr(tensor, "constant", None) is not None:
        return None
    sizes, strides, offset = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
    if not all(type(one) is int for one in (*sizes, *strides, offset)):
        return None
    return type(tensor), tensor.dtype, tensor.device, sizes, strides, offset


def _described(given: Any, part: Callable[[Any], Any]) -> Any:
    if isinstance(given, list | tuple):
        return (type(given), *map(part, given))
    if isinstance(given, _SYMBOLIC):
        return type(given), given.node.expr, id(given.node.shape_env)
    if isinstance(given, float):
        return float, given.hex()
    if given is None or isinstance(given, bool | int | str | torch.dtype | torch.device | torch.layout):
        return type(given), given
    return _memory_format(given)


def _memory_format(given: Any) -> Any:
    return given if isinstance(given, torch.memory_format) else _unknown_form(given)


def _unknown_form(given: Any) -> Any:
    raise _UnknownFormError(type(given).__name__)


_NOWHERE: tuple[Sizes, ...] = ({},)
_NO_LIMIT = 1 << 62


class Agreement(Enum):
    """What is known of a call."""

    UNKNOWN = "fake tensors have to be asked"
    SIZES = "dtype and sizes are as recorded; strides may differ"
    ALL = "dtype, sizes and strides are as recorded"


def agreement(
    mode: FakeTensorMode, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], recorded: Any
) -> Agreement:
    """Compare what is recorded of a call with what its operator gives.

    Args:
        mode: Fake tensor mode of the program, which knows the ranges of its symbols.
        target: What the call runs.
        args: Arguments as in a graph; nodes have recorded values.
        kwargs: Keyword arguments as in a graph.
        recorded: Value of the call.
    """
    if not has_meta_value(underlying(target)) or not _holds_tensors(recorded):
        return Agreement.UNKNOWN
    points = _points(mode, (args, kwargs, recorded))
    found = Agreement.ALL
    for point in points:
        try:
            said, given = with_sizes((recorded, (tuple(args), dict(kwargs))), point)
        except ZeroDivisionError:
            return Agreement.UNKNOWN
        value = meta_value(target, *given)
        if value is None or not _same(said, value, _same_sizes):
            return Agreement.UNKNOWN
        if not _same(said, value, _same_strides):
            found = Agreement.SIZES
    return found if points else Agreement.UNKNOWN


def _holds_tensors(value: Any) -> bool:
    leaves = pytree.tree_leaves(value)
    return bool(leaves) and all(isinstance(one, torch.Tensor) for one in leaves)


def _points(mode: FakeTensorMode, values: Any) -> Sequence[Sizes]:
    """Return sizes to try; none if the ranges of some symbol are not known."""
    symbols = list(dict.fromkeys(symbols_within(values)))
    if not symbols:
        return _NOWHERE
    known = mode.shape_env.var_to_range if mode.shape_env is not None else {}
    limits = {one: (known[one].lower, known[one].upper) for one in symbols if one in known}
    if len(limits) < len(symbols) or not all(isinstance(low, sympy.Integer) for low, _ in limits.values()):
        return ()
    return sample_sizes(
        {
            one: (int(low), int(high) if isinstance(high, sympy.Integer) else _NO_LIMIT)
            for one, (low, high) in limits.items()
        }
    )


def _same(said: Any, given: Any, same: Any) -> bool:
    if isinstance(said, torch.Tensor):
        return isinstance(given, torch.Tensor) and bool(same(said, given))
    if not isinstance(given, list | tuple) or len(said) != len(given):
        return False
    return all(_same(one, other, same) for one, other in zip(said, given, strict=True))


def _same_sizes(said: torch.Tensor, given: torch.Tensor) -> bool:
    return said.dtype == given.dtype and said.shape == given.shape


def _same_strides(said: torch.Tensor, given: torch.Tensor) -> bool:
    return said.stride() == given.stride()


# Memory is what its spec says.
_MEMORY = frozenset({alloc, free})

# Where torch notes on a tensor what it has said of its data.
_MEMOS = ("nonzero_memo", "item_memo", "unique_memo", "unique_consecutive_memo")


def check_metadata(program: ExportedProgram | GraphModule, *, layouts: bool = False) -> list[Diagnostic]:
    """Run every operator again on the recorded values of its arguments, and compare with what is recorded of it.

    Args:
        program: Program of any dialect; calls of out variants are compared with the operators they stand for.
        layouts: Also compare dim orders, which hold from the legalization of dim orders on. Those of calls that name
            theirs (`dim_order_ops`) hold always, and are always compared.

    Returns:
        All findings (EK315: dtype, EK316: shape, EK317: layout, EK318: kind of value, EK319: the operator does not take
        the arguments), in graph order. Nodes without a value, and control flow, are judged elsewhere.
    """
    graphs = graphs_of(program)
    # Values of bodies belong to the mode of the program.
    comparison = _Comparison(Inference(fake_mode_of(graphs[0].module), ("fake",)), layouts)
    memory, check = current_memory(), "values and layouts" if layouts else "values"
    findings: list[Diagnostic] = []
    for graph in graphs:
        for node in graph.calls():
            if not memory.is_unchanged(check, node):
                found = list(comparison.findings(graph, node))
                findings += found
                if not found:
                    memory.note(check, node)
    return findings


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
        layouts = self._layouts or kwargs.get("dim_order") is not None
        call = Recorded(underlying(target), args, kwargs, node.meta["val"])
        if call.is_confirmed(layouts):
            return
        known = agreement(self._inference.mode, target, args, kwargs, node.meta["val"])
        if known is Agreement.ALL or (known is Agreement.SIZES and not layouts):
            call.confirm(known is Agreement.ALL)
            return
        try:
            with _forgetful(node):
                computed, bindings = self._inference.value(target, args, kwargs, node)
        except DiagnosticError as error:
            # An operator that asks torch for a guard may well take all sizes that the program promises.
            if not isinstance(error.__cause__, ShapeEnvGuardError):
                yield from _rejection(graph, node, error)
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
        yield from (one for one in found if layouts or one.code != "EK317")

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
    """Return whether a tensor surely has no elements: it has no layout, whatever its strides say."""
    return any(isinstance(size, int) and size == 0 for size in value.shape)


@contextmanager
def _forgetful(node: Node) -> Iterator[None]:
    """Keep torch from noting on arguments of a call the symbols that checking it makes, and from reusing such notes.

    Inferring the call afterwards would return symbols that no program knows, and a symbol that was noted before would
    not look like a new one. A body of control flow may use the symbols of the graph around it, without a binding.
    """
    tensors = [
        one
        for operand in node.all_input_nodes
        for one in pytree.tree_leaves(operand.meta["val"])
        if isinstance(one, FakeTensor)
    ]
    before = [(one, name, getattr(one, name)) for one in tensors for name in _MEMOS]
    try:
        for one, name, memo in before:
            if memo is not None:
                setattr(one, name, None)
        yield
    finally:
        for one, name, memo in before:
            setattr(one, name, memo)


def _is_recorded(node: Node) -> bool:
    """Return whether a node and all its arguments have a recorded value; who has none is a finding of its own."""
    return all("val" in one.meta for one in (node, *node.all_input_nodes) if one.op != "get_attr")


def _kinds(graph: ProgramGraph, node: Node, recorded: Any, computed: Any) -> Iterator[Diagnostic]:
    if _kind(recorded) != _kind(computed):
        yield graph.finding(
            "EK318", node, f"%{node.name} is recorded to be {_kind(recorded)}", expected=_kind(computed)
        )


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_kind, value))})"
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dim()} dims"
    for name, kinds in (
        ("a bool", (bool, torch.SymBool)),
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
        hint="an edit changed an argument and left the values after it as they were: infer them again",
    )


def _rejection(graph: ProgramGraph, node: Node, error: DiagnosticError) -> Iterator[Diagnostic]:
    first = error.diagnostics[0]
    yield graph.finding("EK319", node, first.message, notes=first.notes)


def _sizes(tensor: torch.Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"


def _dim_order(tensor: torch.Tensor) -> list[int]:
    return dim_order_from_stride(tensor.stride(), tensor.shape)


def _repeated_dims(tensor: torch.Tensor) -> list[int]:
    """Return the dims along which all elements are one piece of memory, of which dim orders say nothing."""
    pairs = enumerate(zip(tensor.shape, tensor.stride(), strict=True))
    return [dim for dim, (size, step) in pairs if type(step) is int and not step and type(size) is int and size > 1]
