"""Decompose operators into core ATen operators, one node at a time, or by tracing the whole program again."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import torch
from torch._decomp import _core_aten_decompositions_post_autograd, get_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch._export.utils import _is_preservable_cia_op, _special_op_to_preserve_cia
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses import FakeTensor, FakeTensorMode
from torch._subclasses.fake_tensor import disable_fake_tensor_cache
from torch.export import ExportedProgram, default_decompositions
from torch.export.exported_program import _override_composite_implicit_decomp
from torch.fx import Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.node import map_aggregate, map_arg

from exirkit.ir import (
    CALL_DELEGATE,
    GraphEditor,
    control_flow_call,
    copy_program,
    fake_like,
    is_static,
    without_machine_libraries,
)
from exirkit.passes.config.option_types import Overload
from exirkit.passes.contract import Pass
from exirkit.passes.delegate.whole_operators import is_kept_whole
from exirkit.passes.registry import registered
from exirkit.passes.user_passes.base import ExportedProgramPassBase, ExportedProgramPassResult

from .further_decompositions import further_decompositions
from .generate_debug_handles import GenerateDebugHandles
from .recording import Decompositions, InputRef, OperatorRecorder, Recording, SizeRef, StepRef, WholeGraphNeededError

# Composite operators that count as core, because runtimes have kernels for them.
_CORE_COMPOSITES = frozenset({torch.ops.aten.upsample_bilinear2d.vec, torch.ops.aten.upsample_nearest2d.vec})

# What torch.vmap and associative scans leave in a program: where a dim begins and ends that operators do not see.
_BATCHING = "torch._functorch.predispatch"


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
    enters_bodies = True
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
            if isinstance(op, HigherOrderOperator) and control_flow_call(node) is None:
                raise WholeGraphNeededError(f"higher-order operator {op}")
            if getattr(op, "__module__", "") == _BATCHING:
                raise WholeGraphNeededError(
                    "torch.vmap, whose operators know their dims when they are traced again", node
                )
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


def is_library_composite(op: OpOverload) -> bool:
    """Return whether an operator is composite, of a library other than torch's own, and functional.

    Patterns of passes and partitioners name these; see `decompose-library-operators`.
    """
    known = _LIBRARY_COMPOSITES.get(op)
    if known is None:
        schema = op._schema
        known = (
            op.namespace not in _TORCH_LIBRARIES
            and op._can_decompose()
            and all(one.alias_info is None for one in (*schema.arguments, *schema.returns))
        )
        _LIBRARY_COMPOSITES[op] = known
    return known


_LIBRARY_COMPOSITES: dict[OpOverload, bool] = {}
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
    table: dict[Any, Callable[..., Any]] = _core_aten_decompositions_post_autograd()
    return table


def beyond_core() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions that torch has and does not count to those into core ATen, and ours."""
    # Ours are asked for again each time: libraries may register operators later.
    return {**_torch_beyond_core(), **further_decompositions()}


@cache
def _torch_beyond_core() -> Decompositions:
    # torch searches all its decompositions for these, which takes milliseconds.
    table: dict[Any, Callable[..., Any]] = get_decompositions([torch.ops.aten.linalg_vector_norm.default])
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
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise WholeGraphNeededError(f"{node.target} has its results used as a list")
            editor.replace(user, resolve(recording.result[user.args[1]]))  # type: ignore[index]
            editor.erase(user)
    else:
        _give_way(editor, node, resolve(recording.result))
    editor.erase(node)
    for unused in (*items.values(), *reversed(made)):
        editor.erase_unused(unused)


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
        table: dict[Any, Callable[..., Any]] = default_decompositions()
        table.update(beyond_core())
        whole = {node.target for node in exported_program.graph.nodes if is_kept_whole(node)}
        libraries = {op for op in table if isinstance(op, OpOverload) and is_library_composite(op)}
        for op in (*self.preserve, *whole, *libraries):
            table.pop(op, None)
        # Nothing calls the graphs in between, so no code is generated for them.
        with _use_lazy_graph_module(True), warnings.catch_warnings():
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
    # What torch itself decomposes first has to be kept by other means.
    composite = {op: _special_op_to_preserve_cia for op in operators if _is_preservable_cia_op(op)}
    copied = copy_program(program)
    # Before anything is decomposed, so that all parts of an operator share a handle.
    GenerateDebugHandles().run(GraphEditor(copied))
    try:
        with _override_composite_implicit_decomp(composite):
            _ExposeOperators(operators).run(GraphEditor(copied))
    except WholeGraphNeededError:
        return program
    return copied
