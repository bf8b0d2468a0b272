"""Decomposition into core ATen, recorded so that it can replace a node; and debug handles."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import sympy
import torch
from torch.export import ExportedProgram, default_decompositions
from torch.fx import Node
from torch.fx.node import map_aggregate, map_arg

from exirkit.ir import (
    CALL_DELEGATE,
    PREDISPATCH_MODULE,
    CleanDiv,
    Diagnostic,
    FakeTensor,
    FakeTensorMode,
    FloorDiv,
    GraphEditor,
    HigherOrderOperator,
    Location,
    Mod,
    ModelError,
    OpOverload,
    PythonMod,
    TorchDispatchMode,
    control_flow_call,
    copy_program,
    core_aten_decompositions,
    disable_fake_tensor_cache,
    enable_python_dispatcher,
    fake_like,
    get_decompositions,
    infer_static_value,
    is_static,
    keep_composites,
    locate,
    same_value,
    use_lazy_graph_module,
    without_machine_libraries,
)
from exirkit.passes.analysis import is_kept_whole
from exirkit.passes.config.lowering_config import Overload
from exirkit.passes.contract import Pass, registered
from exirkit.passes.to_edge.edge_operators import LiftConstants
from exirkit.passes.to_executorch.propagate_specs import all_editors
from exirkit.passes.user_passes.base import ExportedProgramPassBase, ExportedProgramPassResult

from .decompositions import further_decompositions
from .own_results import with_own_results


class GenerateDebugHandles(Pass):
    """Give each call a debug handle: one number for all nodes that come from one node of the exported program.

    Handles count from 1 in graph order, those in bodies of control flow after the others. What has a handle keeps it.
    """

    name = "generate-debug-handles"
    ensures = ("debug-handles",)
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Set the handles that are missing."""
        known: dict[Any, int] = {}
        last = 0
        editors = list(all_editors(editor))
        for node in (node for one in editors for node in one.graph.nodes):
            handle = node.meta.get("debug_handle")
            if handle is not None:
                last = max(last, max(handle) if isinstance(handle, tuple) else handle)
        for owner, node in ((one, node) for one in editors for node in one.graph.nodes):
            if node.op in ("placeholder", "output") or node.meta.get("debug_handle") is not None:
                continue
            ancestor = _ancestor(node)
            handle = known.get(ancestor)
            if handle is None:
                last += 1
                known[ancestor] = handle = last
            owner.set_meta(node, "debug_handle", handle)


def _ancestor(node: Node) -> Any:
    """Return what identifies the node of the exported program from which this one descends."""
    sources = node.meta.get("from_node")
    if not sources:
        return node
    source = sources[0]
    # The first step of a chain is the latest one; the exported program's node is at its end.
    while source.from_node:
        source = source.from_node[0]
    return (source.graph_id, source.name)


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
            return self._overwrite(func, args, kwargs)
        result = infer_static_value(self._mode, func, args, kwargs)
        if result is None:
            result = func(*args, **kwargs)
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
        else:
            raise WholeGraphNeededError(f"{func} returns a {type(result).__name__}")
        return result

    def _overwrite(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the result of the functional variant stand for a result of a step that is written to."""
        written, variant = args[0], functional_variant(func)
        if variant is None or not self._is_own(written):
            raise WholeGraphNeededError(f"{func} writes to its argument")
        if written.dtype is torch.float32:
            args = tuple(_shortest(one) if type(one) is float else one for one in args)
        with self:
            result = variant(*args, **kwargs)
        if not same_value(result, written):
            raise WholeGraphNeededError(f"{func} computes something of another type than it is given")
        self._references[id(written)] = self._refer(result)
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
    variant = getattr(packet, op._overloadname, None)
    if variant is None or variant._schema.is_mutable:
        return None
    same = [argument.name for argument in variant._schema.arguments] == [
        argument.name for argument in op._schema.arguments
    ]
    return variant if same else None


def _reject_untaken(node: Node) -> None:
    """Reject a call that is not decomposed alone."""
    op: Any = node.target
    if isinstance(op, HigherOrderOperator) and control_flow_call(node) is None:
        raise WholeGraphNeededError(f"higher-order operator {op}", node)
    if getattr(op, "__module__", "") == PREDISPATCH_MODULE:
        raise WholeGraphNeededError("torch.vmap, whose operators know their dims when they are traced again", node)


# Composite operators that count as core, because runtimes have kernels for them.
_CORE_COMPOSITES = frozenset({torch.ops.aten.upsample_bilinear2d.vec, torch.ops.aten.upsample_nearest2d.vec})


def _fitting_view(editor: GraphEditor, node: Node) -> OpOverload:
    """Let a view be a copy where what it shows lies otherwise in memory since it was decomposed; return the operator.

    Raises:
        WholeGraphNeededError: Something may be written through the view.
    """
    view, reshape = torch.ops.aten.view.default, torch.ops.aten.reshape.default
    if not editor.propagate_to(node):
        return view
    args: Any = map_arg(node.args, lambda one: one.meta["val"])
    try:
        with editor.fake_mode:
            view(*args)
    except (RuntimeError, ValueError):
        if any(getattr(getattr(one.target, "_schema", None), "is_mutable", False) for one in editor.graph.nodes):
            raise WholeGraphNeededError("a view shows what lies otherwise in memory when decomposed", node) from None
        editor.retarget(node, reshape)
        return reshape
    return view


@dataclass(eq=False)
class DecomposeToCore(Pass):
    """Replace operators by their decompositions into core ATen.

    Ensures: no operator of the table, and no composite operator of ATen, is left, apart from preserved ones and those
        that write to their arguments. Composite operators of other libraries stay (`is_library_composite`).

    Args:
        preserve: Operators that stay whole.

    Source: the decompositions are torch's own; which operators they end in is the same as after
    `torch.export.ExportedProgram.run_decompositions`.
    """

    name = "decompose-to-core"
    enters_subgraphs = True
    ensures: ClassVar[Collection[str]] = ("core-operators",)
    invalidates: ClassVar[Collection[str]] = ()
    after: ClassVar[tuple[str, ...]] = ("inline-grad-regions",)

    preserve: frozenset[Overload] = frozenset()

    def __post_init__(self) -> None:
        self._table: Decompositions = _core_table()
        self._preserved = self.preserve | _CORE_COMPOSITES

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
            _reject_untaken(node)
            if op is torch.ops.aten.item.default and op not in self._preserved:
                # The number keeps its symbol: another call would have another one.
                editor.retarget(node, torch.ops.aten._local_scalar_dense.default, val=node.meta["val"])
                continue
            if op is torch.ops.aten.view.default:
                op = _fitting_view(editor, node)
            if isinstance(op, OpOverload) and self._is_composite(op) and not is_kept_whole(node):
                # Strides of results of decompositions before this one decide what is recorded.
                editor.propagate_to(node)
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
        return op in self._table or (op._can_decompose() and not is_library_composite(op))

    def _is_kept(self, recording: Recording) -> bool:
        """Whether a call stays although it can be decomposed like this."""
        del recording
        return False

    def _record(self, mode: FakeTensorMode, op: OpOverload, pattern: Any, tensors: list[Node]) -> Recording:
        recorder = OperatorRecorder(mode, self._table, self._preserved)
        # Copies, because two nodes may carry one and the same fake tensor, and the recorder tells tensors by identity.
        inputs = [_variant_of(mode, node.meta["val"]) for node in tensors]
        recorder.know(inputs)
        args, kwargs = map_aggregate(pattern, lambda leaf: inputs[leaf.index] if isinstance(leaf, InputRef) else leaf)
        try:
            with (
                mode,
                _uncached_where_sizes_vary(mode, inputs),
                # A size that only data decides must not be left behind for another decomposition after a rejection.
                mode.shape_env.ignore_fresh_unbacked_symbols() if mode.shape_env else nullcontext(),
                # A decomposition that compares sizes that vary would fix them in every copy of the program.
                mode.shape_env.error_on_new_guards() if mode.shape_env else nullcontext(),
                recorder,
                enable_python_dispatcher(),
                torch.no_grad(),
                without_machine_libraries(),
            ):
                result = recorder.expand(op, args, kwargs)
        except WholeGraphNeededError:
            raise
        except Exception as error:
            raise WholeGraphNeededError(f"{op}: {type(error).__name__}: {error}") from error
        return Recording(tuple(recorder.steps), recorder.refer_result(result))


@cache
def is_library_composite(op: OpOverload) -> bool:
    """Return whether an operator is composite, of a library other than torch's own, and functional.

    Patterns of passes and partitioners name these; see `decompose-library-operators`.
    """
    return (
        op.namespace not in _TORCH_LIBRARIES
        and op._can_decompose()
        and all(one.alias_info is None for one in (*op._schema.arguments, *op._schema.returns))
    )


_TORCH_LIBRARIES = frozenset({"aten", "prim", "prims", "higher_order", "inductor"})


def _uncached_where_sizes_vary(mode: FakeTensorMode, inputs: Sequence[Any]) -> AbstractContextManager[None]:
    """Keep torch from remembering what it is hardly asked twice, which takes longer than to answer."""
    is_static_call = all(isinstance(one, torch.Tensor) and is_static(one) for one in inputs)
    return nullcontext() if is_static_call else disable_fake_tensor_cache(mode)


def _core_table() -> Decompositions:
    return {**_torch_table(), **beyond_core()}


@cache
def _torch_table() -> Decompositions:
    # Composite operators are not in this table: torch knows of each how to take it apart.
    table: dict[Any, Callable[..., Any]] = core_aten_decompositions()
    return table


def beyond_core() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions that torch has and does not count to those into core ATen, and ours."""
    # Ours are asked for again each time: libraries may register operators later.
    return {**_torch_beyond_core(), **further_decompositions()}


@cache
def _torch_beyond_core() -> Decompositions:
    # torch searches all its decompositions for these, which takes milliseconds.
    aten = torch.ops.aten
    wanted = [
        aten.linalg_vector_norm.default,
        aten._native_batch_norm_legit_functional.default,
        aten.native_batch_norm_backward.default,
    ]
    table: dict[Any, Callable[..., Any]] = get_decompositions(wanted)
    return table


def _variant_of(mode: FakeTensorMode, value: Any) -> torch.Tensor | torch.SymInt:
    if isinstance(value, torch.SymInt):
        return value
    if not isinstance(value, FakeTensor) or value.layout is not torch.strided:
        raise WholeGraphNeededError(f"an argument is a {type(value).__name__}")
    return fake_like(mode, value)


def _pattern(node: Node, tensors: list[Node]) -> Any:
    """Return args and kwargs with `InputRef`s instead of nodes, and collect the nodes."""
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


def _give_way(editor: GraphEditor, node: Node, result: Any) -> None:
    """Use a result instead of a node: another node, or the number that `sym_size` of a fixed size gives."""
    if isinstance(result, Node):
        editor.replace(node, result)
        return
    for user in list(node.users):
        args, kwargs = map_arg((user.args, dict(user.kwargs)), lambda one: result if one is node else one)
        editor.rewire(user, args, kwargs)


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
        _reject_lists(node, recording.result)
        for user in list(node.users):
            editor.replace(user, resolve(recording.result[user.args[1]]))  # type: ignore[index]
            editor.erase(user)
    else:
        _give_way(editor, node, resolve(recording.result))
    editor.erase(node)
    for unused in (*items.values(), *reversed(made)):
        editor.erase_unused(unused)


def _reject_lists(node: Node, results: list[Any]) -> None:
    if any(user.target is not operator.getitem for user in node.users):
        raise WholeGraphNeededError(f"{node.target} has its results used as a list")
    if any(isinstance(one, list) for one in results):
        raise WholeGraphNeededError(f"{node.target} has lists among its results")


@dataclass(eq=False)
class DecomposeWholeGraph(ExportedProgramPassBase):
    """Have torch trace and decompose the whole program.

    Args:
        preserve: Operators that stay whole.
    """

    name = "decompose-whole-graph"
    # torch states the size of some views wrongly when it exports them, and rightly when it traces them again.
    changes_outputs = True

    preserve: frozenset[Overload] = frozenset()

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Return another program; what is given stays as it is."""
        if exported_program.graph.find_nodes(op="get_attr"):
            # torch finds tensors that hang on the module, and forgets where it has put them.
            exported_program = copy_program(exported_program)
            LiftConstants().run(GraphEditor(exported_program))
        exported_program = with_own_results(exported_program)
        table: dict[Any, Callable[..., Any]] = default_decompositions()
        table.update(beyond_core())
        whole = {node.target for node in exported_program.graph.nodes if is_kept_whole(node)}
        libraries = {op for op in table if isinstance(op, OpOverload) and is_library_composite(op)}
        for op in (*self.preserve, *whole, *libraries):
            table.pop(op, None)
        # Nothing calls the graphs in between, so no code is generated for them.
        with use_lazy_graph_module(True), warnings.catch_warnings():
            # torch warns of its own internals here, and there is nothing a caller could do about it.
            warnings.simplefilter("ignore")
            made = exported_program.run_decompositions(table)
        if whole:
            # Of the operators that were left, other calls are to be decomposed after all.
            DecomposeToCore(self.preserve).run(GraphEditor(made))
        return ExportedProgramPassResult(made, True)


REGISTERED = registered(DecomposeWholeGraph, ensures=("core-operators", "functional"), invalidates=())


class _ExposeOperators(DecomposeToCore):
    """Decomposes what contains certain operators, and leaves these and all else as they are."""

    name = "expose-operators"

    def _is_kept(self, recording: Recording) -> bool:
        return not any(step.target in self.preserve for step in recording.steps)


def expose_operators(program: ExportedProgram, wanted: Iterable[OpOverload]) -> ExportedProgram:
    """Return a copy of a program in which operators that others consist of are calls.

    Args:
        program: As torch.export made it; it is not changed.
        wanted: The operators. What contains none of them stays as it is.

    Returns:
        The copy, or the program itself if nothing could be done about it.
    """
    operators = frozenset(wanted)
    copied = copy_program(program)
    # Partitioners ask what weights are: tensors, and not parts of objects of tensor subclasses.
    LiftConstants().run(GraphEditor(copied))
    # Before anything is decomposed, so that all parts of an operator share a handle.
    GenerateDebugHandles().run(GraphEditor(copied))
    try:
        # What torch itself decomposes first has to be kept by other means.
        with keep_composites(operators):
            _ExposeOperators(operators).run(GraphEditor(copied))
    except WholeGraphNeededError:
        return program
    return copied
