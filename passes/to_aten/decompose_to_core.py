"""Decomposition into core ATen, node by node."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_aggregate, map_arg

from exirkit.ir import (
    CALL_DELEGATE,
    PREDISPATCH_MODULE,
    FakeTensor,
    FakeTensorMode,
    GraphEditor,
    HigherOrderOperator,
    OpOverload,
    control_flow_call,
    copy_program,
    core_aten_decompositions,
    disable_fake_tensor_cache,
    enable_python_dispatcher,
    fake_like,
    get_decompositions,
    is_static,
    keep_composites,
    without_machine_libraries,
)
from exirkit.passes.analysis import is_kept_whole
from exirkit.passes.config.lowering_config import Overload
from exirkit.passes.contract import Pass
from exirkit.passes.to_edge.edge_operators import LiftConstants

from .debug_handles import GenerateDebugHandles
from .decompositions import further_decompositions
from .expressions import COMPOSITES
from .operator_recorder import (
    Decompositions,
    InputRef,
    OperatorRecorder,
    Recording,
    SizeRef,
    StepRef,
    WholeGraphNeededError,
)


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
                if not self._is_kept(recording) and not _is_itself(op, recording):
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


def _is_itself(op: OpOverload, recording: Recording) -> bool:
    """Return whether a decomposition leaves a call as it is: of a stable sort, say."""
    return [step.target for step in recording.steps] == [op]


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
    return {**_torch_table(), **beyond_core(), **COMPOSITES}


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
