"""Arguments of calls: bound to the schema, in one canonical view, and compared by what they mean."""

from __future__ import annotations

import ast
import difflib
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import EdgeOpOverload, FakeTensor, TensorType, underlying, value_of
from exirkit.patterns.operators.table import OperatorTable, Traits, traits_of
from exirkit.patterns.syntax.expressions import compare
from exirkit.patterns.syntax.terms import Operator


@dataclass
class WrittenCall:
    """Arguments of a call, bound to names.

    Attributes:
        given: Expressions by the names of the schema.
        is_open: The call ends in `...`.
        wrong: Diagnostics: message, place, hint.
    """

    given: dict[str, ast.expr] = field(default_factory=dict)
    is_open: bool = False
    wrong: list[tuple[str, ast.AST, str | None]] = field(default_factory=list)


def bind_written(op: Operator, name: str, node: ast.Call, arguments: Sequence[ast.expr]) -> WrittenCall:
    """Bind what stands in the brackets of a call.

    Args:
        op: Operator with a schema.
        name: As it is written.
        node: The call.
        arguments: Its positional arguments.
    """
    bound = WrittenCall()
    schema = list(op._schema.arguments)
    written = list(arguments)
    if written and isinstance(written[-1], ast.Constant) and written[-1].value is Ellipsis:
        bound.is_open = True
        written.pop()
    _bind_positional(bound, name, op, written)
    for keyword in node.keywords:
        _bind_keyword(bound, name, schema, keyword)
    if not bound.is_open:
        for argument in schema:
            if argument.name not in bound.given and not argument.has_default_value() and not argument.is_out:
                bound.wrong.append((f"{name} misses its argument {argument.name!r}", node, _signature(name, op)))
    for key, expression in bound.given.items():
        kind = next(argument.type for argument in schema if argument.name == key)
        problem = misfit(kind, expression)
        if problem:
            bound.wrong.append((f"argument {key!r} of {name} {problem}", expression, None))
    return bound


def _bind_positional(bound: WrittenCall, name: str, op: Operator, written: Sequence[ast.expr]) -> None:
    schema = list(op._schema.arguments)
    positional = [argument for argument in schema if not argument.kwarg_only]
    for index, expression in enumerate(written):
        if isinstance(expression, ast.Starred):
            bound.wrong.append(("`*` among the arguments of an operator", expression, "name the arguments"))
        elif index >= len(positional):
            bound.wrong.append(_too_many(name, schema, positional, expression))
            break
        else:
            bound.given[positional[index].name] = expression


def _bind_keyword(bound: WrittenCall, name: str, schema: Sequence[Any], keyword: ast.keyword) -> None:
    known = [argument.name for argument in schema]
    if keyword.arg is None:
        bound.wrong.append(("`**` is not part of the language", keyword.value, None))
    elif keyword.arg not in known:
        close = difflib.get_close_matches(keyword.arg, known, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
        bound.wrong.append((f"{name} has no argument {keyword.arg!r}", keyword, hint))
    elif keyword.arg in bound.given:
        bound.wrong.append((f"argument {keyword.arg!r} of {name} is given twice", keyword, None))
    else:
        bound.given[keyword.arg] = keyword.value


def _too_many(name: str, schema: Sequence[Any], positional: Sequence[Any], at: ast.expr) -> tuple[str, ast.AST, str]:
    by_name = [argument.name for argument in schema if argument.kwarg_only]
    hint = f"it takes {', '.join(argument.name for argument in positional)}"
    if by_name:
        hint += f"; by name only: {', '.join(by_name)}"
    return f"{name} takes {len(positional)} positional arguments", at, hint


def _signature(name: str, op: Operator) -> str:
    return f"its schema is {name}{str(op._schema).partition('(')[1]}{str(op._schema).partition('(')[2]}"


def misfit(kind: Any, expression: ast.expr) -> str | None:
    """Return why a written argument cannot be what the schema asks for, or None; names may be anything."""
    text = str(kind)
    if isinstance(expression, ast.List | ast.Tuple) and not text.startswith(("List[", "Optional[List[")):
        return f"is a list, and the schema says {text}"
    if not isinstance(expression, ast.Constant) or expression.value is Ellipsis:
        return None
    value = expression.value
    if value is None:
        return None if text.startswith("Optional[") else f"cannot be None: the schema says {text}"
    plain = text.removeprefix("Optional[").removesuffix("]") if text.startswith("Optional[") else text
    if isinstance(value, str):
        return None if plain in ("str", "Device") else f"is a text, and the schema says {text}"
    if plain == "str":
        return "must be a text"
    if plain.startswith("List["):
        return None if plain.startswith(("List[int", "List[float", "List[SymInt")) else f"is a number, not {text}"
    if plain in ("int", "SymInt") and isinstance(value, float):
        return f"is {value!r}, and the schema says {text}"
    return None


def default_of(argument: Any) -> Any:
    """Return the default of a schema argument as a plain value."""
    value = argument.default_value
    if isinstance(value, int) and str(argument.type) in ("float", "Optional[float]") and not isinstance(value, bool):
        return float(value)
    return list(value) if isinstance(value, list | tuple) else value


def normalised_literal(kind: Any, value: Any) -> Any:
    """Return a literal as the schema takes it: an integer given for a float is a float."""
    normalise = normaliser(kind)
    return value if normalise is None else normalise(value)


def normaliser(kind: Any) -> Callable[[Any], Any] | None:
    """Return `normalised_literal` for one type, or None where it changes nothing."""
    text = str(kind)
    if text in ("float", "Optional[float]"):
        return _as_float
    if "List[float]" in text:
        return _as_floats
    return _as_int if text in ("int", "Optional[int]", "SymInt") else None


def _as_float(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _as_floats(value: Any) -> Any:
    return list(map(_as_float, value)) if isinstance(value, list) else value


def _as_int(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def is_tensor_argument(kind: Any) -> bool:
    """Whether the schema asks for a tensor, or for none or a tensor."""
    return isinstance(kind, TensorType) or str(kind) in ("Tensor", "Optional[Tensor]")


def result_count(op: Any) -> int | None:
    """Return how many results an operator has, or None when that depends on its arguments."""
    returns = op._schema.returns
    if len(returns) == 1 and str(returns[0].type).startswith("List["):
        return None
    return len(returns)


# One view of the arguments of a call, however they were written; the graph stays as it is


_WINDOWS = ("stride", "padding", "dilation", "output_padding")
_CONVOLUTIONS = {"convolution", "conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d"}
_SIZES = {"view", "view_copy", "reshape", "expand", "expand_copy"}


class Arguments(dict[str, Any]):
    """Arguments of a call by name, in the order of the schema; shared, so they must not be changed."""

    __slots__ = ("_ranks",)

    def __init__(self, values: Mapping[str, Any], ranks: dict[str, int]) -> None:
        super().__init__(values)
        self._ranks = ranks

    def rank_of(self, name: str) -> int | None:
        """Return how many dims an argument counts, or None if it counts none."""
        return self._ranks.get(name)


# Keyed by node; a view is good as long as target, args and kwargs are the same objects, since FX replaces them.
_CACHE: weakref.WeakKeyDictionary[Node, tuple[Any, Any, Any, Arguments]] = weakref.WeakKeyDictionary()


def canonical_arguments(node: Node) -> Arguments:
    """Return the view of a call."""
    known = _CACHE.get(node)
    # FX replaces arguments as a whole. Its properties for them are slow, and this is asked very often.
    if known is not None and known[0] is node.target and known[1] is node._args and known[2] is node._kwargs:
        return known[3]
    made = _view(node)
    _CACHE[node] = (node.target, node._args, node._kwargs, made)
    return made


def normalized_arguments(node: Node) -> dict[str, Any]:
    """Return the arguments of a call by the names of the schema, however they were written.

    Args:
        node: A call of an operator, ATen or Edge; of other functions, arguments by position are named `0`, `1` ...

    Returns:
        All arguments, those that are not given as their defaults; dims count from the front, `-1` among the sizes of a
        view is what is meant, and one number for both dims of a window is two. The caller may change it.
    """
    return {
        name: list(value) if isinstance(value, list) else value for name, value in canonical_arguments(node).items()
    }


def argument_of(node: Node, name: str) -> Any:
    """Return one argument of a call as in its view; what is a node is found without making the view."""
    target, args = node.target, node._args
    key = id(target._op if type(target) is EdgeOpOverload else underlying(target))
    if key in _PLANS:
        places = _PLANS[key].places
        if name in places and places[name] < len(args) and type(args[places[name]]) is Node:
            return args[places[name]]
    return canonical_arguments(node).get(name)


@dataclass(frozen=True, slots=True)
class _Parameter:
    """What is to know of one argument of an operator; asking the schema for it each time is slow."""

    name: str
    index: int | None
    normalise: Callable[[Any], Any] | None
    default: Any
    is_dim: bool
    is_pair: bool


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the calls of one operator are viewed."""

    op: Any
    traits: Traits
    parameters: tuple[_Parameter, ...]
    places: Mapping[str, int]
    tensors: frozenset[str | int]
    has_sizes: bool
    has_windows: bool
    like: tuple[tuple[str, str], ...]


# Keyed by identity, since torch computes the hash of an operator in Python; the plan keeps its operator alive.
_PLANS: dict[int, _Plan] = {}


def _plan_of(op: Any, schema: Any) -> _Plan:
    plan = _PLANS.get(id(op))
    if plan is None:
        traits = traits_of(op)
        parameters = tuple(_parameter(index, argument, traits) for index, argument in enumerate(schema.arguments))
        places = {one.name: one.index for one in parameters if one.index is not None}
        like = tuple(
            (name, other) for name, other in traits.defaults.items() if any(other == one.name for one in parameters)
        )
        name = schema.name.partition("::")[2]
        takes = [(at, one.name) for at, one in enumerate(schema.arguments) if is_tensor_argument(one.type)]
        tensors = frozenset(place for both in takes for place in both)
        plan = _Plan(op, traits, parameters, places, tensors, name in _SIZES, name in _CONVOLUTIONS, like)
        _PLANS[id(op)] = plan
    return plan


def tensor_places(op: Any) -> frozenset[str | int]:
    """Return where an operator asks for a tensor, or for none or a tensor: names of arguments, and their places."""
    return _plan_of(op, op._schema).tensors


def _parameter(index: int, argument: Any, traits: Traits) -> _Parameter:
    return _Parameter(
        name=argument.name,
        index=None if argument.kwarg_only else index,
        normalise=normaliser(argument.type),
        default=default_of(argument) if argument.has_default_value() else None,
        is_dim=argument.name in traits.dims,
        is_pair=argument.name in traits.pairs,
    )


def _view(node: Node) -> Arguments:
    op = underlying(node.target)
    schema = getattr(op, "_schema", None)
    args, kwargs = node.args, node.kwargs
    if schema is None:
        named = {str(index): value for index, value in enumerate(args)}
        return Arguments({**named, **kwargs}, {})
    plan = _plan_of(op, schema)
    values: dict[str, Any] = {}
    ranks: dict[str, int] = {}
    count = len(args)
    rank = _rank(node, plan.traits) if plan.traits.dims else None
    for parameter in plan.parameters:
        name, index = parameter.name, parameter.index
        value = args[index] if index is not None and index < count else kwargs.get(name, parameter.default)
        if type(value) is not Node:
            value = _normalised(value, parameter, rank)
        if rank is not None and parameter.is_dim:
            ranks[name] = rank
        values[name] = value
    if plan.has_sizes:
        _resolve_sizes(node, values)
    if plan.has_windows:
        _spread_windows(values)
    for name, other in plan.like:
        if values[name] == []:
            values[name] = values[other]
    return Arguments(values, ranks)


def _spread_windows(values: dict[str, Any]) -> None:
    """Write one number for all dims of a convolution once for each: exporters do not, where its padding is a word."""
    weight = value_of(values.get("weight"))
    dims = weight.dim() - 2 if isinstance(weight, torch.Tensor) else 1
    for name in _WINDOWS:
        value = values.get(name)
        if isinstance(value, list) and len(value) == 1 and dims > 1:
            values[name] = value * dims


def _normalised(value: Any, parameter: _Parameter, rank: int | None) -> Any:
    if parameter.normalise is not None:
        value = parameter.normalise(value)
    if rank is not None and parameter.is_dim:
        value = _from_front(value, rank)
    elif parameter.is_pair and isinstance(value, list | tuple) and len(value) == 1:
        value = [value[0], value[0]]
    # Lists are copied: a default belongs to the plan.
    return list(value) if isinstance(value, list | tuple) else value


def _rank(node: Node, traits: Traits) -> int | None:
    source: Any = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
    if isinstance(source, list | tuple):
        source = source[0] if source else None
    value = source.meta.get("val") if isinstance(source, Node) else None
    return value.dim() + traits.new_dims if isinstance(value, torch.Tensor) else None


def _from_front(value: Any, rank: int) -> Any:
    if isinstance(value, list | tuple):
        return [_from_front(one, rank) for one in value]
    return value + max(1, rank) if type(value) is int and value < 0 else value


def _resolve_sizes(node: Node, values: dict[str, Any]) -> None:
    result = node.meta.get("val")
    if not isinstance(result, torch.Tensor):
        return
    for name in ("size", "shape"):
        sizes = values.get(name)
        if (
            isinstance(sizes, list)
            and len(sizes) == result.dim()
            and any(type(one) is int and one == -1 for one in sizes)
        ):
            values[name] = [
                result.shape[dim] if type(one) is int and one == -1 else one for dim, one in enumerate(sizes)
            ]


# What an argument means where it can be written in several ways: defaults that stand for something, dims in any order


Meaning = Callable[[Any, Arguments], Any]
"""From a value and all arguments of its call to what the value means; equal meanings are equal values."""

_END = "the end"
_PAST_EVERY_END = 1 << 62
_SLICES = frozenset({"aten.slice.Tensor", "aten.slice_copy.Tensor"})


@cache
def meaning_of(op: Operator, name: str) -> Meaning | None:
    """Return the meaning of an argument of an operator, or None if it can be written in one way only."""
    schema = getattr(op, "_schema", None)
    if schema is None:
        return None
    said = traits_of(op).defaults.get(name)
    if said in _SAID:
        return _SAID[said]
    if said is not None:
        return _like(said)
    full = f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"
    if full in _SLICES and name in ("start", "end"):
        return _start if name == "start" else _stop
    kind = next((str(one.real_type) for one in schema.arguments if one.name == name), "")
    return _OF_TYPE.get((name, kind))


def _like(other: str) -> Meaning:
    def meaning(value: Any, arguments: Arguments) -> Any:
        return arguments.get(other) if value in ([], None) else value

    return meaning


def _first(arguments: Arguments) -> torch.Tensor | None:
    return next((one for one in map(value_of, arguments.values()) if isinstance(one, torch.Tensor)), None)


def _dtype_of_input(value: Any, arguments: Arguments) -> Any:
    first = _first(arguments)
    return first.dtype if value is None and first is not None else value


def _dtype_of_sum(value: Any, arguments: Arguments) -> Any:
    first = _first(arguments)
    if value is not None or first is None:
        return value
    return first.dtype if first.dtype.is_floating_point or first.dtype.is_complex else torch.int64


def _dtype_of_number(value: Any, arguments: Arguments) -> Any:
    if value is not None:
        return value
    number = arguments.get("fill_value")
    return {bool: torch.bool, int: torch.int64, float: torch.get_default_dtype()}.get(type(number))


def _default_dtype(value: Any, arguments: Arguments) -> Any:
    return torch.get_default_dtype() if value is None else value


def _all_dims(value: Any, arguments: Arguments) -> Any:
    first = _first(arguments)
    if first is None:
        return value
    if value is None or value == []:
        return list(range(first.dim()))
    # The order in which dims are summed up has no meaning.
    return sorted(value) if isinstance(value, list) and all(type(one) is int for one in value) else value


def _scale(value: Any, arguments: Arguments) -> Any:
    first = _first(arguments)
    size = first.shape[-1] if first is not None and first.dim() else None
    return 1.0 / math.sqrt(size) if value is None and type(size) is int and size else value


def _correction(value: Any, arguments: Arguments) -> Any:
    return 1 if value is None else value


def _nothing(value: Any, arguments: Arguments) -> Any:
    return None


def _device(value: Any, arguments: Arguments) -> Any:
    return torch.device("cpu") if value is None else torch.device(value)


def _pinned(value: Any, arguments: Arguments) -> Any:
    return bool(value)


def _layout(value: Any, arguments: Arguments) -> Any:
    return torch.strided if value is None else value


def _memory_format(value: Any, arguments: Arguments) -> Any:
    first = _first(arguments)
    if value is None:
        return torch.preserve_format
    is_static = first is not None and all(type(size) is int for size in first.shape)
    is_kept = value is torch.contiguous_format and first is not None and is_static and first.is_contiguous()
    return torch.preserve_format if is_kept else value


def _size_of_dim(arguments: Arguments) -> Any:
    first, dim = _first(arguments), arguments.get("dim")
    if first is None or type(dim) is not int or not -first.dim() <= dim < first.dim():
        return None
    return first.shape[dim]


def _start(value: Any, arguments: Arguments) -> Any:
    if value is None:
        return 0
    if type(value) is not int or value >= 0:
        return value
    size = _size_of_dim(arguments)
    return max(0, value + size) if type(size) is int else value


def _stop(value: Any, arguments: Arguments) -> Any:
    if value is None or (type(value) is int and value >= _PAST_EVERY_END):
        return _END
    size = _size_of_dim(arguments)
    if type(value) is int and value < 0 and type(size) is int:
        value = max(0, value + size)
    is_size = isinstance(value, int | torch.SymInt) and size is not None
    return _END if is_size and compare(">=", value, size) is True else value


_SAID: dict[str, Meaning] = {
    "dtype of input": _dtype_of_input,
    "dtype of sum": _dtype_of_sum,
    "dtype of number": _dtype_of_number,
    "default dtype": _default_dtype,
    "all dims": _all_dims,
    "root of last size": _scale,
    "one": _correction,
    "nothing": _nothing,
}
_OF_TYPE: dict[tuple[str, str], Meaning] = {
    ("device", "Optional[Device]"): _device,
    ("pin_memory", "Optional[bool]"): _pinned,
    ("layout", "Optional[Layout]"): _layout,
    ("memory_format", "Optional[MemoryFormat]"): _memory_format,
}


# Calls that return what they were given: copies, casts to the same dtype, views of the same sizes

_COPIES = (
    "aten.alias.default", "aten.alias_copy.default", "aten.clone.default", "aten.contiguous.default",
    "aten.detach.default", "aten.detach_copy.default", "aten.lift_fresh_copy.default", "aten.view.default",
    "aten.view_copy.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.expand.default",
    "aten.expand_copy.default", "aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout",
    "dim_order_ops._clone_dim_order.default", "dim_order_ops._to_dim_order_copy.default",
)  # fmt: skip
_WITHOUT_TRAINING = ("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default")
_ASSERTS = frozenset({"aten::_assert_tensor_metadata"})


def source_of(node: Node) -> Node | None:
    """Return the value that a call gives back as it is, or None if it may change something."""
    if node.op != "call_function":
        return None
    target = node.target
    # Edge programs are full of handles, and this is asked very often.
    key = id(target._op if type(target) is EdgeOpOverload else underlying(target))
    source = node._args[0] if key in passing_operators() and node._args else None
    if type(source) is not Node:
        return None
    check = _checks()[key]
    if check is not None and not check(node):
        return None
    old, new = source.meta.get("val"), node.meta.get("val")
    # Nearly all are fake tensors.
    if type(old) is not FakeTensor and not isinstance(old, torch.Tensor):
        return None
    if type(new) is not FakeTensor and not isinstance(new, torch.Tensor):
        return None
    is_alike = old.dtype == new.dtype and old.ndim == new.ndim
    return source if is_alike and _are_equal(old.shape, new.shape) else None


def _are_equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether sizes, as many of each, are certainly the same."""
    for left, right in zip(one, other, strict=True):
        if type(left) is not int or type(right) is not int:
            return compare("==", list(one), list(other)) is True
        if left != right:
            return False
    return True


def behind(node: Node) -> Node:
    """Return the value behind all calls that give back what they were given."""
    passing = passing_operators()
    while node.op == "call_function" and id(underlying(node.target)) in passing:
        source = source_of(node)
        if source is None:
            break
        node = source
    return node


def may_pass(op: Operator) -> bool:
    """Whether calls of an operator may give back what they were given."""
    return id(op) in _checks()


def is_remark(node: Node) -> bool:
    """Whether a call only states what is known of a value: it uses the value, and computes nothing with it."""
    schema = getattr(underlying(node.target), "_schema", None) if node.op == "call_function" else None
    return schema is not None and schema.name in _ASSERTS and not node.users


@cache
def passing_operators() -> frozenset[int]:
    """Return the identities of operators whose calls may give back what they were given."""
    return frozenset(_checks())


@cache
def _checks() -> dict[int, Callable[[Node], bool] | None]:
    """Return by identity of the operator what else must hold, if anything; torch keeps its operators alive."""
    find = OperatorTable().find
    known: dict[int, Callable[[Node], bool] | None] = {id(find(name)): None for name in _COPIES}
    known.update({id(find(name)): _is_evaluating for name in _WITHOUT_TRAINING})
    return known


def _is_evaluating(node: Node) -> bool:
    arguments: Any = canonical_arguments(node)
    return arguments.get("train") is False
