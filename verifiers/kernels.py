"""Calls of a program against the kernels of a target, whose conditions are short expressions over the arguments."""

from __future__ import annotations

import ast
import difflib
import math
import operator
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Final, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import (
    ALL_DTYPES,
    DefinedOperator,
    Diagnostic,
    Location,
    OperatorDtypes,
    OpOverload,
    TensorShapeDynamism,
    TensorSpec,
    UsageError,
    alloc,
    dim_order_from_stride,
    expand_rule,
    underlying,
)

from .structure import ProgramGraph, graphs_of, is_bound, type_of


class Unknown:
    """Stands for what is known only when the program runs."""

    def __repr__(self) -> str:
        return "?"


UNKNOWN: Final = Unknown()


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A tensor as a kernel sees it.

    Attributes:
        dtype: `float32`.
        sizes: Of its dims; `UNKNOWN` for one that varies.
        order: Its dims from the outermost to the innermost in memory, or `UNKNOWN`.
    """

    dtype: str
    sizes: tuple[int | Unknown, ...]
    order: tuple[int, ...] | Unknown


Fact: TypeAlias = TensorFacts | int | float | bool | str | Unknown | tuple["Fact", ...] | None
CallFacts: TypeAlias = Mapping[str, Fact]


class CallReader:
    """Reads calls of one operator.

    Args:
        op: The operator.
        only: Names of arguments that are asked for; all when absent.
    """

    def __init__(self, op: Any, only: Container[str] | None = None) -> None:
        arguments = [one for one in op._schema.arguments if only is None or one.name in only]
        self._defaults = {one.name: _of_value(one.default_value) for one in arguments if one.has_default_value()}
        places = enumerate(one.name for one in op._schema.arguments if not one.kwarg_only)
        self._places = [(place, name) for place, name in places if only is None or name in only]
        self._names = [one.name for one in arguments]

    def facts(self, node: Node, known: dict[Node, Fact]) -> dict[str, Fact]:
        """Return what a call hands to its kernel, by names of arguments; defaults are filled in.

        Args:
            node: The call.
            known: What nodes are, as far as it was found out before; it is added to.
        """
        found: dict[str, Fact] = self._defaults.copy()
        args, kwargs = node.args, node.kwargs
        for place, name in self._places:
            if place >= len(args):
                break
            found[name] = _fact_of(args[place], known)
        for name in self._names if kwargs else ():
            if name in kwargs:
                found[name] = _fact_of(kwargs[name], known)
        return found


def facts_of_call(node: Node) -> dict[str, Fact]:
    """Return what a call in a graph hands to its kernel, by names of arguments; defaults are filled in."""
    return CallReader(underlying(node.target)).facts(node, {})


_PLAIN: Final = frozenset({int, float, bool, str, type(None)})


def _fact_of(argument: Any, known: dict[Node, Fact]) -> Fact:
    if type(argument) in _PLAIN:
        return argument  # type: ignore[no-any-return]
    if isinstance(argument, Node):
        fact = known.get(argument)
        if fact is None:
            spec = argument.meta.get("spec")
            fact = _of_value(spec if isinstance(spec, TensorSpec) else argument.meta.get("val", UNKNOWN))
            known[argument] = fact
        return fact
    if isinstance(argument, list | tuple):
        return tuple([_fact_of(one, known) for one in argument])
    return _of_value(argument)


def _of_value(value: Any) -> Fact:
    if isinstance(value, TensorSpec):
        if value.shape_dynamism == TensorShapeDynamism.STATIC:
            sizes = tuple([one if isinstance(one, int) else UNKNOWN for one in value.shape])
            return TensorFacts(_plain_name(value.dtype), sizes, tuple(value.dim_order))
        return TensorFacts(_plain_name(value.dtype), (UNKNOWN,) * len(value.shape), tuple(value.dim_order))
    if isinstance(value, torch.Tensor):
        return _of_tensor(value)
    if isinstance(value, list | tuple):
        return tuple(map(_of_value, value))
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return _plain_name(value)
    return value if value is None or isinstance(value, bool | int | float | str) else UNKNOWN


def _of_tensor(value: torch.Tensor) -> TensorFacts:
    sizes = tuple(size if type(size) is int else UNKNOWN for size in value.shape)
    try:
        order: tuple[int, ...] | Unknown = tuple(dim_order_from_stride(value.stride(), value.shape))
    except (RuntimeError, ValueError, TypeError):
        order = UNKNOWN
    return TensorFacts(_plain_name(value.dtype), sizes, order)


@cache
def _plain_name(value: Any) -> str:
    return str(value).removeprefix("torch.")


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


_MOST_SHOWN = 6


@dataclass(frozen=True)
class KernelTable:
    """The kernels of a runtime.

    Attributes:
        target: Name of the target that has them.
        conditions: By operator as it stands in program files (`aten::add.out`), what its kernel asks of a call.
    """

    target: str
    conditions: Mapping[str, tuple[str, ...]]
    _read: dict[str, tuple[KernelCondition, ...]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the operators, without the overload `default`."""
        return frozenset(map(_plain, self.conditions))

    @cached_property
    def namespaces(self) -> frozenset[str]:
        """Libraries of operators that the runtime serves; kernels of others are linked to it by its users."""
        return frozenset(name.partition("::")[0] for name in self.names)

    def has(self, operator: str) -> bool:
        """Whether there is a kernel for an operator."""
        return _plain(operator) in self.names

    def resizes(self, operator: str) -> bool:
        """Whether there is a kernel for an operator that sets the sizes of its results, where they vary."""
        return self.has(operator) and not any("fixed(" in one.text for one in self.conditions_of(operator))

    def conditions_of(self, operator: str) -> tuple[KernelCondition, ...]:
        """Return the conditions of a kernel.

        Raises:
            UsageError: EK361, one of them cannot be read.
        """
        known = self._read.get(operator)
        if known is None:
            texts = self.conditions.get(operator) or self.conditions.get(f"{operator}.default", ())
            known = self._read[operator] = tuple(self._condition(operator, text) for text in texts)
        return known

    def _condition(self, operator: str, text: str) -> KernelCondition:
        try:
            return read_condition(text)
        except ValueError as error:
            raise UsageError(
                Diagnostic.of(
                    "EK361", f"the target {self.target} has a condition of {operator} that cannot be read: {error}"
                )
            ) from None


def check_kernels(program: ExportedProgram | GraphModule, table: KernelTable) -> list[Diagnostic]:
    """Check that the calls of a program of the ExecuTorch dialect have kernels that take them.

    Args:
        program: Lowered program; bodies of control flow are checked as well, delegates are not.
        table: Kernels of the runtime. Operators of other libraries than it serves are passed over: kernels for
            these are linked to it.

    Returns:
        All findings (EK359: no kernel, EK360: the kernel does not take this call), in graph order.
    """
    findings: list[Diagnostic] = []
    kernels: dict[Any, _Kernel | None] = {}
    known: dict[Node, Fact] = {}
    for graph in graphs_of(program):
        for node in graph.calls():
            target = node.target
            if target not in kernels:
                kernels[target] = _kernel(target, table)
            kernel = kernels[target]
            for each in () if kernel is None else kernel.findings(node, table, known):
                made = graph.finding(each.code, node, each.message, expected=each.expected, hint=each.hint)
                findings.append(made.model_copy(update={"notes": (*each.notes, *made.notes)}))
    return findings


@dataclass(frozen=True)
class _Kernel:
    """What has to be checked in calls of an operator.

    Attributes:
        name: Of its kernel.
        conditions: What the kernel asks of calls.
        reader: Reads the arguments of which they speak; None if there is no kernel.
    """

    name: str
    conditions: tuple[KernelCondition, ...]
    reader: CallReader | None

    def findings(self, node: Node, table: KernelTable, known: dict[Node, Fact]) -> Iterable[Diagnostic]:
        if self.reader is None:
            return (missing(table, self.name),)
        if not self.conditions:
            return ()
        facts = self.reader.facts(node, known)
        if all(one.holds(facts) is not False for one in self.conditions):
            return ()
        return broken_conditions(table, self.name, facts)


def _kernel(target: Any, table: KernelTable) -> _Kernel | None:
    """Return what has to be checked in calls of an operator; None if nothing is known of it."""
    op = underlying(target)
    if not isinstance(op, OpOverload | DefinedOperator):
        return None
    name = str(op.name())
    if name.partition("::")[0] not in table.namespaces or _is_kept(op, name, table):
        return None
    conditions = table.conditions_of(name)
    words = frozenset(word for one in conditions for word in _words(one.text))
    return _Kernel(name, conditions, CallReader(op, words) if table.has(name) else None)


def _is_kept(op: Any, name: str, table: KernelTable) -> bool:
    """Return whether an operator writes nothing: lowering leaves such ones only where it was asked to."""
    arguments = op._schema.arguments
    return not table.has(name) and not any(one.alias_info and one.alias_info.is_write for one in arguments)


def check_kernel_names(names: Iterable[str], table: KernelTable, method: str) -> list[Diagnostic]:
    """Check that operators that a program file names have kernels.

    Args:
        names: As in the file, `aten::add.out`.
        table: Kernels of the runtime.
        method: Whose operators they are.

    Returns:
        A finding EK359 for each that has none.
    """
    return [
        missing(table, name).model_copy(update={"location": Location(method=method, node=f"operator {place}")})
        for place, name in enumerate(names)
        if not table.has(name)
    ]


def missing(table: KernelTable, name: str) -> Diagnostic:
    """Return the finding EK359 about an operator without kernel."""
    packet = name.partition(".")[0]
    near = sorted(one for one in table.names if one.partition(".")[0] == packet)
    near = near or difflib.get_close_matches(name, sorted(table.names), n=3, cutoff=0.8)
    return Diagnostic.of(
        "EK359",
        f"the target {table.target} has no kernel for {name}",
        expected=f"one of its {len(table.names)} kernels" + (f", such as {', '.join(near[:3])}" if near else ""),
    )


def broken_conditions(table: KernelTable, name: str, call: CallFacts) -> Iterator[Diagnostic]:
    """Yield a finding EK360 for each condition of a kernel that a call breaks."""
    for condition in table.conditions_of(name):
        if condition.holds(call) is False:
            shown = "; ".join(f"{key}: {shown_fact(fact)}" for key, fact in _spoken_of(condition, call))
            yield Diagnostic.of(
                "EK360",
                f"the kernel {name} of the target {table.target} does not take this call ({shown})",
                expected=condition.text,
            )


def _spoken_of(condition: KernelCondition, call: CallFacts) -> list[tuple[str, Fact]]:
    words = set(_words(condition.text))
    return [(name, fact) for name, fact in call.items() if name in words][:_MOST_SHOWN]


def _words(text: str) -> list[str]:
    return "".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split()


def shown_fact(fact: Fact) -> str:
    """Return an argument as messages show it: `float32[2, 3] order [1, 0]`, `[-1, -1]`."""
    if isinstance(fact, TensorFacts):
        sizes = ", ".join(map(str, fact.sizes))
        is_plain = fact.order == tuple(range(len(fact.sizes)))
        return f"{fact.dtype}[{sizes}]" + ("" if is_plain else f" in the order {fact.order}")
    if isinstance(fact, tuple):
        return f"[{', '.join(map(shown_fact, fact))}]"
    return str(fact)


def _plain(name: str) -> str:
    return name.removesuffix(".default")


def check_out_arguments(program: ExportedProgram | GraphModule) -> list[Diagnostic]:
    """Check the tensors that out variants are given to write into.

    Returns:
        All findings (EK335: no such tensor is given, EK336: it holds something else, too, EK337: it is of another dtype
        or size than the result, EK349: its spec is not that of the result), in graph order.
    """
    findings: list[Diagnostic] = []
    for graph in graphs_of(program):
        writers: dict[Node, Node] = {}
        for node in graph.calls():
            findings += _findings(graph, node, writers)
    return findings


def _findings(graph: ProgramGraph, node: Node, writers: dict[Node, Node]) -> Iterator[Diagnostic]:
    if not isinstance(node.target, OpOverload | DefinedOperator):
        return
    names = [argument.name for argument in node.target._schema.arguments if argument.is_out]
    given = _given(node, names)
    for name, out in given:
        if out is None and not _may_be_left_out(node, len(given)):
            yield _missing(graph, node, name, "nothing")
        elif out is not None and (not isinstance(out, Node) or out.target is not alloc):
            yield _missing(graph, node, name, f"%{out.name}" if isinstance(out, Node) else repr(out))
    outs = [out for _, out in given if isinstance(out, Node)]
    yield from _shared(graph, node, outs, names, writers)
    yield from _sizes(graph, node, [out for _, out in given])
    yield from _other_specs(graph, node, outs)


def _other_specs(graph: ProgramGraph, node: Node, outs: list[Node]) -> Iterator[Diagnostic]:
    """Yield if results have other specs than what they are written to, as far as there are specs."""
    written = [spec for out in outs for spec in _specs_of(out)]
    if written and [id(spec) for spec in written] != [id(spec) for spec in _specs_of(node)]:
        yield graph.finding(
            "EK349",
            node,
            "an operator's result and the tensor it writes to have different specs",
            expected="one `TensorSpec` object, for it is one piece of memory",
            notes=tuple(f"it writes to {spec}" for spec in written),
        )


def _specs_of(node: Node) -> list[TensorSpec]:
    spec = node.meta.get("spec")
    return [one for one in (spec if isinstance(spec, list | tuple) else (spec,)) if isinstance(one, TensorSpec)]


def _given(node: Node, names: list[str]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name in names:
        value = node.kwargs.get(name)
        if isinstance(value, list | tuple):
            found += [(f"{name}[{place}]", one) for place, one in enumerate(value)]
        else:
            found.append((name, value))
    return found


def _may_be_left_out(node: Node, number: int) -> bool:
    # Some results of operators for training are not computed; they are None.
    value = node.meta.get("val")
    return number > 1 and isinstance(value, list | tuple) and None in [type_of(one) for one in value]


def _missing(graph: ProgramGraph, node: Node, name: str, found: str) -> Diagnostic:
    return graph.finding("EK335", node, f"argument {name} is {found} where the memory of the result must stand")


def _shared(
    graph: ProgramGraph, node: Node, outs: list[Node], names: list[str], writers: dict[Node, Node]
) -> Iterator[Diagnostic]:
    inputs = {
        one
        for given in (*node.args, *(value for name, value in node.kwargs.items() if name not in names))
        for one in (given if isinstance(given, list | tuple) else (given,))
        if isinstance(one, Node)
    }
    for place, out in enumerate(outs):
        other = None
        if out in inputs:
            other = "is read by the same call"
        elif out in outs[:place]:
            other = "is written by the same call twice"
        elif out in writers:
            other = f"holds the result of %{writers[out].name}"
        if other is not None:
            yield graph.finding("EK336", node, f"%{out.name}, into which %{node.name} writes, {other}")
    for out in outs:
        writers.setdefault(out, node)


def _sizes(graph: ProgramGraph, node: Node, outs: list[Any]) -> Iterator[Diagnostic]:
    value = node.meta.get("val")
    results = list(value) if isinstance(value, list | tuple) else [value]
    if len(results) != len(outs):
        return
    for out, result in zip(outs, results, strict=True):
        if not isinstance(out, Node) or out.target is not alloc or not isinstance(result, torch.Tensor):
            continue
        described = out.args[0] if out.args else None
        if not isinstance(described, tuple) or len(described) != 2:
            yield _misfit(graph, out, f"%{out.name} allocates {described!r}", "a pair of sizes and a dtype")
            continue
        sizes: Any
        sizes, dtype = described
        spec = out.meta.get("spec")
        varies = isinstance(spec, TensorSpec) and spec.shape_dynamism != TensorShapeDynamism.STATIC
        if isinstance(spec, TensorSpec) and spec.is_dynamic_unbound_tensor and dtype == result.dtype:
            # The operator makes room.
            continue
        if dtype != result.dtype or not _has_room(sizes, result, varies):
            yield _misfit(
                graph,
                out,
                f"%{out.name} allocates {str(dtype).removeprefix('torch.')}[{', '.join(map(str, sizes))}], "
                f"into which %{node.name} writes {type_of(result)}",
                "dtype and sizes of the result, or upper bounds of these",
            )


def _misfit(graph: ProgramGraph, out: Node, message: str, expected: str) -> Diagnostic:
    return graph.finding("EK337", out, message, expected=expected)


def _has_room(sizes: Any, result: torch.Tensor, varies: bool) -> bool:
    # A branch may write less into the result of the call than another branch does.
    return len(sizes) == result.dim() and all(
        is_bound(bound, size) or (varies and type(size) is int and size <= bound)
        for bound, size in zip(sizes, result.shape, strict=True)
    )
