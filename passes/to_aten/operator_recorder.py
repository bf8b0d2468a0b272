"""What an operator does in terms of core operators, recorded so that it can replace a node."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from exirkit.ir import (
    CleanDiv,
    Diagnostic,
    FakeTensorMode,
    FloorDiv,
    Location,
    Mod,
    ModelError,
    OpOverload,
    PythonMod,
    TorchDispatchMode,
    fake_like,
    infer_static_value,
    locate,
    same_value,
    side_effectful_functions,
)


class WholeGraphNeededError(ModelError):
    """A program needs torch's own decomposition, which re-traces the whole graph (EK426); the message says why."""

    def __init__(self, why: str, node: Node | None = None) -> None:
        location = Location() if node is None else locate(node)
        super().__init__(
            Diagnostic.of(code="EK426", message=f"cannot decompose node by node: {why}", location=location)
        )


@dataclass(frozen=True, slots=True)
class InputRef:
    """Stands in a recording for the n-th tensor argument of the decomposed node."""

    index: int


@dataclass(frozen=True, slots=True)
class StepRef:
    """Stands in a recording for a step's result, or for one item of it."""

    step: int
    item: int | None = None


@dataclass(frozen=True, slots=True)
class SizeRef:
    """Stands in a recording for a size that varies: that of a dim of the n-th tensor argument."""

    index: int
    dim: int


@dataclass(frozen=True, slots=True)
class Step:
    """One core operator call of a recording, with the value it computed."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any


@dataclass(frozen=True, slots=True)
class Recording:
    """What an operator does in terms of core operators.

    Attributes:
        steps: Calls in order; tensors are `InputRef`s and `StepRef`s.
        result: Reference, or list of references and Nones, that is the operator's result.
    """

    steps: tuple[Step, ...]
    result: Any


Decompositions = Mapping[Any, Callable[..., Any]]


class OperatorRecorder(TorchDispatchMode):
    """Writes down the core operators that are reached while it is active."""

    def __init__(self, mode: FakeTensorMode, table: Decompositions, preserved: frozenset[OpOverload]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._mode = mode
        self.steps: list[Step] = []
        self._table = table
        self._preserved = preserved
        self._references: dict[int, InputRef | StepRef] = {}
        self._sizes: dict[Any, SizeRef | InputRef | StepRef] = {}
        self._numbers: dict[Any, torch.SymInt] = {}
        # Tensors are told by identity, so they must not die and give theirs to another one.
        self._alive: list[Any] = []
        self._unnamed: list[Any] = []
        # By tensor, the first one whose memory it may show. Inferred values have memory of their own, so that torch
        # does not know.
        self._owners: dict[int, int] = {}

    def know(self, inputs: list[torch.Tensor | torch.SymInt]) -> None:
        """Let the inputs, and their sizes that vary, be referred to."""
        for index, tensor in enumerate(inputs):
            if isinstance(tensor, torch.SymInt):
                self._sizes[tensor.node.expr] = InputRef(index)
                self._numbers[tensor.node.expr] = tensor
                continue
            self._remember(tensor, InputRef(index))
            for dim, size in enumerate(tensor.shape):
                if isinstance(size, torch.SymInt):
                    self._sizes.setdefault(size.node.expr, SizeRef(index, dim))
                    self._numbers.setdefault(size.node.expr, size)

    def expand(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the decomposition of an operator; reached operators come to `__torch_dispatch__`."""
        for expansion in self._expansions(op):
            result = expansion(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if op._can_decompose():
            raise WholeGraphNeededError(f"{op} has no decomposition for these arguments")
        return self._reach(op, args, kwargs)

    def _expansions(self, op: Any) -> Iterator[Callable[..., Any]]:
        if op in self._table:
            yield self._table[op]
        if isinstance(op, OpOverload) and op._can_decompose():
            yield op.decompose

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":
            # A question about a tensor (its device), not a computation.
            return func(*args, **kwargs)
        for expansion in self._expansions(func) if func not in self._preserved else ():
            with self:
                result = expansion(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return self._reach(func, args, kwargs)

    def _reach(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator that stays, and write it down."""
        if func is torch.ops.aten.as_strided_.default and _only_renames_strides(*args, **kwargs):
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            return self._overwrite(func, args, kwargs)
        result = infer_static_value(self._mode, func, args, kwargs)
        if result is None:
            result = func(*args, **kwargs)
        if result is None and func not in side_effectful_functions:
            # It examines what a library for linear algebra says of singular matrices; torch drops it as well.
            return None
        referred = map_aggregate((tuple(args), dict(kwargs)), self._refer)
        number = len(self.steps)
        self.steps.append(Step(func, *referred, result))
        self._note_views(func, args, result)
        if isinstance(result, torch.Tensor):
            self._remember(result, StepRef(number))
        elif isinstance(result, list | tuple):
            for item, one in enumerate(result):
                if isinstance(one, torch.Tensor):
                    self._remember(one, StepRef(number, item))
        elif result is not None:
            raise WholeGraphNeededError(f"{func} returns a {type(result).__name__}")
        return result

    def _overwrite(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the result of the functional variant stand for a result of a step that is written to.

        Where something else may show the memory that is written, the write is a step: it is for `functionalize`.
        """
        written, variant = args[0], functional_variant(func)
        if torch.Tag.inplace_view in func.tags:
            return self._reshape(func, args, kwargs)
        if variant is None or not self._is_own(written):
            return self._write(func, args, kwargs)
        if written.dtype is torch.float32:
            args = tuple(_shortest(one) if type(one) is float else one for one in args)
        with self:
            result = variant(*args, **kwargs)
        if not same_value(result, written):
            raise WholeGraphNeededError(f"{func} computes something of another type than it is given")
        self._references[id(written)] = self._refer(result)
        return written

    def _reshape(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let a view of a result of a step stand for it, where its shape is changed."""
        written, variant = args[0], functional_variant(func)
        if variant is None or not isinstance(self._references.get(id(written)), StepRef):
            raise WholeGraphNeededError(f"{func} changes the shape of its argument")
        with self:
            shown = variant(*args, **kwargs)
        # Nothing else has the view, which would count as another name of the memory.
        self._alive = [one for one in self._alive if one is not shown]
        self._unnamed.append(shown)
        before = fake_like(self._mode, written)
        self.steps = [replace(step, value=_exchanged(step.value, written, before)) for step in self.steps]
        func(*args, **kwargs)
        self._references[id(written)] = self._refer(shown)
        return written

    def _write(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Write down a call that writes to memory of a step."""
        written = args[0]
        if not isinstance(self._references.get(self._owner(written)), StepRef):
            raise WholeGraphNeededError(f"{func} writes to its argument")
        before = fake_like(self._mode, written)
        result = func(*args, **kwargs)
        if result is not written or not same_value(written, before):
            raise WholeGraphNeededError(f"{func} changes more than the elements of its argument")
        self.steps.append(Step(func, *map_aggregate((tuple(args), dict(kwargs)), self._refer), before))
        return written

    def _note_views(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """Note whose memory the results of an operator may show."""
        if all(one.alias_info is None for one in func._schema.returns):
            return
        shown = [
            one
            for one, argument in zip(args, func._schema.arguments, strict=False)
            if argument.alias_info is not None and isinstance(one, torch.Tensor)
        ]
        for one in result if isinstance(result, list | tuple) else [result]:
            for source in shown:
                self._owners[id(one)] = self._owner(source)

    def _owner(self, tensor: Any) -> int:
        return self._owners.get(id(tensor), id(tensor))

    def _is_own(self, tensor: Any) -> bool:
        """Whether a tensor is the result of a step, and nothing else that is known shows its memory."""
        if not isinstance(self._references.get(id(tensor)), StepRef):
            return False
        memory, owner = tensor.untyped_storage(), self._owner(tensor)
        return owner == id(tensor) and all(
            one is tensor or (self._owner(one) != owner and one.untyped_storage() is not memory) for one in self._alive
        )

    def refer_result(self, result: Any) -> Any:
        """Return the references that make up a decomposition's result."""
        if isinstance(result, list | tuple):
            return [self._refer(one) for one in result]
        return self._refer(result)

    def _remember(self, tensor: torch.Tensor, reference: InputRef | StepRef) -> None:
        self._references.setdefault(id(tensor), reference)
        self._alive.append(tensor)

    def _refer(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.SymInt):
            return self._refer_size(leaf.node.expr)
        if isinstance(leaf, torch.SymFloat | torch.SymBool):
            raise WholeGraphNeededError(f"{leaf} depends on a size that varies")
        if not isinstance(leaf, torch.Tensor):
            return leaf
        reference = self._references.get(id(leaf))
        if reference is None:
            raise WholeGraphNeededError("a decomposition made a constant")
        return reference

    def _refer_size(self, size: sympy.Expr) -> Any:
        """Return what a size is referred to by; what is computed from known ones becomes steps."""
        if size.is_Integer:
            return int(size)
        if size not in self._sizes:
            combine = _COMBINATIONS.get(type(size))
            if combine is not None:
                self._combine(size, combine, size.args)
            elif isinstance(size, sympy.Pow) and size.exp.is_Integer and size.exp > 1:
                self._combine(size, operator.mul, (size.base,) * int(size.exp))
            elif not (size.is_Symbol and self._solve(size)):
                raise WholeGraphNeededError(f"the size {size} is not a size of an argument")
        return self._sizes[size]

    def _combine(self, size: sympy.Expr, combine: Callable[[Any, Any], Any], parts: tuple[sympy.Expr, ...]) -> None:
        first, *others = parts
        reference, number = self._refer_size(first), self._numbers.get(first, first)
        for other in others:
            operand = self._refer_size(other)
            value = combine(_number(number), _number(self._numbers.get(other, other)))
            self.steps.append(Step(combine, (reference, operand), {}, value))
            reference, number = StepRef(len(self.steps) - 1), value
        self._sizes[size], self._numbers[size] = reference, number

    def _solve(self, symbol: sympy.Symbol) -> bool:
        """Compute a symbol from a known size that is a multiple of it plus a number."""
        for known in self._sizes:
            rest = known.xreplace({symbol: sympy.S.Zero})
            factor = known.xreplace({symbol: sympy.S.One}) - rest
            if rest.is_Integer and factor.is_Integer and factor > 0 and known == factor * symbol + rest:
                times = known - rest
                if times not in self._sizes:
                    self._combine(times, operator.add, (known, -rest))
                if symbol not in self._sizes:
                    self._combine(symbol, operator.floordiv, (times, factor))
                return True
        return False


def _exchanged(value: Any, old: Any, new: Any) -> Any:
    if isinstance(value, list | tuple) and any(one is old for one in value):
        return [new if one is old else one for one in value]
    return new if value is old else value


_COMBINATIONS: dict[Any, Callable[[Any, Any], Any]] = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    FloorDiv: operator.floordiv,
    CleanDiv: operator.floordiv,
    Mod: operator.mod,
    PythonMod: operator.mod,
}


def _number(value: Any) -> Any:
    return value if isinstance(value, torch.SymInt) else int(value)


def _only_renames_strides(tensor: torch.Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> bool:
    """Whether strides change of dims only that have one element: pooling to one element per channel does that."""
    return (
        storage_offset in (None, tensor.storage_offset())
        and list(size) == list(tensor.shape)
        and all(extent == 1 or one == other for extent, one, other in zip(size, stride, tensor.stride(), strict=True))
    )


def _shortest(number: float) -> float:
    """Return a number of up to six digits that is the same one in single precision, if there is one.

    Decompositions in C++ round their numbers, so that 1e-06 becomes 9.999999974752427e-07, which no pattern has.
    """
    short = float(f"{number:.6g}")
    return short if _single(short) == number else number


def _single(number: float) -> float:
    return float(torch.tensor(number, dtype=torch.float32))


def functional_variant(op: OpOverload) -> OpOverload | None:
    """Return the overload that computes what an in-place one writes: same arguments, no underscore in the name."""
    namespace, _, name = op._schema.name.partition("::")
    written = [argument for argument in op._schema.arguments if argument.alias_info and argument.alias_info.is_write]
    if not name.endswith("_") or name.endswith("__") or len(written) != 1 or op._schema.arguments[0] != written[0]:
        return None
    packet = getattr(getattr(torch.ops, namespace), name[:-1], None)
    # `transpose_` has another name for its overload than `transpose`.
    names = [] if packet is None else [op._overloadname, *packet.overloads()]
    variants: list[OpOverload | None] = [getattr(packet, one, None) for one in names]
    for variant in variants:
        if variant is not None and not variant._schema.is_mutable and _parameters(variant) == _parameters(op):
            return variant
    return None


def _parameters(op: OpOverload) -> list[tuple[str, str]]:
    return [(one.name, str(one.type)) for one in op._schema.arguments]
