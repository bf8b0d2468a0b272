"""The language of conditions: what a kernel asks of a call, as short expressions over the arguments."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from exirkit.ir import ALL_DTYPES, OperatorDtypes, expand_rule

from .call_facts import UNKNOWN, CallFacts, Fact, TensorFacts, Unknown


class UndecidedError(Exception):
    """What a condition asks for is known only when the program runs."""


@dataclass(frozen=True)
class KernelCondition:
    """One condition.

    Attributes:
        text: As it stands in the description of the target.
        _holds: Evaluates it; may raise `UndecidedError`.
    """

    text: str
    _holds: Callable[[CallFacts], Any]

    def holds(self, call: CallFacts) -> bool | None:
        """Whether a call meets the condition; None where that is not known before the program runs."""
        try:
            return bool(self._holds(call))
        except UndecidedError:
            return None


def tensors_in(facts: tuple[Fact, ...]) -> Iterator[TensorFacts]:
    """Yield the tensors among arguments, those in lists as well; what is not given is left out.

    Raises:
        UndecidedError: One of them is not known.
    """
    for one in facts:
        if isinstance(one, TensorFacts):
            yield one
        elif isinstance(one, tuple):
            yield from tensors_in(one)
        elif isinstance(one, Unknown):
            raise UndecidedError


def _tensor(fact: Fact) -> TensorFacts:
    if not isinstance(fact, TensorFacts):
        raise UndecidedError
    return fact


def _known(value: Any) -> Any:
    if isinstance(value, Unknown) or (isinstance(value, tuple) and UNKNOWN in value):
        raise UndecidedError
    return value


def _numbers(fact: Fact) -> tuple[Any, ...]:
    values = fact if isinstance(fact, tuple) else (fact,)
    if None in values:
        raise UndecidedError
    return tuple(_known(values))


def _order(tensor: TensorFacts) -> tuple[int, ...]:
    if isinstance(tensor.order, Unknown):
        raise UndecidedError
    return tensor.order


@cache
def _is_plain(order: tuple[int, ...]) -> bool:
    return order == tuple(range(len(order)))


def _is_contiguous(tensor: TensorFacts) -> bool:
    return _is_plain(_order(tensor))


@cache
def _has_last_channels(order: tuple[int, ...]) -> bool:
    rank = len(order)
    return rank in (4, 5) and order == (0, *range(2, rank), 1)


def _is_channels_last(tensor: TensorFacts) -> bool:
    return _has_last_channels(_order(tensor))


def contiguous(*facts: Fact) -> bool:
    """Whether tensors lie in memory in the order of their dims."""
    return all(map(_is_contiguous, tensors_in(facts)))


def one_layout(*facts: Fact) -> bool:
    """Whether tensors are all contiguous, or all channels-last."""
    tensors = list(tensors_in(facts))
    return all(map(_is_contiguous, tensors)) or all(map(_is_channels_last, tensors))


def same_order(*facts: Fact) -> bool:
    """Whether tensors have one order of dims."""
    return len({_order(one) for one in tensors_in(facts)}) <= 1


def same_shape(*facts: Fact) -> bool:
    """Whether tensors have the same sizes."""
    return len({_known(one.sizes) for one in tensors_in(facts)}) <= 1


def fixed(*facts: Fact) -> bool:
    """Whether no size of a tensor varies: kernels that ask for it of results do not resize them."""
    return all(isinstance(size, int) for one in tensors_in(facts) for size in one.sizes)


def same_dtype(*facts: Fact) -> bool:
    """Whether tensors have one dtype."""
    return len({one.dtype for one in tensors_in(facts)}) <= 1


def rank(fact: Fact) -> int:
    """Return the number of dims of a tensor."""
    return len(_tensor(fact).sizes)


def greatest_rank(*facts: Fact) -> int:
    """Return the largest number of dims of any of the tensors; 0 without tensors."""
    return max((len(one.sizes) for one in tensors_in(facts)), default=0)


def numel(fact: Fact) -> int:
    """Return the number of elements of a tensor."""
    return math.prod(_known(_tensor(fact).sizes))


def size(fact: Fact, dim: int) -> int:
    """Return one size of a tensor."""
    sizes = _tensor(fact).sizes
    if not isinstance(dim, int) or not -len(sizes) <= dim < len(sizes):
        raise UndecidedError
    found: int = _known(sizes[dim])
    return found


def outer(fact: Fact, dim: int) -> int:
    """Return the product of the sizes of the dims before one; 1 before the first."""
    sizes = _tensor(fact).sizes
    if not isinstance(dim, int) or not -len(sizes) <= dim < len(sizes):
        raise UndecidedError
    return math.prod(_known(sizes[: dim % len(sizes)]))


def dtype(fact: Fact) -> str:
    """Return the dtype of a tensor, `float32`."""
    return _tensor(fact).dtype


def length(fact: Fact) -> int:
    """Return the number of items of a list."""
    if not isinstance(fact, tuple):
        raise UndecidedError
    return len(fact)


def least(fact: Fact) -> Any:
    """Return the smallest number of a list; infinity for none."""
    return min(_numbers(fact), default=math.inf)


def greatest(fact: Fact) -> Any:
    """Return the largest number of a list; minus infinity for none."""
    return max(_numbers(fact), default=-math.inf)


def given(fact: Fact) -> bool:
    """Whether an argument is there, and not None."""
    return fact is not None


def flag(fact: Fact) -> bool:
    """Whether an argument is true."""
    return bool(_known(fact))


def integral(fact: Fact) -> bool:
    """Whether a number is an integer or a bool."""
    return isinstance(_known(fact), int)


def common_dtypes(*facts: Fact) -> bool:
    """Whether tensors have dtypes that most kernels take: no narrow floats, and no wide integers without sign."""
    return all(one.dtype in ALL_DTYPES for one in tensors_in(facts))


def dtypes(rules: tuple[str, ...], *facts: Fact) -> bool:
    """Whether dtypes are admitted by one of the rules, `T index; T: floating`, in the order of the arguments."""
    return _dtypes_of(facts) in _admitted(rules)


def sampled_dtypes(rules: tuple[str, ...], *facts: Fact) -> bool:
    """Like `dtypes`, where only combinations were tried in which at most one dtype differs from the others."""
    found = _dtypes_of(facts)
    if not _is_sampled(found):
        raise UndecidedError
    return found in _admitted(rules)


@cache
def _is_sampled(found: tuple[str, ...]) -> bool:
    return OperatorDtypes((), (), is_sampled=True).is_known(found)


@cache
def _admitted(rules: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    return frozenset(given for rule in rules for given, _ in expand_rule(rule.replace(";", " -> ;")))


def _dtypes_of(facts: tuple[Fact, ...]) -> tuple[str, ...]:
    tensors = list(tensors_in(facts))
    # Tensors without dims do not widen others in their kind.
    if len({one.dtype for one in tensors}) > 1 and len({len(one.sizes) == 0 for one in tensors}) > 1:
        raise UndecidedError
    found = tuple(map(_dtype_of, facts))
    if any(one not in ALL_DTYPES and one != "none" for one in found):
        raise UndecidedError
    return found


def _dtype_of(fact: Fact) -> str:
    if isinstance(fact, tuple):
        several = {_dtype_of(one) for one in fact} - {"none"}
        if len(several) > 1:
            raise UndecidedError
        return several.pop() if several else "none"
    if isinstance(fact, TensorFacts):
        return fact.dtype
    return "none" if fact is None else str(_known(fact))


CONDITION_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        contiguous, one_layout, same_order, same_shape, fixed, same_dtype, rank, greatest_rank, numel, size, outer,
        dtype, length, least, greatest, given, flag, integral, common_dtypes, dtypes, sampled_dtypes,
    )
}  # fmt: skip
"""What conditions may call."""

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_Term = Callable[[CallFacts], Any]


@cache
def read_condition(text: str) -> KernelCondition:
    """Read a condition.

    Raises:
        ValueError: It is not one; the message says why.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{text!r} is not an expression: {error.msg}") from None
    return KernelCondition(text, _term(tree.body, text))


def _term(tree: ast.expr, text: str) -> _Term:
    make = _READERS.get(type(tree))
    if make is None:
        raise ValueError(f"{ast.unparse(tree)!r} in {text!r} is not part of the language of conditions")
    return make(tree, text)


def _name(tree: ast.Name, text: str) -> _Term:
    name = tree.id

    def value(call: CallFacts) -> Any:
        return call.get(name)

    return value


def _constant(tree: ast.Constant, text: str) -> _Term:
    return lambda call: tree.value


def _negated(tree: ast.UnaryOp, text: str) -> _Term:
    inner = _term(tree.operand, text)
    if isinstance(tree.op, ast.USub):
        return lambda call: -_known(inner(call))
    if isinstance(tree.op, ast.Not):
        return lambda call: not _known(inner(call))
    raise ValueError(f"{ast.unparse(tree)!r} in {text!r} is not part of the language of conditions")


def _listed(tree: ast.List, text: str) -> _Term:
    items = [_term(one, text) for one in tree.elts]
    return lambda call: tuple(item(call) for item in items)


def _called(tree: ast.Call, text: str) -> _Term:
    function = CONDITION_FUNCTIONS.get(tree.func.id) if isinstance(tree.func, ast.Name) else None
    if function is None or tree.keywords:
        raise ValueError(f"{ast.unparse(tree)!r} in {text!r} calls none of {', '.join(sorted(CONDITION_FUNCTIONS))}")
    terms = [_term(one, text) for one in tree.args]
    return lambda call: function(*[term(call) for term in terms])


def _compared(tree: ast.Compare, text: str) -> _Term:
    compare = _COMPARISONS.get(type(tree.ops[0]))
    if compare is None or len(tree.ops) != 1:
        raise ValueError(f"{ast.unparse(tree)!r} in {text!r} is not part of the language of conditions")
    left, right = _term(tree.left, text), _term(tree.comparators[0], text)

    def holds(call: CallFacts) -> Any:
        try:
            return compare(_known(left(call)), _known(right(call)))
        except TypeError:
            # None, or a tensor, where a number was expected.
            raise UndecidedError from None

    return holds


def _calculated(tree: ast.BinOp, text: str) -> _Term:
    calculate = _ARITHMETIC.get(type(tree.op))
    if calculate is None:
        raise ValueError(f"{ast.unparse(tree)!r} in {text!r} is not part of the language of conditions")
    left, right = _term(tree.left, text), _term(tree.right, text)
    return lambda call: calculate(_known(left(call)), _known(right(call)))


def _joined(tree: ast.BoolOp, text: str) -> _Term:
    terms = [_term(one, text) for one in tree.values]
    deciding = isinstance(tree.op, ast.Or)

    def holds(call: CallFacts) -> bool:
        undecided = False
        for term in terms:
            try:
                if bool(term(call)) is deciding:
                    return deciding
            except UndecidedError:
                undecided = True
        if undecided:
            raise UndecidedError
        return not deciding

    return holds


_READERS: Mapping[type[ast.expr], Callable[[Any, str], _Term]] = {
    ast.Name: _name,
    ast.Constant: _constant,
    ast.UnaryOp: _negated,
    ast.List: _listed,
    ast.Call: _called,
    ast.Compare: _compared,
    ast.BinOp: _calculated,
    ast.BoolOp: _joined,
}
