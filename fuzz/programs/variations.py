"""Other forms of an exported program that mean the same: `torch.export` makes them of models, and `build` does not.

`build` makes functional programs of plain calls. Models also write in place, compute in regions without gradients,
have assertions and tensors as attributes of the graph module; what the chain does about these is never tried
without them.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, OutputKind
from torch.fx import Graph, GraphModule, Node

from exirkit.ir import OpOverload, copy_program, is_composite, pytree

from .aliasing import may_show

aten = torch.ops.aten

_SHARE_IN_PLACE = 0.7
_SHARE_WRITTEN_BUFFERS = 0.7
_SHARE_ASSERTIONS = 0.3
_SHARE_REGIONS = 0.5
_SHARE_HANGING_CONSTANTS = 0.3
_SHARE_WRITTEN_VIEWS = 0.8
_SHARE_RESHAPED = 0.8
_SHARE_SHOWN = 0.5


def varied(program: ExportedProgram, seed: int) -> ExportedProgram:
    """Return a program that means the same.

    Args:
        program: As `build` makes it; it is not changed.
        seed: Decides what is written in place, asserted and put into regions.
    """
    changed = copy_program(program)
    graph = changed.graph
    for change in _CHANGES:
        change(changed, _Draws(f"{change.__name__} {seed}"))
    _name_outputs(changed)
    graph.lint()
    changed.graph_module.recompile()
    return changed


@dataclass(frozen=True)
class _Draws:
    """What chance decides at each node, whatever other nodes there are: the rest of a program stays varied alike."""

    key: str

    def at(self, node: Node | None = None) -> random.Random:
        """Return what decides at a node, or for the whole program."""
        return random.Random(f"{self.key} {node and node.name}")

    def shuffled(self, nodes: Sequence[Node]) -> list[Node]:
        """Return nodes in another order."""
        return sorted(nodes, key=lambda node: random.Random(f"{self.key} place of {node.name}").random())


def _name_outputs(program: ExportedProgram) -> None:
    """Let the signature name what the graph returns: another view of a value may stand there now."""
    signature = program.graph_signature
    returned: Any = program.graph.output_node().args[0]
    specs = [
        replace(spec, arg=replace(spec.arg, name=value.name)) if isinstance(value, Node) else spec
        for spec, value in zip(signature.output_specs, returned, strict=True)
    ]
    program._graph_signature = ExportGraphSignature(list(signature.input_specs), specs)


# Aliases


def _overload(node: Node) -> OpOverload | None:
    return node.target if node.op == "call_function" and isinstance(node.target, OpOverload) else None


def _shows_argument(node: Node) -> bool:
    """Return whether a call returns memory of an argument: a view, or what an operator in place has written."""
    op = _overload(node)
    return op is not None and any(one.alias_info is not None for one in op._schema.returns)


def _is_fresh(node: Node) -> bool:
    """Return whether nothing else has the memory of a result."""
    op = _overload(node)
    return op is not None and not may_show(op) and isinstance(node.meta.get("val"), torch.Tensor)


def _aliases(node: Node) -> Iterator[Node]:
    """Yield a value and all that may show its memory."""
    yield node
    for user in node.users:
        op = _overload(user)
        # Unsafe views show it without saying so.
        if user.op == "call_function" and (op is None or may_show(op) or _shows_argument(user)):
            yield from _aliases(user)


def _is_last_use(node: Node, value: Node, places: dict[Node, int]) -> bool:
    """Return whether nothing reads the memory of a value after a call."""
    readers = (user for alias in _aliases(value) for user in alias.users)
    return all(user is node or places[user] < places[node] for user in readers)


# In place


def _in_place_form(node: Node) -> OpOverload | None:
    """Return the operator that writes the result of a call into its first argument."""
    op = _overload(node)
    if op is None or op.namespace != "aten" or op._schema.is_mutable or _shows_argument(node):
        return None
    packet = getattr(torch.ops.aten, f"{op._schema.name.partition('::')[2]}_", None)
    form = getattr(packet, op._overloadname, None)
    if not isinstance(form, OpOverload) or len(form._schema.returns) != 1:
        return None
    same = [one.name for one in form._schema.arguments] == [one.name for one in op._schema.arguments]
    return form if same else None


def _is_alike(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor) or one.dtype != other.dtype:
        return False
    # As text: comparing sizes that vary would guard on them.
    return f"{one.shape} {one.stride()}" == f"{other.shape} {other.stride()}"


def _write_in_place(program: ExportedProgram, draw: _Draws) -> None:
    graph = program.graph
    for node in list(graph.nodes):
        form = _in_place_form(node)
        chance = draw.at(node)
        if form is None or not node.args or chance.random() > _SHARE_IN_PLACE:
            continue
        value = node.args[0]
        places = {one: place for place, one in enumerate(graph.nodes)}
        if (
            not isinstance(value, Node)
            or not _is_fresh(value)
            or not _is_alike(value.meta.get("val"), node.meta.get("val"))
            or not _is_last_use(node, value, places)
            or not _may_be_overwritten(form, node, value)
        ):
            continue
        _take_views_before(graph, node, value, draw)
        with graph.inserting_before(node):
            written = graph.call_function(form, node.args, dict(node.kwargs))
        written.meta = dict(node.meta)
        node.replace_all_uses_with(value if chance.random() < 0.5 else written)
        graph.erase_node(node)


def _may_be_overwritten(form: OpOverload, node: Node, value: Node) -> bool:
    """Return whether torch lets a call write to a value while it reads its other operands.

    Only what computes each element from those in the same places may read the value itself, and nothing may read a
    view of it.
    """
    others = [one for one in node.all_input_nodes if one is not value]
    shown = set(_aliases(value))
    reads_itself = pytree.tree_leaves((node.args[1:], node.kwargs)).count(value) > 0
    return shown.isdisjoint(others) and (torch.Tag.pointwise in form.tags or not reads_itself)


def _take_views_before(graph: Graph, node: Node, value: Node, draw: _Draws) -> None:
    """Let views of a result be views of the value that it is written into, taken before it is written."""
    for view in list(node.users):
        is_plain = view.args[:1] == (node,) and len(view.all_input_nodes) == 1
        op = _overload(view)
        if (
            op is None
            or op._schema.is_mutable
            or not (_shows_argument(view) and is_plain)
            or draw.at(view).random() < 0.5
        ):
            continue
        if is_composite(op):
            # It may copy: `to` does where the dtype is another.
            continue
        with graph.inserting_before(node):
            earlier = graph.call_function(op, (value, *view.args[1:]), dict(view.kwargs))
        earlier.meta = dict(view.meta)
        view.replace_all_uses_with(earlier)
        graph.erase_node(view)


def _write_views(program: ExportedProgram, draw: _Draws) -> None:
    """Write to views of a result what they show: nothing changes, unless it lands elsewhere.

    Views that were taken before are used afterwards.
    """
    graph = program.graph
    found = [node for node in graph.nodes if _is_fresh(node) and node.users and _is_written_freely(node)]
    whole = draw.at()
    if whole.random() > _SHARE_WRITTEN_VIEWS:
        return
    for node in draw.shuffled(found)[: whole.randint(1, 2)]:
        chance = draw.at(node)
        readers = list(node.users)
        with graph.inserting_before(node.next):
            earlier = _viewed(graph, node, aten.alias.default)
            shown: Node | None = node
            for _ in range(chance.randint(0, 3)):
                shown = _some_view(graph, shown, chance) if shown is not None else None
            if shown is not None:
                kept = _viewed(graph, shown, aten.clone.default)
                _viewed(graph, shown, aten.copy_.default, kept)
        for reader in readers:
            if draw.at(reader).random() < 0.5:
                reader.replace_input_with(node, earlier)
        if not earlier.users:
            graph.erase_node(earlier)


def _write_what_is_shown(program: ExportedProgram, draw: _Draws) -> None:
    """Write a result to a tensor of which views were taken, and often written, before; read it from these."""
    graph = program.graph
    found = [node for node in graph.nodes if _is_fresh(node) and node.users and _is_written_freely(node)]
    if not found or draw.at().random() > _SHARE_SHOWN:
        return
    node = draw.shuffled(found)[0]
    chance = draw.at(node)
    readers = list(node.users)
    with graph.inserting_before(node.next):
        # Zeros are made as a view of a tensor of another shape, so that what is written is a view again.
        negated = aten.logical_not.default if node.meta["val"].dtype is torch.bool else aten.neg.default
        base = _viewed(graph, node, negated if chance.random() < 0.6 else aten.zeros_like.default)
        if not _is_alike(base.meta["val"], node.meta["val"]):
            graph.erase_node(base)
            return
        if chance.random() < 0.5:
            shown = _viewed(graph, base, aten.alias.default)
        else:
            shown = _viewed(graph, _viewed(graph, base, aten.unsqueeze.default, 0), aten.squeeze.dim, 0)
        if chance.random() < 0.6:
            # What a view shows after a write to it is known; a write to the base makes it old.
            _viewed(graph, shown, aten.copy_.default, _viewed(graph, shown, aten.clone.default))
        _viewed(graph, base, aten.copy_.default, node)
    for reader in readers:
        reader.replace_input_with(node, shown if draw.at(reader).random() < 0.7 else base)


def _is_written_freely(node: Node) -> bool:
    """Return whether elements of a value lie each in a place of its own, so that torch lets them be written."""
    value = node.meta["val"]
    return value.layout is torch.strided and all(type(size) is not int or size > 0 for size in value.shape)


def _viewed(graph: Graph, node: Node, op: OpOverload, *args: Any) -> Node:
    """Call an operator in front of the present place, with what it returns."""
    made = graph.call_function(op, (node, *args))
    values = [one.meta["val"] if isinstance(one, Node) else one for one in made.args]
    made.meta["val"] = op(*values)
    return made


def _some_view(graph: Graph, node: Node, draw: random.Random) -> Node | None:
    """Return a view of a value, dims counted from either end; None if no such view was found."""
    value: torch.Tensor = node.meta["val"]
    long = [dim for dim, size in enumerate(value.shape) if type(size) is int and size > 1]
    if not long:
        return None
    place = draw.choice(long)
    size = int(value.shape[place])
    dim = place - value.dim() if draw.random() < 0.4 else place
    start = draw.randrange(size)
    kind = draw.choice(_PARTS if draw.random() < 0.5 else _WHOLES)
    if kind == "select":
        return _viewed(graph, node, aten.select.int, dim, start - size if draw.random() < 0.4 else start)
    if kind in ("split", "unbind"):
        first = draw.randrange(1, size)
        lengths = [first, size - first] if draw.random() < 0.5 or first < 2 else [1, first - 1, size - first]
        op, args = (aten.unbind.int, ()) if kind == "unbind" else (aten.split_with_sizes.default, (lengths,))
        parts = _viewed(graph, node, op, *args, dim)
        return _item(graph, parts, draw.randrange(len(parts.meta["val"])))
    if kind == "permute":
        dims = draw.sample(range(value.dim()), value.dim())
        if [one for one in dims if one in long] == long:
            dims.reverse()
        return _viewed(graph, node, aten.permute.default, dims)
    if kind == "transpose":
        return _viewed(graph, node, aten.transpose.int, dim, draw.choice([one for one in long if one != place] or long))
    if kind == "turn" and value.dim() == 2:
        return _viewed(graph, node, aten.t.default)
    if kind == "diagonal" and len(long) > 1:
        one, other = draw.sample(long, 2)
        offset = draw.randrange(1 - int(value.shape[one]), int(value.shape[other]))
        return _viewed(graph, node, aten.diagonal.default, offset, one, other)
    if kind == "unsqueeze":
        return _viewed(graph, node, aten.unsqueeze.default, dim)
    step = draw.randint(2, 3) if kind == "step" else 1
    return _viewed(graph, node, aten.slice.Tensor, dim, start, draw.choice((size, 2**63 - 1)), step)


# Views of some elements, and views of all of them in another order or shape.
_PARTS = ("slice", "step", "select", "split", "unbind", "diagonal")
_WHOLES = ("permute", "permute", "transpose", "turn", "unsqueeze")


def _item(graph: Graph, parts: Node, place: int) -> Node:
    made = graph.call_function(operator.getitem, (parts, place))
    made.meta["val"] = parts.meta["val"][place]
    return made


_RESHAPED = {
    aten.unsqueeze.default: aten.unsqueeze_.default,
    aten.squeeze.dim: aten.squeeze_.dim,
    aten.transpose.int: aten.transpose_.default,
    aten.t.default: aten.t_.default,
}


def _reshape_in_place(program: ExportedProgram, draw: _Draws) -> None:
    """Change the shape of a result that nothing else reads, instead of taking a view of it."""
    graph = program.graph
    for node in list(graph.nodes):
        op, value = _overload(node), node.args[0] if node.args else None
        form = None if op is None else _RESHAPED.get(op)
        if form is None or not isinstance(value, Node) or not _is_fresh(value) or list(value.users) != [node]:
            continue
        if draw.at(node).random() < _SHARE_RESHAPED:
            node.target = form


def _write_buffers(program: ExportedProgram, draw: _Draws) -> None:
    """Write new values of buffers by `copy_` instead of returning them."""
    graph, signature = program.graph, program.graph_signature
    output = graph.output_node()
    buffers = {name: target for target, name in _placeholders_of_buffers(signature).items()}
    nodes = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    specs, values = [], []
    results: Any = output.args[0]
    returned = {value for value in results if isinstance(value, Node)}
    written = []
    for spec, value in zip(signature.output_specs, results, strict=True):
        target = nodes.get(next((name for name, kept in buffers.items() if kept == spec.target), ""))
        if (
            spec.kind is OutputKind.BUFFER_MUTATION
            and target is not None
            and isinstance(value, Node)
            and _is_fresh(value)
            and returned.isdisjoint(_aliases(target))
            and draw.at(target).random() < _SHARE_WRITTEN_BUFFERS
        ):
            written.append((target, value))
        else:
            specs.append(spec)
            values.append(value)
    for target, value in written:
        with graph.inserting_before(output):
            copied = graph.call_function(torch.ops.aten.copy_.default, (target, value))
        copied.meta["val"] = target.meta["val"]
    if written:
        output.args = (tuple(values),)
        program._graph_signature = ExportGraphSignature(list(signature.input_specs), specs)


def _placeholders_of_buffers(signature: ExportGraphSignature) -> dict[str, str]:
    return {target: name for name, target in signature.inputs_to_buffers.items()}


# Assertions


def _assert_metadata(program: ExportedProgram, draw: _Draws) -> None:
    """Assert the dtypes of values, as casts of models do."""
    graph = program.graph
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.op == "output" or not isinstance(value, torch.Tensor) or draw.at(node).random() > _SHARE_ASSERTIONS:
            continue
        after = node.next
        while after.op == "placeholder":
            after = after.next
        with graph.inserting_before(after):
            told = graph.call_function(
                torch.ops.aten._assert_tensor_metadata.default,
                (node, None, None, value.dtype),
                {"device": value.device, "layout": value.layout},
            )
        told.meta["val"] = None


def _assert_truth(program: ExportedProgram, draw: _Draws) -> None:
    """Assert that a size is not negative, or a value that is true."""
    graph = program.graph
    calls = [node for node in graph.nodes if _overload(node) and isinstance(node.meta["val"], torch.Tensor)]
    if not calls or draw.at().random() > _SHARE_ASSERTIONS:
        return
    node = draw.shuffled(calls)[0]
    value = node.meta["val"]
    dim = next((dim for dim, size in enumerate(value.shape) if isinstance(size, torch.SymInt)), None)
    with graph.inserting_before(node.next):
        if dim is None:
            told = graph.call_function(torch.ops.aten.full.default, ([], True), {"dtype": torch.bool})
            told.meta["val"] = value.new_ones((), dtype=torch.bool)
            check = graph.call_function(torch.ops.aten._assert_async.msg, (told, "never"))
        else:
            size = graph.call_function(torch.ops.aten.sym_size.int, (node, dim))
            size.meta["val"] = value.shape[dim]
            told = graph.call_function(operator.ge, (size, 0))
            told.meta["val"] = value.shape[dim] >= 0
            check = graph.call_function(torch.ops.aten._assert_scalar.default, (told, "never"))
    check.meta["val"] = None


# Regions


def _fits_region(calls: list[Node]) -> bool:
    """Return whether all that some calls return are tensors that something outside may have."""
    return all(_overload(node) is not None and isinstance(node.meta.get("val"), torch.Tensor) for node in calls)


def _make_region(program: ExportedProgram, draw: _Draws) -> None:
    """Put a few calls in a row into a region without gradients, as `torch.no_grad()` in a model does."""
    graph, module = program.graph, program.graph_module
    calls = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    whole = draw.at()
    if whole.random() > _SHARE_REGIONS:
        return
    length = whole.randint(1, 6)
    runs = (calls[(at := calls.index(start)) : at + length] for start in draw.shuffled(calls))
    chosen = next(filter(_fits_region, runs), [])
    inside = set(chosen)
    given = list(dict.fromkeys(one for node in chosen for one in node.all_input_nodes if one not in inside))
    made = [node for node in chosen if any(user not in inside for user in node.users)]
    if not made:
        return
    region = Graph()
    copies: dict[Node, Node] = {}
    for node in given:
        copies[node] = region.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in chosen:
        copies[node] = region.node_copy(node, copies.__getitem__)
    region.output(tuple(copies[node] for node in made))
    region.output_node().meta["val"] = tuple(node.meta["val"] for node in made)
    name = "region_without_gradients"
    setattr(module, name, GraphModule({}, region))
    wrap: Callable[..., Any] = torch.ops.higher_order.wrap_with_set_grad_enabled
    with graph.inserting_before(chosen[-1].next):
        body = graph.get_attr(name)
        call = graph.call_function(wrap, (False, body, *given))
        call.meta["val"] = tuple(node.meta["val"] for node in made)
        for place, node in enumerate(made):
            item = graph.call_function(operator.getitem, (call, place))
            item.meta = dict(node.meta)
            node.replace_all_uses_with(item, delete_user_cb=lambda user: user not in inside)
    for node in reversed(chosen):
        graph.erase_node(node)


# Constants


def _hang_constants(program: ExportedProgram, draw: _Draws) -> None:
    """Let constants be attributes of the graph's module, as passes and converters leave them, and not inputs."""
    graph, module, signature = program.graph, program.graph_module, program.graph_signature
    kept: list[InputSpec] = []
    nodes = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for spec in signature.input_specs:
        is_constant = spec.kind is InputKind.CONSTANT_TENSOR and spec.target in program.constants
        node, attribute = nodes[spec.arg.name], f"_tensor_{spec.target}"
        if not is_constant or draw.at(node).random() > _SHARE_HANGING_CONSTANTS:
            kept.append(spec)
            continue
        module.register_buffer(attribute, program.constants.pop(str(spec.target)), persistent=False)
        with graph.inserting_before(first):
            hanging = graph.get_attr(attribute)
        hanging.meta = dict(node.meta)
        node.replace_all_uses_with(hanging)
        graph.erase_node(node)
    program._graph_signature = ExportGraphSignature(kept, list(signature.output_specs))


# The last three take what the others have made for what there is.
_CHANGES: tuple[Callable[[ExportedProgram, _Draws], None], ...] = (
    *(_assert_metadata, _assert_truth, _write_in_place, _write_buffers, _make_region, _hang_constants),
    *(_write_views, _reshape_in_place, _write_what_is_shown),
)
