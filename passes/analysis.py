"""What holds of a program: values it stores, calls of its graphs, bytes that are live."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, Generic, TypeVar

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Graph, GraphModule, Node

from exirkit.ir import (
    DeferredTensor,
    DefinedOperator,
    Diagnostic,
    FakeTensor,
    HigherOrderOperator,
    ModelError,
    OpOverload,
    ProgramInterface,
    control_flow_call,
    delegate_of,
    facts_of,
    has_unbacked_symbols,
    is_composite,
    is_external_constant,
    is_pure,
    locate,
    memory_key,
    named_arguments,
    stored_tensor,
    underlying,
    written_arguments,
)


def graph_call_findings(module: GraphModule) -> list[Diagnostic]:
    """List the calls of other graphs that the chain cannot lower, those inside of bodies included.

    Returns:
        A finding EK432 for each operator that calls other graphs and is not a `cond`, `map`, `scan` or `while_loop`,
        and for each call of a graph that another call runs as well, in graph order.
    """
    return list(_findings(module, set()))


def _findings(module: GraphModule, seen: set[GraphModule]) -> Iterator[Diagnostic]:
    for node in module.graph.nodes:
        call = control_flow_call(node)
        if call is not None:
            if len(seen.union(call.subgraphs)) < len(seen) + len(call.subgraphs):
                yield _runs_what_others_run(node)
            seen.update(call.subgraphs)
            for body in call.subgraphs:
                yield from _findings(body, seen)
        elif (
            node.op == "call_function"
            and isinstance(node.target, HigherOrderOperator)
            # What a delegate computes is the business of its backend.
            and delegate_of(node) is None
        ):
            yield _cannot_be_lowered(node)


def reject_graph_calls(module: GraphModule) -> None:
    """Reject a graph that calls other graphs in a way that cannot be lowered.

    Raises:
        ModelError: EK432, for each such call.
    """
    found = graph_call_findings(module)
    if found:
        raise ModelError(found)


def _cannot_be_lowered(node: Node) -> Diagnostic:
    return Diagnostic.of(
        code="EK432",
        message=f"{node.target} cannot be lowered",
        location=locate(node),
        expected="of the operators that call other graphs: cond, map, scan and while_loop only, and calls of delegates",
        hint="write the model with torch.cond, map, scan or while_loop, or without calls of other graphs",
    )


def _runs_what_others_run(node: Node) -> Diagnostic:
    return Diagnostic.of(
        code="EK432",
        message=f"{node.target} runs a graph that is run from elsewhere too",
        location=locate(node),
        expected="a graph of its own for each branch and each loop, whose tensors have one place in memory",
        hint="export the model again, or give each call a copy of the graph",
    )


_SHARING = (torch.ops.aten.view_copy.default, torch.ops.aten.unsqueeze_copy.default, torch.ops.aten.squeeze_copy.dims)


def planned_nbytes(program: ExportedProgram) -> int:
    """Return the bytes of all planned memory of a program.

    Args:
        program: A program of the ExecuTorch dialect that has been planned.
    """
    sizes = program.graph_module.meta.get("non_const_buffer_sizes", [])
    return sum(int(size) for size in sizes)


def peak_nbytes(program: ExportedProgram) -> float:
    """Return the most bytes of values that are alive at once in a program that is not planned yet.

    Stored tensors take no planned memory and do not count, and neither does what is computed from them alone, which
    optimization stores as well. A reshaped value counts once. Sizes that vary count as large as they were when the
    program was exported.
    """
    return max(_alive(program).values(), default=0.0)


class LiveBytes:
    """Says how many bytes are alive beside the result of a call, in a program that rewriting changes.

    They are counted once, in the program as it is when it is first asked about, in time in proportion to its nodes;
    a call that was made since is taken for the one before it.

    Args:
        inputs: Names of the placeholders that are inputs of the program.
    """

    def __init__(self, inputs: Container[str]) -> None:
        self._inputs = inputs
        self._graphs: dict[Graph, dict[Node, float]] = {}

    def __call__(self, node: Node) -> float:
        """Return the bytes of values that are alive while a call runs, its own result not counted."""
        alive = self._graphs.get(node.graph)
        if alive is None:
            counted = _alive_in(node.graph, _placed_inputs(node.graph, self._inputs))
            alive = self._graphs[node.graph] = {one: count - _own(one) for one, count in counted.items()}
        while node not in alive and node.op != "root":
            node = node.prev
        return alive.get(node, 0.0)


class LiveValues:
    """Bytes of the values of one program, as it is when this is made, and how many of them are alive at each node.

    What counts is as for `peak_nbytes`.

    Args:
        program: A program that is not planned yet.
        in_place: Whether a result may lie over an argument that its kernel may overwrite and nothing else needs.
    """

    def __init__(self, program: ExportedProgram, *, in_place: bool = False) -> None:
        given, counted = _counted(program)
        self._counted = counted
        nodes = list(program.graph.nodes)
        spans = list(_spans(nodes, given, counted))
        over = _overwriting(nodes, spans, frozenset(given)) if in_place else ()
        self._at: dict[Node, float] = dict(zip(nodes, _sums(len(nodes), spans, over), strict=False))
        ended = [(first, last - 1, nbytes) for first, last, nbytes in spans if last > first]
        self._behind: dict[Node, float] = dict(zip(nodes, _sums(len(nodes), ended), strict=False))

    def at(self, node: Node) -> float:
        """Return the bytes that are alive when the result of a node is there, and its arguments still are."""
        return self._at[node]

    def varies(self, node: Node) -> bool:
        """Return whether a value is an input, or computed from inputs or state, and not from constants alone."""
        return node in self._counted

    def behind(self, node: Node) -> float:
        """Return the bytes of values up to a node that later nodes need."""
        return self._behind[node]


def _alive(program: ExportedProgram) -> dict[Node, float]:
    return _alive_in(program.graph, *_counted(program))


def _counted(program: ExportedProgram) -> tuple[list[Node], set[Node]]:
    """Return the inputs that take planned memory, and what is computed from them or from state."""
    signature = program.graph_signature
    given = _placed_inputs(program.graph, signature.user_inputs)
    changed = set(signature.buffers_to_mutate.values())
    written = [name for name, buffer in signature.inputs_to_buffers.items() if buffer in changed]
    varying = {*given, *_placed_inputs(program.graph, written)}
    for node in program.graph.nodes:
        if node.op == "call_function" and not (is_pure(node) and varying.isdisjoint(node.all_input_nodes)):
            varying.add(node)
    return given, varying


def _placed_inputs(graph: Graph, names: Container[Any]) -> list[Node]:
    return [node for node in graph.find_nodes(op="placeholder") if node.name in names]


def _alive_in(graph: Graph, given: Sequence[Node], counted: Container[Node] | None = None) -> dict[Node, float]:
    """Return for each node the bytes of inputs and results that are alive when its result is there."""
    nodes = list(graph.nodes)
    return dict(zip(nodes, _sums(len(nodes), _spans(nodes, given, counted)), strict=False))


Span = tuple[int, int, float]
"""The places of the nodes at which a value is alive, first and last, and its bytes."""


def _spans(nodes: Sequence[Node], given: Sequence[Node], counted: Container[Node] | None = None) -> Iterator[Span]:
    place = {node: index for index, node in enumerate(nodes)}
    inputs = frozenset(given)
    last: dict[Node, int] = {}

    def end(node: Node, users: Iterable[Node]) -> int:
        return max((last[one] if shares_memory(one) else place[one] for one in users), default=place[node])

    # From the end, so that what reshapes a value has its own last use already.
    for node in reversed(nodes):
        last[node] = end(node, node.users)
    for node in nodes:
        if (counted is not None and node not in counted) or not (node in inputs or _has_memory(node)):
            continue
        sizes = result_sizes(node)
        for number, nbytes in enumerate(sizes):
            # Of several results each is there for those that take it out.
            takers = node.users if len(sizes) == 1 else [one for one in node.users if one.args[1:] == (number,)]
            yield place[node], end(node, takers), nbytes


def _sums(count: int, spans: Iterable[Span], over: Iterable[tuple[int, float]] = ()) -> Iterator[float]:
    """Return for each place the bytes of all values, without those that a result lies over there."""
    changes = [0.0] * (count + 2)
    for first, last, nbytes in spans:
        changes[first] += nbytes
        changes[last + 1] -= nbytes
    for place, nbytes in over:
        changes[place] -= nbytes
        changes[place + 1] += nbytes
    return accumulate(changes)


def _overwriting(nodes: Sequence[Node], spans: Sequence[Span], inputs: Container[Node]) -> Iterator[tuple[int, float]]:
    """Yield the places of results that lie over an argument, and the bytes of that."""
    # Of several results the first one is what lies over an argument.
    span_of = {first: (last, nbytes) for first, last, nbytes in reversed(spans)}
    place = {node: index for index, node in enumerate(nodes)}
    for index, node in enumerate(nodes):
        if index not in span_of or node.op != "call_function":
            continue
        for value in overwritable_nodes(node):
            while shares_memory(value):
                value = value.all_input_nodes[0]
            last, nbytes = span_of.get(place[value], (-1, 0.0))
            if last == index and nbytes == span_of[index][1] and value not in inputs:
                yield index, nbytes
                break


def overwritable_nodes(node: Node) -> Iterator[Node]:
    """Yield the arguments of a call whose memory its kernel may overwrite with a result, where it reads them once."""
    given = named_arguments(node)
    for names in facts_of(underlying(node.target)).overwrites.values():
        for name in names:
            one = given.get(name)
            if isinstance(one, Node) and sum(one is each for each in given.values()) == 1:
                yield one


def shares_memory(node: Node) -> bool:
    """Whether a result lies in the memory of what it is made of: reshaped, or one of the results of a call."""
    return node.op == "call_function" and (node.target is operator.getitem or underlying(node.target) in _SHARING)


def _own(node: Node) -> float:
    return result_nbytes(node) if _has_memory(node) else 0.0


def _has_memory(node: Node) -> bool:
    return node.op == "call_function" and not shares_memory(node)


def result_nbytes(node: Node) -> float:
    """Return the bytes of all tensors that a node returns."""
    return sum(result_sizes(node))


def result_sizes(node: Node) -> list[float]:
    """Return the bytes of each tensor that a node returns; sizes that vary count as they were when it was exported."""
    values = node.meta.get("val")
    return [_nbytes(one) for one in (values if isinstance(values, list | tuple) else [values])]


def _nbytes(value: Any) -> float:
    if not isinstance(value, torch.Tensor):
        return 0.0
    sizes = [size.node.hint if isinstance(size, torch.SymInt) else size for size in value.shape]
    return math.inf if any(size is None for size in sizes) else math.prod(sizes) * value.element_size()


Item = TypeVar("Item")


class StoredValues:
    """Stored tensors and written values of one program, as it is when this is made.

    Attributes:
        program: The program.
        output_kinds: For each node that the program returns, as what.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self._interface = ProgramInterface.of(program)
        self.output_kinds: dict[Node, list[OutputKind]] = {}
        for result, entry in self._interface.results:
            if isinstance(result, Node) and entry is not None:
                self.output_kinds.setdefault(result, []).append(entry.kind)
        found = ((node, stored_tensor(program, entry)) for node, entry in self._interface.inputs.items())
        self._stored = {node: tensor for node, tensor in found if tensor is not None}
        self._groups: DisjointSets[Node] = DisjointSets()
        self._link_shared_storage()
        self._written = self._link_graph()
        self._mutable = self._mutable_storages()

    def tensor(self, node: Node) -> torch.Tensor | None:
        """Return the tensor behind an input that the program only reads; None for all other nodes.

        Tensors without plain data in memory (sparse, quantized, fake, of a subclass) count as unknown, and so do those
        that are to lie in data files.
        """
        tensor = self._stored.get(node)
        if tensor is None or not is_plain_tensor(tensor) or self.is_written(node) or is_external_constant(node):
            return None
        return None if storage_of(tensor) in self._mutable else tensor

    def kind(self, node: Node) -> InputKind | None:
        """Return as what a program takes an input."""
        return self._interface.kind(node)

    def stored(self) -> Iterator[tuple[Node, torch.Tensor]]:
        """Yield every input that is a stored tensor, with the tensor, in order."""
        yield from self._stored.items()

    def is_written(self, node: Node) -> bool:
        """Whether an operator writes to this value, or to memory that it may share."""
        return self._groups.of(node) in self._written

    def touches_written(self, node: Node) -> bool:
        """Whether a call reads or returns memory that an operator writes to."""
        return self.is_written(node) or any(map(self.is_written, node.all_input_nodes))

    def _link_shared_storage(self) -> None:
        first: dict[int, Node] = {}
        for node, tensor in self.stored():
            if is_plain_tensor(tensor) and tensor.numel():
                self._groups.link(first.setdefault(storage_of(tensor), node), node)

    def _link_graph(self) -> frozenset[Node]:
        """Link values that may share memory; return the groups that are written to."""
        written: list[Node] = []
        for node in self.program.graph.nodes:
            if node.op != "call_function":
                continue
            written += written_arguments(node)
            for source in _shared_arguments(node):
                self._groups.link(source, node)
        return frozenset(map(self._groups.of, written))

    def _mutable_storages(self) -> frozenset[int]:
        inputs = self._interface.inputs
        # Of gradients too: a stored tensor that the signature names as a target must stay.
        targets = {entry.target for _, entry in self._interface.results if entry and entry.target is not None}
        return frozenset(
            storage_of(tensor)
            for node, tensor in self.stored()
            if {node.name, inputs[node].target} & targets and is_plain_tensor(tensor)
        )


class DisjointSets(Generic[Item]):
    """Disjoint sets; what has not been linked is a set of its own."""

    def __init__(self) -> None:
        self._above: dict[Item, Item] = {}

    def of(self, item: Item) -> Item:
        """Return the item that stands for the set of an item."""
        while (above := self._above.get(item, item)) != item:
            self._above[item] = self._above.get(above, above)
            item = above
        return item

    def link(self, left: Item, right: Item) -> None:
        """Make one set of two, for which the one that stands for the left one stands."""
        left, right = self.of(left), self.of(right)
        if left != right:
            self._above[right] = left


def is_plain_call(node: Node) -> bool:
    """Whether a node calls an operator that only returns values, the same ones whenever it is given the same.

    Control flow, random numbers, memory without contents, and sizes that depend on data are not among these.
    """
    if node.op != "call_function" or has_unbacked_symbols(node) or not is_pure(node):
        return False
    op = underlying(node.target)
    if isinstance(op, OpOverload | DefinedOperator):
        name = op._schema.name.partition("::")[2]
        return torch.Tag.nondeterministic_seeded not in op.tags and "empty" not in name
    return getattr(op, "__module__", None) in ("_operator", "math", "torch", "builtins")


def is_plain_tensor(tensor: torch.Tensor) -> bool:
    """Whether a tensor is ordinary data in memory."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, DeferredTensor) or isinstance(tensor, FakeTensor):
        return False
    return tensor.layout is torch.strided and not tensor.is_quantized and tensor.device.type == "cpu"


def storage_of(tensor: torch.Tensor) -> int:
    """Return what tells the memory that a tensor is a part of from others, such as its address."""
    return memory_key(tensor)


def place_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what tells a tensor from others: tensors of equal places have the same elements in the same memory."""
    if not is_plain_tensor(tensor):
        return (id(tensor),)
    form = (tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.is_conj(), tensor.is_neg())
    return (storage_of(tensor), tensor.storage_offset(), *form)


def nbytes_of(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements, each once."""
    return tensor.numel() * tensor.element_size()


def _shared_arguments(node: Node) -> list[Node]:
    """Return the arguments whose memory the result may share."""
    op = underlying(node.target)
    schema = getattr(op, "_schema", None)
    if schema is None:
        return list(node.all_input_nodes)
    if any(result.alias_info is not None for result in schema.returns):
        return _arguments_where(node, schema, lambda alias: True)
    return list(node.all_input_nodes) if _is_composite(op) else []


def _arguments_where(node: Node, schema: Any, test: Callable[[Any], bool]) -> list[Node]:
    """Return the nodes given for arguments that the schema annotates with memory of which the test is true."""
    found: list[Node] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and test(argument.alias_info):
            value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            found += [one for one in (value if isinstance(value, list | tuple) else (value,)) if isinstance(one, Node)]
    return found


@cache
def _is_composite(op: Any) -> bool:
    # Such operators may hand back their argument without saying so: dropout outside of training, for one.
    return isinstance(op, OpOverload) and is_composite(op)


_WHOLE = "kept_whole"
# What is in this dictionary goes with a node when torch traces a program again.
_CUSTOM = "custom"


def mark_kept_whole(node: Node) -> None:
    """Mark a call that is not to be decomposed, whatever its operator is."""
    node.meta[_CUSTOM] = {**(node.meta.get(_CUSTOM) or {}), _WHOLE: True}


def is_kept_whole(node: Node) -> bool:
    """Whether a call is marked so."""
    return bool((node.meta.get(_CUSTOM) or {}).get(_WHOLE))
