"""Take operators apart into core ATen operators, one node at a time.

Each node that has a decomposition is run once, alone, on fake tensors like its own, while a recorder writes down the
core operators it reaches; the recording is put in the node's place. Nodes that are alike share one recording.
Everything else in the graph stays as it is.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import sympy
import torch
from torch._decomp import _core_aten_decompositions_post_autograd, get_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import Node
from torch.fx.node import map_aggregate, map_arg
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Mod, PythonMod

from exirkit.ir import (
    CALL_DELEGATE,
    Diagnostic,
    GraphEditor,
    Location,
    ModelError,
    fake_like,
    infer_static_value,
    locate,
)

from .contract import Pass
from .decomposition_recording import InputRef, Recording, SizeRef, Step, StepRef
from .delegate.whole_operators import is_kept_whole

Decompositions = Mapping[Any, Callable[..., Any]]

# Composite operators that count as core, because runtimes have kernels for them.
_CORE_COMPOSITES = frozenset({torch.ops.aten.upsample_bilinear2d.vec, torch.ops.aten.upsample_nearest2d.vec})


class WholeGraphNeededError(ModelError):
    """A program needs torch's own decomposition, which re-traces the whole graph (EK426); the message says why."""

    def __init__(self, why: str, node: Node | None = None) -> None:
        location = Location() if node is None else locate(node)
        super().__init__(Diagnostic(code="EK426", message=f"cannot decompose node by node: {why}", location=location))


class DecomposeToCore(Pass):
    """Replace operators by their decompositions into core ATen.

    Ensures: no operator of the table, and no composite operator, is left, apart from preserved ones and those that
        write to their arguments.

    Args:
        preserved: Operators that stay whole.
        table: Decompositions by operator; torch's to core ATen when absent.

    Source: the decompositions are torch's own; which operators they end in is the same as after
    `torch.export.ExportedProgram.run_decompositions`.
    """

    name = "decompose-to-core"

    def __init__(self, preserved: frozenset[OpOverload] = frozenset(), table: Decompositions | None = None) -> None:
        self._table = _core_table() if table is None else table
        self._preserved = preserved | _CORE_COMPOSITES

    def edit(self, editor: GraphEditor) -> None:
        """Decompose node by node.

        Raises:
            WholeGraphNeededError: A node cannot be decomposed alone; nothing was changed.
        """
        with warnings.catch_warnings():
            # What a decomposition warns of was said when the model was exported.
            warnings.simplefilter("ignore")
            self._decompose(editor)

    def _decompose(self, editor: GraphEditor) -> None:
        recordings: dict[Any, Recording] = {}
        for node in list(editor.graph.nodes):
            if node.op != "call_function" or node.target is operator.getitem:
                continue
            op = node.target
            if op is CALL_DELEGATE:
                continue
            if isinstance(op, HigherOrderOperator):
                raise WholeGraphNeededError(f"higher-order operator {op}")
            if isinstance(op, OpOverload) and self._is_composite(op) and not is_kept_whole(node):
                tensors: list[Node] = []
                pattern = _pattern(node, tensors)
                key = _key(op, pattern, tensors)
                recording = recordings.get(key)
                if recording is None:
                    recording = self._record(editor.fake_mode, op, pattern, tensors)
                    recordings[key] = recording
                if not self._is_kept(recording):
                    _put_in_place(editor, node, recording, tensors)

    def _is_composite(self, op: OpOverload) -> bool:
        if op in self._preserved or op._schema.is_mutable:
            return False
        return op in self._table or op._can_decompose()

    def _is_kept(self, recording: Recording) -> bool:
        """Whether a call stays although it can be taken apart like this."""
        del recording
        return False

    def _record(self, mode: FakeTensorMode, op: OpOverload, pattern: Any, tensors: list[Node]) -> Recording:
        recorder = _Recorder(mode, self._table, self._preserved)
        # Copies, because two nodes may carry one and the same fake tensor, and the recorder tells tensors by identity.
        inputs = [_twin_of(mode, node.meta["val"]) for node in tensors]
        recorder.know(inputs)
        args, kwargs = map_aggregate(pattern, lambda leaf: inputs[leaf.index] if isinstance(leaf, InputRef) else leaf)
        try:
            with (
                mode,
                # A size that only data decides must not be left behind for whoever decomposes after a refusal.
                mode.shape_env.ignore_fresh_unbacked_symbols() if mode.shape_env else nullcontext(),
                # A decomposition that compares sizes that vary would fix them in every copy of the program.
                mode.shape_env.error_on_new_guards() if mode.shape_env else nullcontext(),
                recorder,
                enable_python_dispatcher(),
                torch.no_grad(),
                _without_machine_libraries(),
            ):
                result = recorder.expand(op, args, kwargs)
        except WholeGraphNeededError:
            raise
        except Exception as error:
            raise WholeGraphNeededError(f"{op}: {type(error).__name__}: {error}") from error
        return Recording(tuple(recorder.steps), recorder.refer_result(result))


@contextmanager
def _without_machine_libraries() -> Iterator[None]:
    """Keep composite operators from choosing kernels of a library of this machine, which are no core operators."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@cache
def _core_table() -> Decompositions:
    # Composite operators are not in this table: torch knows of each how to take it apart.
    table: dict[Any, Callable[..., Any]] = _core_aten_decompositions_post_autograd()
    return {**table, **beyond_core()}


def beyond_core() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions that torch has and does not count to those into core ATen."""
    table: dict[Any, Callable[..., Any]] = get_decompositions([torch.ops.aten.linalg_vector_norm.default])
    return table


class _Recorder(TorchDispatchMode):
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
        raise WholeGraphNeededError(f"{op} has no decomposition for these arguments")

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
            raise WholeGraphNeededError(f"{func} writes to its argument")
        result = infer_static_value(self._mode, func, args, kwargs)
        if result is None:
            result = func(*args, **kwargs)
        referred = map_aggregate((tuple(args), dict(kwargs)), self._refer)
        number = len(self.steps)
        self.steps.append(Step(func, *referred, result))
        if isinstance(result, torch.Tensor):
            self._remember(result, StepRef(number))
        elif isinstance(result, list | tuple):
            for item, one in enumerate(result):
                if isinstance(one, torch.Tensor):
                    self._remember(one, StepRef(number, item))
        else:
            raise WholeGraphNeededError(f"{func} returns a {type(result).__name__}")
        return result

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
            elif not (size.is_Symbol and self._solve(size)):
                raise WholeGraphNeededError(f"the size {size} is no size of an argument")
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


def _twin_of(mode: FakeTensorMode, value: Any) -> torch.Tensor | torch.SymInt:
    if isinstance(value, torch.SymInt):
        return value
    if not isinstance(value, FakeTensor) or value.layout is not torch.strided:
        raise WholeGraphNeededError(f"an argument is a {type(value).__name__}")
    return fake_like(mode, value)


def _pattern(node: Node, tensors: list[Node]) -> Any:
    """Return args and kwargs with `InputRef`s in the place of nodes, and collect the nodes."""
    places: dict[Node, InputRef] = {}

    def refer(argument: Node) -> Any:
        if argument not in places:
            if not isinstance(argument.meta.get("val"), torch.Tensor | torch.SymInt):
                raise WholeGraphNeededError(f"an argument is a {type(argument.meta.get('val')).__name__}")
            places[argument] = InputRef(len(tensors))
            tensors.append(argument)
        return places[argument]

    return map_arg((node.args, dict(node.kwargs)), refer)


def _key(op: OpOverload, pattern: Any, tensors: list[Node]) -> Any:
    """Return what decides a decomposition: operator, plain arguments, and sizes, strides and dtype of tensors."""
    values = [node.meta["val"] for node in tensors]
    described = tuple(
        value.node.expr
        if isinstance(value, torch.SymInt)
        else (value.dtype, *map(_sizes_key, (value.shape, value.stride())))
        for value in values
    )
    return (op, _frozen(pattern), described)


def _sizes_key(sizes: Any) -> Any:
    return tuple(size.node.expr if isinstance(size, torch.SymInt) else size for size in sizes)


def _frozen(argument: Any) -> Any:
    if isinstance(argument, list | tuple):
        return tuple(_frozen(one) for one in argument)
    if isinstance(argument, dict):
        return tuple((key, _frozen(value)) for key, value in argument.items())
    # The type belongs to it: 1, 1.0 and True are equal, and mean different things to an operator.
    return (type(argument), argument.hex() if isinstance(argument, float) else argument)


def _size_of(editor: GraphEditor, tensor: Node, dim: int, before: Node) -> Node:
    size = tensor.meta["val"].shape[dim]
    return editor.call(torch.ops.aten.sym_size.int, (tensor, dim), before=before, origins=before, val=size)


def _put_in_place(editor: GraphEditor, node: Node, recording: Recording, tensors: list[Node]) -> None:
    made: list[Node] = []
    items: dict[tuple[int, int], Node] = {}

    def resolve(leaf: Any) -> Any:
        if isinstance(leaf, StepRef):
            return made[leaf.step] if leaf.item is None else items[leaf.step, leaf.item]
        if isinstance(leaf, SizeRef):
            return _size_of(editor, tensors[leaf.index], leaf.dim, node)
        return tensors[leaf.index] if isinstance(leaf, InputRef) else leaf

    for number, step in enumerate(recording.steps):
        args, kwargs = map_aggregate((step.args, step.kwargs), resolve)
        call = editor.call(step.target, args, kwargs, before=node, origins=node, val=step.value)
        made.append(call)
        for item, value in enumerate(step.value) if isinstance(step.value, list | tuple) else ():
            items[number, item] = editor.call(operator.getitem, (call, item), before=node, origins=node, val=value)
    if isinstance(recording.result, list):
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise WholeGraphNeededError(f"{node.target} has its results used as a list")
            editor.replace(user, resolve(recording.result[user.args[1]]))  # type: ignore[index]
            editor.erase(user)
    else:
        editor.replace(node, resolve(recording.result))
    editor.erase(node)
    for unused in (*items.values(), *reversed(made)):
        editor.erase_unused(unused)
