"""Take the bodies of gradient-mode regions into the graph around them."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.operator_schemas import normalize_function

from exirkit.ir import (
    COND,
    WHILE,
    ControlFlowCall,
    GraphEditor,
    ModelError,
    OpOverload,
    SubgraphEditor,
    alias_root,
    control_flow_call,
    fake_like,
    has_trait,
    locate,
    results_of_graph,
    same_value,
    subgraph_editors,
    value_of,
)
from exirkit.passes.contract import Pass

from .operator_recorder import WholeGraphNeededError, functional_variant


class InlineGradRegions(Pass):
    """Replace regions that change nothing by their bodies.

    That is `wrap_with_set_grad_enabled`, since a program that only infers has no gradients to switch, and
    `wrap_with_autocast` where it is off or of another device than the CPU.

    Ensures: no gradient-mode region is left.
    """

    name = "inline-grad-regions"
    enters_subgraphs = True
    ensures = ("no-grad-regions",)
    invalidates = ("debug-handles",)

    def edit(self, editor: GraphEditor) -> None:
        """Inline region by region.

        Raises:
            WholeGraphNeededError: EK426, a region has nested regions or attributes.
        """
        for region, place in _REGIONS.items():
            for node in editor.graph.find_nodes(op="call_function", target=region):
                if region is _AUTOCAST and _casts(*node.args[:place]):
                    continue
                attribute: Any = node.args[place]
                _inline(editor, node, getattr(editor.program.graph_module, attribute.target), place + 1)
                if not attribute.users:
                    editor.erase(attribute)


_AUTOCAST = torch.ops.higher_order.wrap_with_autocast
# The argument that is the body; operands follow.
_REGIONS = {torch.ops.higher_order.wrap_with_set_grad_enabled: 1, _AUTOCAST: 4}


def _casts(device: Any, _dtype: Any, enabled: Any, _cached: Any) -> bool:
    """Whether a region of automatic casts changes dtypes of a program for the CPU."""
    return device == "cpu" and enabled is not False


def _inline(editor: GraphEditor, node: Node, body: GraphModule, first: int) -> None:
    """Copy the calls of a body in front of the region's node, whose operands start at `first`, and erase that."""
    operands = iter(node.args[first:])
    copies: dict[Node, Any] = {}
    results: Any = ()
    for inner in body.graph.nodes:
        if inner.op == "placeholder":
            copies[inner] = next(operands)
        elif inner.op == "call_function":
            args, kwargs = map_arg((inner.args, inner.kwargs), copies.__getitem__)
            copies[inner] = editor.call(
                inner.target, args, kwargs, before=node, origins=inner, val=inner.meta.get("val")
            )
        elif inner.op == "get_attr":
            raise WholeGraphNeededError("a region has attributes of its own", node)
        else:
            results = map_arg(inner.args[0], copies.__getitem__)
    for user in list(node.users):
        assert user.target is operator.getitem, "a region's results are taken one by one"
        editor.replace(user, results[user.args[1]])
        editor.erase(user)
    editor.erase(node)


aten = torch.ops.aten


@dataclass(slots=True)
class _Shown:
    """What an alias shows: the node that computes it after so many writes to its family."""

    node: Node
    writes: int


@dataclass(slots=True)
class AliasFamilies:
    """Values by the memory that they show.

    Of each piece of memory one node is the base, and the others are views, of it or of views. After a write to any of
    them, what the base holds is computed, and a view is shown again when it is used next.

    Attributes:
        editor: Editor of the graph.
    """

    editor: GraphEditor
    _sealed: dict[Node, ModelError] = field(default_factory=dict)
    _source: dict[Node, Node] = field(default_factory=dict)
    _writes: dict[Node, int] = field(default_factory=dict)
    _shown: dict[Node, _Shown] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        """Take in a node that stands behind everything that is known, before what it uses is replaced."""
        source = _source_of(node)
        if source is not None:
            self.show(node, source)
        else:
            self._shown[node] = _Shown(node, self._writes.get(node, 0))

    def show(self, node: Node, source: Node) -> None:
        """Take in a view, computed from what its source shows now."""
        self._source[node] = source
        self._shown[node] = _Shown(node, self._writes.get(self.base(node), 0))

    def base(self, node: Node) -> Node:
        """Return the node whose memory this one shows."""
        while node in self._source:
            node = self._source[node]
        return node

    def is_stale(self, node: Node) -> bool:
        """Return whether memory that a node shows was written to after it was computed."""
        return node in self._shown and self._at(node, self._writes.get(self.base(node), 0)) is not node

    def now(self, node: Node, before: Node) -> Node:
        """Return a node in front of `before` that computes what `node` shows after the writes so far."""
        writes = self._writes.get(self.base(node), 0)
        known = self._at(node, writes)
        if known is not None:
            return known
        source = self.now(self._source[node], before)
        shown = _shown_again(self.editor, node, source, before)
        self._shown[node] = _Shown(shown, writes)
        return shown

    def _at(self, node: Node, writes: int) -> Node | None:
        shown = self._shown.get(node)
        return shown.node if shown is not None and shown.writes == writes else None

    def write(self, node: Node, value: Node, before: Node) -> None:
        """Note that what `node` shows is overwritten; bring that into its base.

        Args:
            node: What is written to.
            value: What it shows from now on, of its shape and dtype.
            before: Node in front of which the value of the base is computed.

        Raises:
            WholeGraphNeededError: EK426, it cannot be said what the base holds then.
            ModelError: What the memory was sealed with.
        """
        rejection = self._sealed.get(self.base(node))
        if rejection is not None:
            raise rejection
        chain = [node]
        values = [value]
        while (shown := chain[-1]) in self._source:
            source = self._source[shown]
            # A list of views is nothing of its own: what its items show is memory of what it was made of.
            old = self.now(self._source[source] if shown.target is operator.getitem else source, before)
            values.append(source_after_write(self.editor, shown, old, values[-1], before))
            chain.append(source)
        base = chain[-1]
        writes = self._writes[base] = self._writes.get(base, 0) + 1
        self._keep_others(chain, writes)
        for member, new in zip(chain, values, strict=True):
            if not isinstance(member.meta.get("val"), list | tuple):
                self._shown[member] = _Shown(new, writes)

    def _keep_others(self, chain: Sequence[Node], writes: int) -> None:
        """Let what shows other items of a list of views than the one that is written to stay as it is."""
        written = {of: one for one, of in itertools.pairwise(chain) if one.target is operator.getitem}
        for member, shown in list(self._shown.items()) if written else ():
            item = member
            while item in self._source and self._source[item] not in written:
                item = self._source[item]
            part = written.get(self._source.get(item, item))
            if part is not None and item.args[1] != part.args[1] and shown.writes == writes - 1:
                self._shown[member] = _Shown(shown.node, writes)

    def seal(self, node: Node, rejection: ModelError) -> None:
        """Have every later write to the memory of a node, which may not have been taken in yet, rejected."""
        self._sealed.setdefault(self.base(node), rejection)

    def rename(self, node: Node, target: Node) -> None:
        """Let a node be another name for `target`, as the result of a write is for what was written to."""
        self._source[node] = target
        writes = self._writes.get(self.base(target), 0)
        self._shown[node] = _Shown(self.now(target, node), writes)

    def written(self) -> dict[Node, Node]:
        """Return the bases that were written to, with what they hold in the end."""
        return {base: self._shown[base].node for base in self._writes}


def _source_of(node: Node) -> Node | None:
    """Return the value whose memory a call may show."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    first = node.args[0]
    if node.target is operator.getitem:
        # Of what returns a list of views each item is one; of others each item is a value of its own.
        return first if _source_of(first) is not None else None
    if not isinstance(node.target, OpOverload):
        return None
    arguments = node.target._schema.arguments
    return first if arguments and arguments[0].alias_info is not None else None


def _shown_again(editor: GraphEditor, node: Node, source: Node, before: Node) -> Node:
    """Compute a view again, from what the value that it shows holds now."""
    target, args = node.target, (source, *node.args[1:])
    if target is aten.as_strided.default:
        raise WholeGraphNeededError("what as_strided shows of a value that was written to depends on its strides", node)
    if is_in_place(node):
        # Another name for its argument.
        return source
    if target is aten.view.default:
        # What was written may lie in memory in another order.
        target = aten.reshape.default
    return editor.call(cast(OpOverload, target), args, node.kwargs, before=before, origins=node)


Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


def source_after_write(editor: GraphEditor, view: Node, source: Node, value: Node, before: Node) -> Node:
    """Return what the source of a view holds when the view has been overwritten.

    Args:
        editor: Editor of the graph.
        view: The view: a call on the source, or an item of one.
        source: What the source held.
        value: What the view shows.
        before: Node in front of which the calls are placed.

    Raises:
        WholeGraphNeededError: EK426, it cannot be said for this kind of view.
    """
    if view.target is operator.getitem:
        # The list of views is nothing of its own: it stands for the source.
        return _after_write_to_item(editor, view, source, value, before)
    if _is_list(view) or has_trait(view.target, "identity") or is_in_place(view):
        return value
    if view.target in _RESHAPED:
        return editor.call(aten.reshape_as.default, (value, source), before=before, origins=view)
    make = _SCATTERED.get(view.target)
    if make is None:
        raise WholeGraphNeededError(f"a result of {view.target} is written to", view)
    target, args, kwargs = make(_arguments(view), source, value)
    return editor.call(target, args, kwargs, before=before, origins=view)


def is_in_place(node: Node) -> bool:
    """Return whether a call writes to an argument."""
    return node.op == "call_function" and isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _is_list(view: Node) -> bool:
    return isinstance(view.meta.get("val"), list | tuple)


def _arguments(view: Node) -> dict[str, Any]:
    """Return the arguments of a view by name, the defaults included."""
    named = normalize_function(view.target, view.args, dict(view.kwargs), normalize_to_only_use_kwargs=True)  # type: ignore[arg-type]
    if named is None:
        raise WholeGraphNeededError(f"{view.target} is called in an unusual way", view)
    return dict(named.kwargs)


def _after_write_to_item(editor: GraphEditor, item: Node, source: Node, value: Node, before: Node) -> Node:
    views: Any = item.args[0]
    index: Any = item.args[1]
    given, sizes = _arguments(views), [one.shape for one in views.meta["val"]]
    dim = given.get("dim", 0)
    if views.target is aten.unbind.int:
        args: tuple[Any, ...] = (source, value, dim, index)
        return editor.call(aten.select_scatter.default, args, before=before, origins=item)
    if views.target not in (aten.split.Tensor, aten.split_with_sizes.default):
        raise WholeGraphNeededError(f"a result of {views.target} is written to", item)
    lengths = [shape[dim] for shape in sizes]
    if not all(isinstance(length, int) for length in lengths):
        raise WholeGraphNeededError(f"a result of {views.target}, whose size varies, is written to", item)
    start = sum(lengths[:index])
    args = (source, value, dim, start, start + lengths[index])
    return editor.call(aten.slice_scatter.default, args, before=before, origins=item)


def _turned_back(given: Mapping[str, Any], _source: Node, value: Node) -> Call:
    dims = [dim % len(given["dims"]) for dim in given["dims"]]
    return aten.permute.default, (value, [dims.index(dim) for dim in range(len(dims))]), {}


def _transposed(given: Mapping[str, Any], _source: Node, value: Node) -> Call:
    return aten.transpose.int, (value, given["dim0"], given["dim1"]), {}


def _flipped(_given: Mapping[str, Any], _source: Node, value: Node) -> Call:
    return aten.t.default, (value,), {}


def _sliced(given: Mapping[str, Any], source: Node, value: Node) -> Call:
    where = {name: given[name] for name in ("dim", "start", "end", "step") if name in given}
    return aten.slice_scatter.default, (source, value), where


def _selected(given: Mapping[str, Any], source: Node, value: Node) -> Call:
    return aten.select_scatter.default, (source, value, given["dim"], given["index"]), {}


def _diagonal(given: Mapping[str, Any], source: Node, value: Node) -> Call:
    where = {name: given[name] for name in ("offset", "dim1", "dim2") if name in given}
    return aten.diagonal_scatter.default, (source, value), where


# Views that show all of their source, element by element.

# Views of all elements in the order of the source: of `expand`, torch rejects writes where it repeats any.
_RESHAPED = frozenset(
    {
        aten.view.default,
        aten.expand.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.unsqueeze.default,
        aten._unsafe_view.default,
    }
)

_SCATTERED: Mapping[Any, Callable[[Mapping[str, Any], Node, Node], Call]] = {
    aten.permute.default: _turned_back,
    aten.transpose.int: _transposed,
    aten.t.default: _flipped,
    aten.slice.Tensor: _sliced,
    aten.select.int: _selected,
    aten.diagonal.default: _diagonal,
}


Writes = Sequence[Mapping[int, Node]]
"""For each body of a call, what its inputs hold in the end, where they are written to, by their number."""


def reject_writes_to_carried(call: ControlFlowCall, writes: Writes) -> None:
    """Reject writes that no result of a call can stand for.

    Raises:
        ModelError: EK427, the condition of a loop writes; or the body of one writes to what it carries, or to rows;
            or a `map` or `scan` writes to what is shared by its rounds.
    """
    if not any(writes):
        return
    if call.kind not in (COND, WHILE):
        raise _rejection(call, f"the body of {call.kind} writes to one of its operands")
    if call.kind == WHILE and writes[0]:
        raise _rejection(call, "the condition of a loop writes to one of its operands")
    if any(index < len(call.carried) for index in writes[-1]):
        raise _rejection(call, "the body of a loop writes to a value that it carries")


def hand_out_writes(
    editor: GraphEditor,
    call: ControlFlowCall,
    operands: Sequence[Any],
    bodies: Sequence[SubgraphEditor],
    writes: Writes,
    families: AliasFamilies,
) -> None:
    """Make what the bodies of a call write to its operands results of the call, and these the operands' new values.

    Args:
        editor: Editor of the graph of the call.
        call: The call; its operands are up to date.
        operands: Its operands as they were known to the families.
        bodies: Editors of its bodies, in order.
        writes: What the bodies wrote.
        families: Of the graph of the call.

    Raises:
        ModelError: EK427, an operand shares memory with another one that the bodies see.
    """
    written = sorted({index for found in writes for index in found})
    seal_shared_results(call, bodies, operands, families)
    if not written:
        if call.node.kwargs:
            # Which operands are written to: none, as far as the graphs tell.
            editor.rewire(call.node, None, {}, val=call.node.meta["val"])
        return
    _reject_shared_memory(call, operands, written, families)
    values = [fake_like(editor.fake_mode, operands[index].meta["val"]) for index in written]
    if call.kind == COND:
        for body, found in zip(bodies, writes, strict=True):
            _return_also(body, [found.get(index) for index in written], written, call.node)
        args: tuple[Any, ...] = call.node.args
    else:
        _return_also(bodies[-1], [writes[-1][index] for index in written], written, call.node)
        for body in bodies:
            body.carry(written)
        args = (*call.node.args[:2], *_carried_and_shared(call, written))
    results = call.node.meta["val"]
    editor.rewire(call.node, args, {}, val=results)
    editor.set_value(call.node, (*results, *values))
    for place, (index, value) in enumerate(zip(written, values, strict=True), start=len(results)):
        follower = call.node.next
        got = editor.call(operator.getitem, (call.node, place), before=follower, origins=call.node, val=value)
        families.write(operands[index], got, follower)


def _carried_and_shared(call: ControlFlowCall, written: Sequence[int]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    count = len(call.carried)
    shared = dict(enumerate(call.shared, start=count))
    moved = tuple(shared.pop(index) for index in written)
    return (*call.carried, *moved), tuple(shared.values())


def _return_also(body: SubgraphEditor, values: Sequence[Node | None], indices: Sequence[int], call: Node) -> None:
    """Give a body more results: new values of inputs, or copies of those that it leaves alone.

    Copies have the debug handle of the call: the inputs of a body have none.
    """
    output = body.graph.output_node()
    inputs = list(body.graph.find_nodes(op="placeholder"))
    more = [
        body.call(aten.clone.default, (inputs[index],), before=output, origins=call) if value is None else value
        for index, value in zip(indices, values, strict=True)
    ]
    body.rewire(output, ((*results_of_graph(body.program.graph_module), *more),))


def seal_shared_results(
    call: ControlFlowCall, bodies: Sequence[SubgraphEditor], operands: Sequence[Any], families: AliasFamilies
) -> None:
    """Reject writes to results of a call that may be its operands, or one value: it would be seen through both."""
    rejection = _rejection(call, "a value is written to that a branch may have returned under another name")
    for body in bodies:
        inputs = list(body.graph.find_nodes(op="placeholder"))
        bases = [
            alias_root(one) if isinstance(one, Node) else None for one in results_of_graph(body.program.graph_module)
        ]
        for place, base in enumerate(bases):
            if base is None or (base.op != "placeholder" and bases.count(base) == 1):
                continue
            for user in call.node.users:
                if user.args[1:] == (place,):
                    families.seal(user, rejection)
            if base in inputs and isinstance(operands[inputs.index(base)], Node):
                families.seal(operands[inputs.index(base)], rejection)


def _reject_shared_memory(
    call: ControlFlowCall, operands: Sequence[Any], written: Sequence[int], families: AliasFamilies
) -> None:
    bases = [families.base(one) if isinstance(one, Node) else None for one in operands]
    for index in written:
        if bases.count(bases[index]) > 1:
            raise _rejection(call, "a body writes to an operand that shares memory with another one")


def _rejection(call: ControlFlowCall, message: str) -> ModelError:
    return ModelError(
        code="EK427",
        message=message,
        location=locate(call.node),
    )


class Functionalize(Pass):
    """Replace in-place operators by their functional variants, and let later uses see what was written.

    A write to a view becomes a new value of what it is a view of; other views of that are computed again when they are
    used next. What an input or a buffer holds in the end becomes a mutation of the program. What a branch or the body
    of a loop writes to one of its operands becomes one more result of the call.

    A value whose shape is changed in place is a view of what it was from there on.

    Requires: operators that return their argument, or a view of it, say so in their schema, as core operators do.
    Ensures: no operator writes to its arguments.

    Before: `%relu_ = aten.relu_.default(%conv)`
    After: `%relu = aten.relu.default(%conv)`
    """

    name = "functionalize"
    requires = ("core-operators",)
    ensures = ("functional",)
    invalidates = ("core-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Replace in-place operators, in graph order.

        Raises:
            WholeGraphNeededError: EK426, an operator has no functional variant, or writes to an unusual view.
            ModelError: EK427, a body writes to what it is given in a way that cannot be a result.
        """
        if not _has_writes(editor):
            return
        written = _functionalize(editor)
        for owner in editor.graph.find_nodes(op="placeholder"):
            if owner in written:
                editor.add_mutation(owner, written[owner])


def _has_writes(editor: GraphEditor) -> bool:
    return any(map(is_in_place, editor.graph.nodes)) or any(map(_has_writes, subgraph_editors(editor)))


def _functionalize(editor: GraphEditor) -> dict[Node, Node]:
    """Make one graph and the bodies it runs functional; return what is written to that was not made here."""
    families = AliasFamilies(editor)
    replaced: list[Node] = []
    bodies = {body.program.graph_module: body for body in subgraph_editors(editor)}
    for node in list(editor.graph.nodes):
        if is_in_place(node):
            _replace(editor, node, families)
            replaced.append(node)
            continue
        # What a call shares memory with is told from what it was given, not from what that is replaced by.
        families.add(node)
        call = control_flow_call(node)
        operands = () if call is None else (*call.carried, *call.sliced, *call.shared)
        _take_present(editor, node, families)
        if call is not None:
            writes = [_functionalize_body(bodies[module]) for module in call.subgraphs]
            reject_writes_to_carried(call, writes)
            hand_out_writes(editor, call, operands, [bodies[module] for module in call.subgraphs], writes, families)
    for node in reversed(replaced):
        editor.erase(node)
    return {base: value for base, value in families.written().items() if base.op in ("placeholder", "get_attr")}


def _functionalize_body(body: SubgraphEditor) -> dict[int, Node]:
    """Make a body functional; return what its inputs hold in the end, where that is something new, by their number."""
    if not _has_writes(body):
        return {}
    inputs = list(body.graph.find_nodes(op="placeholder"))
    with body.transaction(Functionalize.name, records_effect=False):
        return {inputs.index(owner): value for owner, value in _functionalize(body).items()}


_DROPOUTS = frozenset(
    {aten.dropout_.default, aten.feature_dropout_.default, aten.alpha_dropout_.default,
     aten.feature_alpha_dropout_.default}
)  # fmt: skip


def _replace(editor: GraphEditor, node: Node, families: AliasFamilies) -> None:
    """Compute what an in-place operator writes; its node stays, without users in the end."""
    written = node.args[0] if node.args else None
    op = cast(OpOverload, node.target)
    if not isinstance(written, Node):
        raise WholeGraphNeededError(f"{op} has no functional variant", node)
    if op in _DROPOUTS and node.args[1:] and (node.args[1] == 0 or node.args[2:] == (False,)):
        # Outside of training it is another name of the value.
        families.rename(node, written)
        return
    if torch.Tag.inplace_view in op.tags:
        if op is aten.detach_.default:
            families.rename(node, written)
        else:
            _reshape(editor, node, written, families)
        return
    args: Any
    args, kwargs = map_arg(
        (node.args, node.kwargs), lambda one: families.now(one, node) if families.is_stale(one) else one
    )
    if op is aten.copy_.default and same_value(args[0].meta["val"], value_of(args[1])):
        new: Node = _copied_whole(editor, node, args[1])
    elif (variant := functional_variant(op)) is not None:
        new = editor.call(variant, args, kwargs, before=node, origins=node)
    else:
        raise WholeGraphNeededError(f"{op} has no functional variant", node)
    new = _with_layout_of(editor, node, new, written.meta["val"])
    families.write(written, new, node)
    families.rename(node, written)


def _reshape(editor: GraphEditor, node: Node, written: Node, families: AliasFamilies) -> None:
    """Let a view stand for a value whose shape is changed in place, wherever the value is used from there on."""
    variant = functional_variant(cast(OpOverload, node.target))
    if variant is None or written.op != "call_function":
        raise WholeGraphNeededError(f"{node.target} changes the shape of what was not made here", node)
    later = [one for one in written.users if node < one]
    if any(one.op == "output" for one in later):
        # As a result of the program it is recorded with the shape that it had.
        raise WholeGraphNeededError(f"{node.target} changes the shape of a result", node)
    args = (families.now(written, node), *node.args[1:])
    shown = editor.call(variant, args, dict(node.kwargs), before=node, origins=node)
    families.show(shown, written)
    families.rename(node, shown)
    for user in later:
        named = map_arg((user.args, dict(user.kwargs)), lambda one: node if one is written else one)
        editor.rewire(user, *named)


def _copied_whole(editor: GraphEditor, node: Node, source: Node) -> Node:
    """Return what a tensor holds to which all of a source was copied: it, or a copy of it if a quantizer noted one."""
    if has_trait(source.target, "dequantize") and any(has_trait(user.target, "quantize") for user in node.users):
        return editor.call(aten.clone.default, (source,), before=node, origins=node)
    return source


def _with_layout_of(editor: GraphEditor, node: Node, value: Node, wanted: torch.Tensor) -> Node:
    """Give what is written the dtype of its place."""
    if tuple(value.meta["val"].shape) != tuple(wanted.shape):
        raise WholeGraphNeededError(f"{node.target} computes another shape than it was given", node)
    if value.meta["val"].dtype is wanted.dtype:
        return value
    return editor.call(aten._to_copy.default, (value,), {"dtype": wanted.dtype}, before=node, origins=node)


def _take_present(editor: GraphEditor, node: Node, families: AliasFamilies) -> None:
    """Let a node use what its arguments show now."""
    for stale in filter(families.is_stale, list(node.all_input_nodes)):
        shown = families.now(stale, node)
        same = same_value(shown.meta["val"], stale.meta["val"])
        editor.replace_in(node, stale, shown)
        if node.target is aten.view.default and not same:
            # What was written may lie in memory in another order.
            editor.retarget(node, aten.reshape.default)
        elif node.target is aten.as_strided.default and not same:
            raise WholeGraphNeededError("what as_strided shows depends on the strides of what was written", node)
