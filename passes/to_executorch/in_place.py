"""Results in memory whose value nothing needs any more: calls that write in place, states computed where they stay."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import (
    DefinedOperator,
    EdgeOpOverload,
    GraphEditor,
    OpOverload,
    ProgramInterface,
    SubgraphEditor,
    TensorSpec,
    control_flow_call,
    find_out_variant,
    has_form_of,
    is_external_constant,
    named_arguments,
    operator_named,
    ops,
    out_operator_name,
    overwritable_arguments,
    same_argument,
    split_arguments,
    stored_tensor,
    underlying,
    view,
)
from exirkit.passes.contract import Pass
from exirkit.passes.memory.graph.specs import node_specs
from exirkit.passes.memory.planners import storage_root

_COPY_BACK = torch.ops.aten.copy_.default
_INDEX_PUT = torch.ops.aten.index_put.default
_ARANGE = (torch.ops.aten.arange.start_step, torch.ops.aten.arange.default)


@dataclass(eq=False, kw_only=True)
class WriteInPlace(Pass):
    """Let a call write into the memory of an argument, or of a state, whose value nothing needs any more.

    The call computes the same. What changes is that no second tensor is needed, that an operator which writes a
    few rows of a large tensor no longer copies the others, and that a new value of a buffer or mutated input, computed
    where that lies, needs no copy back. If a kernel fails in such a program, states may hold some new values.

    A call stays as it is where that could be seen: something reads the old value afterwards, or a view of it, or it is
    an output; the call reads the same memory by another argument; the memory belongs to an input or constant that the
    program does not write, or to control flow; the result is an output, and would lie in the memory of a state.

    `index_put` writes in place if it has one index of integers and does not accumulate. Kernels of `index_put_` take no
    negative numbers in the index, and neither broadcast values nor indices of another rank than one; these are computed
    before it, unless the numbers are known.

    Args:
        operators: Operators that write into their first argument, by the names of those that they replace.
        sharing: Names of operators whose result takes the place of an argument that its kernel may overwrite.
        states: Compute new values of buffers and mutated inputs where these are kept.
        least_nbytes: Leave smaller tensors where they are.
        views: Let values and indices of another shape share the memory of what they are made of.

    Requires: specs with bounded sizes; after views have been made, which share memory.

    Before: `%put = index_put(%b_cache, [%i], %row)`; `%copy_ = copy_(%b_cache, %put)`; `return (%copy_, ...)`
    After: `%put = index_put_(%b_cache, [%i], %row)`; `return (%put, ...)`
    """

    name = "write-in-place"
    requires = ("specs", "bounded-shapes", "mutations-written-back")
    invalidates = ("edge-operators", "functional")

    operators: Mapping[str, str] = field(default_factory=dict)
    sharing: Collection[str] = ()
    states: bool = False
    least_nbytes: int = 0
    views: bool = True

    def __post_init__(self) -> None:
        named = {name: (operator_named(name), operator_named(other)) for name, other in self.operators.items()}
        self._writing = {underlying(op): underlying(other) for op, other in named.values()}
        self._sharing = {underlying(operator_named(name)) for name in self.sharing}

    def edit(self, editor: GraphEditor) -> None:
        """Edit the graph, from its end: what a later call may overwrite can be what an earlier one has written."""
        if not (self._writing or self._sharing or self.states):
            return
        memory = _Memory(editor)
        for node in reversed(list(editor.graph.nodes)):
            if node.op != "call_function" or not isinstance(node.target, EdgeOpOverload):
                continue
            if underlying(node.target) in self._writing:
                self._write(editor, memory, node)
            elif underlying(node.target) in self._sharing:
                self._share(memory, node)
        if self.states:
            for owner, write in list(memory.writes_back()):
                self._compute_in(memory, owner, write)
        memory.drop_copies()

    def _write(self, editor: GraphEditor, memory: _Memory, node: Node) -> None:
        """Replace a call by one that writes into its first argument, where that can not be seen."""
        first = node.args[0]
        if not isinstance(first, Node) or not self._is_large(first) or not memory.may_take(node, first, None):
            return
        if underlying(node.target) is _INDEX_PUT:
            made = _rows(_Insertion(editor, memory, node, self.views), first)
            if made is None:
                return
            editor.rewire(node, made, {}, val=node.meta["val"])
        target = self._writing[underlying(node.target)]
        args, kwargs = split_arguments(target, dict(named_arguments(node, underlying(node.target)._schema)))
        editor.retarget(node, target, args, kwargs, val=node.meta["val"])
        memory.take(node, first)

    def _share(self, memory: _Memory, node: Node) -> None:
        """Let the result of a call lie over the first argument for which that can not be seen."""
        names = _overwritable(node)
        given = named_arguments(node, underlying(node.target)._schema)
        for name in names:
            value = given.get(name)
            if isinstance(value, Node) and self._is_large(value) and memory.may_take(node, value, names):
                memory.take(node, value)
                return

    def _compute_in(self, memory: _Memory, owner: Node, write: Node) -> None:
        """Let what is copied into a state be computed there, where that can not be seen."""
        made: Any = write.args[1]
        if made.op != "call_function" or not isinstance(made.target, EdgeOpOverload) or not self._is_large(made):
            return
        if find_out_variant(underlying(made.target)) is None:
            return
        if isinstance(made.meta.get("spec"), TensorSpec) and memory.may_take(made, owner, _overwritable(made)):
            memory.take(made, owner)

    def _is_large(self, node: Node) -> bool:
        spec = node.meta.get("spec")
        return isinstance(spec, TensorSpec) and spec.is_static_shape_tensor and spec.nbytes() >= self.least_nbytes


def _overwritable(node: Node) -> tuple[str, ...]:
    """Return the arguments that the kernel of a call may overwrite by its only result."""
    out = find_out_variant(underlying(node.target))
    table = overwritable_arguments(out_operator_name(out)) if out is not None else {}
    return next(iter(table.values())) if len(table) == 1 else ()


class _Memory:
    """Which memory the values of a graph lie in, who reads it when, and who may take it over."""

    def __init__(self, editor: GraphEditor) -> None:
        self._editor = editor
        is_body = isinstance(editor, SubgraphEditor)
        interface = ProgramInterface(editor.graph, None if is_body else editor.program.graph_signature)
        targets = Counter(str(entry.target) for entry in interface.inputs.values() if entry.target is not None)
        # What stands for a stored tensor twice has two places, of which one would keep the old value.
        self._written = {
            node
            for node in interface.written
            if (entry := interface.inputs.get(node)) is None or targets[str(entry.target)] < 2
        }
        self._returned = dict.fromkeys(one for one in interface.user_results if isinstance(one, Node))
        self._steps = {node: step for step, node in enumerate(editor.graph.nodes)}
        self._owners: dict[TensorSpec, Node] = {}
        self._members: dict[TensorSpec, list[Node]] = {}
        self._readers: dict[TensorSpec, list[Node]] = {}
        for node in self._steps:
            for spec in node_specs(node):
                root = storage_root(spec)[0]
                self._owners.setdefault(root, node)
                self._members.setdefault(root, []).append(node)
            # That a new value is at its place does not count as reading it.
            for argument in self._returned if node.op == "output" else node.all_input_nodes:
                for spec in node_specs(argument):
                    self._readers.setdefault(storage_root(spec)[0], []).append(node)

    def may_take(self, node: Node, place: Node, overwritten: Collection[str] | None) -> bool:
        """Return whether the result of a call may lie in the memory of another value.

        Args:
            node: The call.
            place: Has the memory: an argument of the call, or an input or buffer that its result is copied into.
            overwritten: Arguments that the kernel reads and writes at the same place, element by element; None for a
                call that is to write into its first argument, which is `place`.
        """
        spec, wanted = node.meta.get("spec"), place.meta.get("spec")
        if not isinstance(spec, TensorSpec) or not isinstance(wanted, TensorSpec) or spec.storage_base is not None:
            return False
        root = storage_root(wanted)[0]
        if root is spec or not has_form_of(wanted, spec) or not _has_whole(wanted):
            return False
        # One that lies in the memory of another value already stays there: that value, which may be a state or one that
        # is computed before the state is read, would move with it.
        if self._owners[spec] is not node:
            return False
        return (
            self._is_free(root, wanted, spec)
            and self._reads_alike(node, root, wanted, overwritten)
            and self._is_dead_after(node, root, spec)
        )

    def _is_free(self, root: TensorSpec, wanted: TensorSpec, spec: TensorSpec) -> bool:
        """Return whether memory belongs to the program, and a result in it to no one else."""
        owner = self._owners[root]
        if root.const or root.is_dynamic_unbound_tensor:
            return False
        returned = any(self._root(one) is spec for one in self._returned)
        if owner.op == "placeholder":
            return owner in self._written and not returned
        # An output in a view of other memory is one that no caller can name a place for.
        return _is_plain(owner) and not (returned and wanted is not root)

    def _reads_alike(
        self, node: Node, root: TensorSpec, wanted: TensorSpec, overwritten: Collection[str] | None
    ) -> bool:
        """Return whether a call reads of the memory only what it overwrites itself, in the same order."""
        arguments = named_arguments(node, underlying(node.target)._schema)
        for position, (name, value) in enumerate(arguments.items()):
            for one in value if isinstance(value, (list, tuple)) else (value,):
                for spec in node_specs(one) if isinstance(one, Node) else ():
                    if storage_root(spec)[0] is not root:
                        continue
                    is_first = overwritten is None and position == 0
                    allowed = is_first or (name in (overwritten or ()) and has_form_of(spec, wanted))
                    if not allowed:
                        return False
        return True

    def _is_dead_after(self, node: Node, root: TensorSpec, spec: TensorSpec) -> bool:
        """Return whether nothing reads memory behind a call, but for the copy back of what that has computed."""
        step = self._steps[node]
        if any(control_flow_call(reader) is not None for reader in self._readers.get(spec, ())):
            return False
        later = [reader for reader in self._readers.get(root, ()) if self._steps[reader] > step]
        if self._owners[root].op != "placeholder":
            return not later
        return len(later) == 1 and self._copies_back(later[0], root, spec)

    def _copies_back(self, reader: Node, root: TensorSpec, spec: TensorSpec) -> bool:
        if reader.target is not _COPY_BACK or reader.args[0] is not self._owners[root]:
            return False
        source: Any = reader.args[1]
        return source.meta.get("spec") is spec

    def take(self, node: Node, place: Node) -> None:
        """Let the result of a call, and all that lies in its memory, lie in that of another value."""
        old, new = node.meta["spec"], place.meta["spec"]
        root = storage_root(new)[0]
        made: dict[TensorSpec, TensorSpec] = {old: new}
        for member in self._members.pop(old):
            spec = member.meta["spec"]
            # Not a result among several: these have lists of specs, and are not taken.
            if spec not in made:
                made[spec] = copy.copy(spec)
                made[spec].storage_base = root
            self._editor.set_meta(member, "spec", made[spec])
            self._members[root].append(member)
        self._readers.setdefault(root, []).extend(self._readers.pop(old, ()))

    def owner(self, spec: TensorSpec) -> Node | None:
        """Return a node whose value has the memory of a tensor, and alone; None if this pass has made that."""
        root = storage_root(spec)[0]
        return next((node for node in self._members.get(root, ()) if node.meta["spec"] is root), None)

    def add_view(self, node: Node) -> None:
        """Note a view that has been made while this pass runs: it goes where its memory goes."""
        self._members.setdefault(storage_root(node.meta["spec"])[0], []).append(node)

    def writes_back(self) -> Iterator[tuple[Node, Node]]:
        """Yield what is written back, each with the copy that does it."""
        for node in self._editor.graph.find_nodes(op="call_function", target=_COPY_BACK):
            owner = node.args[0]
            if isinstance(owner, Node) and owner in self._written:
                yield owner, node

    def drop_copies(self) -> None:
        """Remove copies of values that lie where they are copied to."""
        for owner, write in list(self.writes_back()):
            source: Any = write.args[1]
            if source is not owner and source.meta.get("spec") is owner.meta.get("spec"):
                self._editor.replace(write, source)
                self._editor.erase(write)

    @staticmethod
    def _root(node: Node) -> TensorSpec | None:
        spec = node.meta.get("spec")
        return storage_root(spec)[0] if isinstance(spec, TensorSpec) else None


def _has_whole(spec: TensorSpec) -> bool:
    """Return whether a tensor of known sizes has all the memory of its owner."""
    root, offset_bytes = storage_root(spec)
    return root.is_static_shape_tensor and offset_bytes == 0 and spec.nbytes() == root.nbytes()


def _is_plain(owner: Node) -> bool:
    """Return whether a value comes from a call of an operator with kernels, and is its only result."""
    return owner.op == "call_function" and isinstance(underlying(owner.target), OpOverload | DefinedOperator)


def _rows(insert: _Insertion, first: Node) -> tuple[Any, ...] | None:
    """Return the arguments of `index_put_` for a call of `index_put`; None if its kernels do not take that."""
    node = insert.before
    given = named_arguments(node, underlying(node.target)._schema)
    indices: Any = list(given["indices"])
    places = [place for place, index in enumerate(indices) if index is not None]
    if given.get("accumulate") or len(places) != 1:
        return None
    dim, index, values = places[0], indices[places[0]], given["values"]
    taken, new, shape = index.meta["val"], values.meta["val"], list(first.meta["val"].shape)
    if taken.dtype not in (torch.int32, torch.int64) or new.dtype != first.meta["val"].dtype:
        return None
    if not _is_row_major(first) or not _is_row_major(values):
        return None
    wanted = [*shape[:dim], *taken.shape, *shape[dim + 1 :]]
    is_plain = taken.dim() == 1 and same_argument(tuple(new.shape), tuple(wanted))
    if not is_plain and not all(isinstance(size, int) for size in (*wanted, *new.shape)):
        return None
    index = insert.without_negatives(index, shape[dim])
    if not is_plain:
        if new.numel() != math.prod(wanted):
            values = insert.call(ops.edge.aten.expand_copy.default, values, wanted)
        index = insert.reshaped(index, [taken.numel()])
        values = insert.reshaped(values, [*shape[:dim], taken.numel(), *shape[dim + 1 :]])
    indices[dim] = index
    return first, indices, values, False


def _is_row_major(node: Node) -> bool:
    spec = node.meta.get("spec")
    return isinstance(spec, TensorSpec) and list(spec.dim_order) == list(range(len(spec.dim_order)))


@dataclass
class _Insertion:
    """Makes calls in front of a call, with specs."""

    editor: GraphEditor
    memory: _Memory
    before: Node
    views: bool

    def reshaped(self, node: Node, sizes: list[int]) -> Node:
        """Return a row-major tensor with other sizes, in the memory of the given one unless that may move."""
        if list(node.meta["val"].shape) == sizes:
            return node
        spec = node.meta["spec"]
        owner = self.memory.owner(spec)
        if not self.views or owner is None or not _has_whole(spec):
            return self.call(ops.edge.aten.view_copy.default, node, sizes)
        made = self.editor.call(view, (owner, sizes), before=self.before, origins=self.before)
        view_spec = TensorSpec.from_tensor(made.meta["val"])
        view_spec.storage_base, view_spec.const = storage_root(spec)[0], storage_root(spec)[0].const
        self.editor.set_meta(made, "spec", view_spec)
        self.memory.add_view(made)
        return made

    def call(self, op: Any, *args: Any, like: Node | None = None) -> Node:
        """Return a new call, whose sizes are its own or those of another value."""
        made = self.editor.call(op, args, before=self.before, origins=self.before)
        value = made.meta["val"]
        spec = TensorSpec.from_tensor(value)
        if like is not None:
            # Sizes that vary have been bounded there.
            spec = copy.copy(like.meta["spec"])
            spec.dtype, spec.const, spec.storage_base = value.dtype, False, None
        self.editor.set_meta(made, "spec", spec)
        return made

    def without_negatives(self, index: Node, size: int) -> Node:
        """Return an index that counts from the front what the given one counts from the end."""
        if _counts_from_front(self.editor, index):
            return index
        known = self._known(index, size)
        if known is not None:
            return known
        is_negative = self.call(ops.edge.aten.lt.Scalar, index, 0, like=index)
        shifted = self.call(ops.edge.aten.add.Scalar, index, size, like=index)
        return self.call(ops.edge.aten.where.self, is_negative, shifted, index, like=index)

    def _known(self, index: Node, size: int) -> Node | None:
        """Return what has been made of an index before, in front of a call further down; it is moved up to this one."""
        for shifted in [one for one in index.users if one.target is ops.edge.aten.add.Scalar and one.args[1] == size]:
            for made in shifted.users:
                if made.target is ops.edge.aten.where.self and made.args[1:] == (shifted, index):
                    # Its first input is the comparison with 0.
                    for one in (made.all_input_nodes[0], shifted, made):
                        self.editor.move(one, self.before)
                    return made
        return None


def _counts_from_front(editor: GraphEditor, index: Node) -> bool:
    """Return whether an index is known to have no negative number."""
    if index.op == "placeholder":
        spec = index.meta.get("spec")
        if not isinstance(spec, TensorSpec) or not spec.const or is_external_constant(index):
            return False
        tensor = stored_tensor(editor.program, ProgramInterface.of(editor.program).inputs.get(index))
        return tensor is not None and bool((tensor >= 0).all())
    if index.op != "call_function" or underlying(index.target) not in _ARANGE:
        return False
    start, *_ = index.args if len(index.args) > 1 else (0,)
    step = index.args[2] if len(index.args) > 2 else 1
    return isinstance(start, int) and isinstance(step, int) and start >= 0 and step > 0
