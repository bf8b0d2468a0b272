"""torch's own decomposition of a call, as calls: what `traced(...)` in a replacement stands for."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import cache
from typing import Any, Protocol

import torch
from torch.fx import GraphModule, Node

from exirkit.ir import (
    FakeTensorMode,
    OpOverload,
    ShapeEnvGuardError,
    get_decompositions,
    make_fx,
    no_new_guards,
    value_of,
)
from exirkit.patterns.syntax.expressions import SYMBOLIC, ExpressionError, UndecidedError
from exirkit.patterns.syntax.terms import Operator

_MOST_CALLS = 2_000
_MOST_KEPT = 256


class Calls(Protocol):
    """A meaning for calls of operators."""

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several."""
        ...


class Decomposer:
    """Makes the calls of torch's decomposition instead of calls of one operator; others are made as they are.

    Args:
        builder: Makes them.
        op: The operator.
        further: Operators that are decomposed as well where they occur in the decomposition.
    """

    def __init__(self, builder: Calls, op: Operator, further: tuple[OpOverload, ...]) -> None:
        self.builder = builder
        self.op = op
        self.further = further

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several.

        Raises:
            ExpressionError: torch cannot take the call apart.
        """
        if op is not self.op:
            return self.builder.call(op, args, kwargs)
        if not has_decomposition(op):
            raise ExpressionError(f"torch has no decomposition of {op}")
        try:
            return call_decomposed(self.builder, op, args, kwargs, self.further)
        except (ExpressionError, ShapeEnvGuardError, UndecidedError):
            raise
        except Exception as error:  # A decomposition may raise anything.
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ExpressionError(f"the decomposition of {op} fails: {text}") from error


def has_decomposition(op: Operator) -> bool:
    """Return whether torch can take an operator apart."""
    return isinstance(op, OpOverload) and (op._can_decompose() or bool(_table((op,))))


@cache
def _table(ops: tuple[OpOverload, ...]) -> dict[Any, Callable[..., Any]]:
    # Operators without a decomposition are not an error for torch; composite ones are not in its tables.
    found: dict[Any, Callable[..., Any]] = get_decompositions(list(ops))
    return found


def call_decomposed(
    builder: Calls, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], further: tuple[OpOverload, ...] = ()
) -> Any:
    """Make the calls of torch's decomposition of a call.

    The decomposition is traced on tensors without values that have the sizes and dtypes of the arguments, also where
    the builder runs calls on real tensors: what is tried is what would be inserted.

    Args:
        builder: Makes the calls.
        op: Operator of the call.
        args: Its arguments: nodes, tensors, numbers, lists.
        kwargs: Arguments by name.
        further: Operators that are decomposed as well where they occur in the decomposition.

    Returns:
        The result, or a list of several.

    Raises:
        ExpressionError: torch cannot take the call apart for these arguments.
    """
    tensors: list[Any] = []
    pattern = _mapped((list(args), dict(kwargs)), lambda leaf: _Place.of(leaf, tensors))
    values = [value_of(tensor) for tensor in tensors]
    graph = _trace(op, pattern, values, further)
    return _replayed(builder, graph, tensors)


class _Place(int):
    """Number of a tensor among the arguments of a call."""

    @staticmethod
    def of(leaf: Any, tensors: list[Any]) -> Any:
        """Note a tensor and return its place; anything else, sizes that vary as well, is its own value."""
        value = value_of(leaf)
        if not isinstance(value, torch.Tensor):
            return value
        known = next((at for at, tensor in enumerate(tensors) if tensor is leaf), None)
        if known is None:
            tensors.append(leaf)
        return _Place(len(tensors) - 1 if known is None else known)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(one, change) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(one, change) for one in value]
    return change(value)


_kept: dict[Any, GraphModule] = {}


def _trace(
    op: OpOverload, pattern: Any, values: Sequence[torch.Tensor], further: tuple[OpOverload, ...]
) -> GraphModule:
    """Return the graph of a decomposition; those for fixed sizes are kept, since trials ask for them again."""
    key = _key(op, pattern, values, further)
    if key is not None and key in _kept:
        return _kept[key]
    made = _traced(op, pattern, values, further)
    if key is not None:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[key] = made
    return made


def _key(op: OpOverload, pattern: Any, values: Sequence[torch.Tensor], further: tuple[OpOverload, ...]) -> Any:
    if any(isinstance(size, torch.SymInt) for value in values for size in (*value.shape, *value.stride())):
        return None
    # The type belongs to a number: 1, 1.0 and True mean different things to an operator.
    return op, repr(_mapped(pattern, lambda leaf: (type(leaf).__name__, leaf))), further, tuple(
        (value.dtype, tuple(value.shape), value.stride()) for value in values
    )  # fmt: skip


def _traced(
    op: OpOverload, pattern: Any, values: Sequence[torch.Tensor], further: tuple[OpOverload, ...]
) -> GraphModule:
    mode = next((value.fake_mode for value in values if hasattr(value, "fake_mode")), None)
    mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
    table = _table((op, *further))
    expand = table.get(op) or op.decompose

    def run(*tensors: torch.Tensor) -> Any:
        args, kwargs = _mapped(pattern, lambda leaf: tensors[leaf] if isinstance(leaf, _Place) else leaf)
        result = expand(*args, **kwargs)
        return list(result) if isinstance(result, list | tuple) else result

    fakes = [value if hasattr(value, "fake_mode") else _fake(mode, value) for value in values]
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(torch.no_grad())
        stack.enter_context(no_new_guards(mode) if mode.shape_env is not None else nullcontext())
        below = {one: table[one] for one in further if one in table}
        made: GraphModule = make_fx(run, below)(*fakes)
        if any(isinstance(node.target, OpOverload) and node.target._schema.is_mutable for node in made.graph.nodes):
            # Twice as slow, and few decompositions write to anything.
            made = make_fx(torch.func.functionalize(run, remove="mutations"), below)(*fakes)
    return made


def _fake(mode: FakeTensorMode, value: torch.Tensor) -> torch.Tensor:
    with mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)


def _replayed(builder: Calls, graph: GraphModule, tensors: Sequence[Any]) -> Any:
    """Make the calls of a traced graph."""
    made: dict[Node, Any] = {}
    places = iter(tensors)
    for count, node in enumerate(graph.graph.nodes):
        if count > _MOST_CALLS:
            raise ExpressionError(f"a decomposition of more than {_MOST_CALLS:,} calls")
        if node.op == "placeholder":
            made[node] = next(places)
        elif node.op == "get_attr":
            made[node] = getattr(graph, str(node.target))
        elif node.op == "output":
            return _mapped(node.args[0], lambda leaf: made.get(leaf, leaf))
        else:
            args, kwargs = _mapped((list(node.args), dict(node.kwargs)), lambda leaf: _known(leaf, made))
            made[node] = _call(builder, node, args, kwargs)
    raise AssertionError("a traced graph has an output")


def _known(leaf: Any, made: Mapping[Node, Any]) -> Any:
    return made[leaf] if isinstance(leaf, Node) else leaf


def _call(builder: Calls, node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if node.target is operator.getitem:
        return args[0][args[1]]
    if node.target is torch.ops.aten.sym_size.int:
        return value_of(args[0]).shape[args[1]]
    if isinstance(node.target, OpOverload):
        return builder.call(node.target, tuple(args), kwargs)
    if isinstance(node.meta.get("val"), SYMBOLIC):
        # Arithmetic over sizes that vary: the builder makes calls of it where a size is an argument.
        return node.target(*args, **kwargs)  # type: ignore[operator]
    raise ExpressionError(f"the decomposition calls {node.target}, which has no place in a program")
