"""Nodes of a program as rows of text, each distinct row and string kept once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

from exirkit.ir import (
    CALL_DELEGATE,
    TensorSpec,
    graphs_by_path,
    innermost_frame,
    module_paths,
    module_types,
    show_value,
    stack_frames,
    target_name,
)
from exirkit.program import LoweredBackendModule

# Long enough for any list of inputs; a stored list of numbers is cut.
_MOST_LETTERS = 4000
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_KINDS = {
    InputKind.USER_INPUT: "input",
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
    InputKind.CUSTOM_OBJ: "object",
    InputKind.TOKEN: "token",
}


class Row(NamedTuple):
    """What is shown of one node at one stage; all but `entity` are numbers of texts, places and modules of a table.

    Attributes:
        entity: Number of the node, which it keeps from stage to stage, whatever it is called.
        name: Its name.
        graph: Path of the subgraph that it is in; the empty text for the program's own graph.
        verb: Operator, or `input`, `parameter`, `buffer`, `constant`, `get_attr`, `output`; `graph` for the line above
            a subgraph.
        args: Its arguments; for a stored tensor, its name in the model.
        type: Dtype and sizes of its result.
        source: Line of the model that it comes from, or -1.
        module: Module that it comes from, or -1.
        memory: Where its result lies, once that is planned.
    """

    entity: int
    name: int
    graph: int
    verb: int
    args: int
    type: int
    source: int
    module: int
    memory: int


class SourcePlace(NamedTuple):
    """A line of the model.

    Attributes:
        file: Its file.
        line: Its number, from 1.
        function: The function around it.
        code: What it says.
    """

    file: str
    line: int
    function: str
    code: str


class ModulePlace(NamedTuple):
    """A module of the model.

    Attributes:
        path: Its path, `features.3.conv`; empty for the model itself.
        kind: Its class.
    """

    path: str
    kind: str


@dataclass
class RowTable:
    """All that is shown of all nodes at all stages.

    Attributes:
        texts: Distinct strings, by number.
        rows: Distinct rows, by number.
        places: Lines of the model, by number.
        modules: Modules, by number.
        handles: Debug handles of each node, by its number: nodes of one handle come from one call of the model.
        delegates: Backend, and numbers of the nodes that it was given, by the number of the call of a delegate.
    """

    texts: dict[str, int] = field(default_factory=lambda: {"": 0})
    rows: dict[Row, int] = field(default_factory=dict)
    places: dict[SourcePlace, int] = field(default_factory=dict)
    modules: dict[ModulePlace, int] = field(default_factory=dict)
    handles: list[tuple[int, ...]] = field(default_factory=list)
    delegates: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    _traces: dict[str, int] = field(default_factory=dict)
    # Copies of a program share what is recorded of a node. The objects stay here: no other one gets the same number.
    _types: dict[int, tuple[Any, int]] = field(default_factory=dict)
    _stacks: dict[int, tuple[Any, int]] = field(default_factory=dict)

    def text(self, text: str) -> int:
        """Return the number of a string."""
        return self.texts.setdefault(text, len(self.texts))

    def row(self, row: Row) -> int:
        """Return the number of a row."""
        return self.rows.setdefault(row, len(self.rows))

    def entity(self) -> int:
        """Return the number of a new node."""
        self.handles.append(())
        return len(self.handles) - 1

    def source(self, node: Node) -> int:
        """Return the number of the line that a node comes from, or -1."""
        trace = node.meta.get("stack_trace")
        if not trace:
            return -1
        if trace not in self._traces:
            frame = innermost_frame(stack_frames(trace))
            place = None if frame is None else SourcePlace(*frame)
            self._traces[trace] = -1 if place is None else self.places.setdefault(place, len(self.places))
        return self._traces[trace]

    def type(self, value: Any) -> int:
        """Return the number of the text of a recorded value."""
        known = self._types.get(id(value))
        if known is None:
            known = self._types[id(value)] = value, self.text(type_text(value))
        return known[1]

    def module(self, node: Node) -> int:
        """Return the number of the innermost module that a node comes from, or -1."""
        stack = node.meta.get("nn_module_stack")
        if not stack:
            return -1
        known = self._stacks.get(id(stack))
        if known is None:
            place = ModulePlace(module_paths(node)[-1], module_types(node)[-1])
            known = self._stacks[id(stack)] = stack, self.modules.setdefault(place, len(self.modules))
        return known[1]


@dataclass(frozen=True)
class ProgramRows:
    """A program at one stage.

    Attributes:
        rows: Numbers of its rows, in order.
        entities: Number of each node, by graph and name.
    """

    rows: Sequence[int]
    entities: Mapping[tuple[str, str], int]


class _Kept(NamedTuple):
    """What is known of a node from the stage before."""

    node: Node
    name: str
    entity: int
    value: Any
    type: int
    source: int
    module: int


class _Shown(NamedTuple):
    """A row, and what of its node it was made of."""

    kept: _Kept
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    details: tuple[Any, ...]
    row: int


class NodeReader:
    """Reads the stages of one run, in which nodes stay the same objects.

    Most nodes are the same at the next stage; what is shown of these is not written again.

    Args:
        table: Where rows go.
        before: The program as it was left by the run before, if there was one.
    """

    def __init__(self, table: RowTable, before: ProgramRows | None) -> None:
        self._table = table
        self._before: Mapping[tuple[str, str], int] = {} if before is None else before.entities
        self._kept: dict[int, _Kept] = {}
        self._shown: dict[int, _Shown] = {}
        self._verbs: dict[int, tuple[Any, int]] = {}

    def again(self, program: ExportedProgram, before: ProgramRows) -> NodeReader:
        """Return a reader for a run that starts with a program that this one has read."""
        made = NodeReader(self._table, before)
        known = [id(node) for node in _nodes(graphs_by_path(program.graph_module)) if self._is_known(node)]
        made._kept = {one: self._kept[one] for one in known}
        made._shown = {one: self._shown[one] for one in known if one in self._shown}
        made._verbs = self._verbs
        return made

    def read(self, program: ExportedProgram) -> ProgramRows:
        """Return a program as rows."""
        stored = {
            str(getattr(spec.arg, "name", "")): (_KINDS[spec.kind], spec.target or "")
            for spec in program.graph_signature.input_specs
        }
        graphs = graphs_by_path(program.graph_module)
        known = [node for node in _nodes(graphs) if self._is_known(node)]
        alive = {self._kept[id(node)].entity for node in known}
        if any(self._kept[id(node)].name != node.name for node in known):
            # Rows of other nodes have the name as an argument.
            self._shown.clear()
        rows: list[int] = []
        entities: dict[tuple[str, str], int] = {}
        for path, module in graphs:
            if path:
                rows.append(self._head(path, alive, entities))
            graph = self._table.text(path)
            for node in module.graph.nodes:
                kept = self._known(node, path, alive)
                entities[path, node.name] = kept.entity
                rows.append(self._row(node, kept, graph, {} if path else stored))
                if node.target is CALL_DELEGATE:
                    self._note_delegate(node, kept.entity, path, module)
        self._before = entities
        return ProgramRows(tuple(rows), entities)

    def _note_delegate(self, node: Node, entity: int, path: str, module: GraphModule) -> None:
        """Note which nodes of the stage before a backend was given: they have the same names in its own program."""
        lowered = getattr(module, str(getattr(node.args[0], "target", "")), None)
        if entity in self._table.delegates or not isinstance(lowered, LoweredBackendModule):
            return
        inside = (self._before.get((path, one.name)) for one in lowered.original_module.graph.nodes)
        calls = tuple(one for one in inside if one is not None)
        self._table.delegates[entity] = (lowered.backend_id, calls)

    def _is_known(self, node: Node) -> bool:
        # A number of an object may be used again, unless the object is still there.
        kept = self._kept.get(id(node))
        return kept is not None and kept.node is node

    def _known(self, node: Node, path: str, alive: set[int]) -> _Kept:
        """Return what is known of a node, which is brought up to date."""
        value = node.meta.get("val")
        kept = self._kept.get(id(node))
        if kept is not None and kept.node is node and kept.value is value and kept.name == node.name:
            return kept
        entity = kept.entity if kept is not None and kept.node is node else self._entity((path, node.name), alive)
        table = self._table
        kept = _Kept(node, node.name, entity, value, table.type(value), table.source(node), table.module(node))
        self._kept[id(node)] = kept
        return kept

    def _entity(self, key: tuple[str, str], alive: set[int]) -> int:
        """Return the number of a node that is seen for the first time: that of a node of its name which is gone.

        Names are unique in a stage, so that no other new node gets it.
        """
        found = self._before.get(key)
        return self._table.entity() if found is None or found in alive else found

    def _head(self, path: str, alive: set[int], entities: dict[tuple[str, str], int]) -> int:
        key = (path, "")
        entities[key] = self._entity(key, alive)
        text = self._table.text
        return self._table.row(Row(entities[key], text(path), text(path), text("graph"), 0, 0, -1, -1, 0))

    def _row(self, node: Node, kept: _Kept, graph: int, stored: Mapping[str, tuple[str, str]]) -> int:
        """Return the number of the row of a node, which is written again only if it is another than before."""
        table = self._table
        handle, spec = node.meta.get("debug_handle"), node.meta.get("spec")
        memory = 0 if spec is None else table.text(memory_text(spec))
        source = stored.get(node.name, ("input", "")) if node.op == "placeholder" else None
        target, args, kwargs, details = node.target, node.args, node.kwargs, (graph, source, handle, memory)
        shown = self._shown.get(id(node))
        if (
            shown is not None
            and shown.kept is kept
            and shown.target is target
            and shown.args is args
            and shown.kwargs is kwargs
            and shown.details == details
        ):
            return shown.row
        if source is not None:
            verb, text = table.text(source[0]), table.text(source[1])
        else:
            verb = self._verb(node) if node.op == "call_function" else table.text(node.op)
            text = table.text(str(target) if node.op == "get_attr" else arguments_text(node))
        if handle is not None:
            table.handles[kept.entity] = handle if isinstance(handle, tuple) else (handle,)
        row = table.row(
            Row(kept.entity, table.text(node.name), graph, verb, text, kept.type, kept.source, kept.module, memory)
        )
        self._shown[id(node)] = _Shown(kept, target, args, kwargs, details, row)
        return row

    def _verb(self, node: Node) -> int:
        target = node.target
        found = self._verbs.get(id(target))
        if found is None or found[0] is not target:
            found = (target, self._table.text(_ADDRESS.sub("", target_name(target))))
            self._verbs[id(target)] = found
        return found[1]


def _nodes(graphs: Sequence[tuple[str, GraphModule]]) -> Iterator[Node]:
    for _, module in graphs:
        yield from module.graph.nodes


def arguments_text(node: Node) -> str:
    """Return the arguments of a node as text, in which nodes are `%name`."""
    parts = [_argument(one) for one in node.args]
    parts += [f"{name}={_argument(one)}" for name, one in node.kwargs.items()]
    text = ", ".join(parts)
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + "..."


def _argument(value: Any) -> str:
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, list | tuple):
        return f"[{', '.join([_argument(one) for one in value])}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_argument(one)}" for key, one in value.items()) + "}"
    return _ADDRESS.sub("", repr(value)).removeprefix("torch.")


def type_text(value: Any) -> str:
    """Return a recorded value as text: dtype, sizes, and the order of dims where that is not the usual one."""
    if isinstance(value, list | tuple):
        return f"({', '.join(map(type_text, value))})"
    text = "" if value is None else _ADDRESS.sub("", show_value(value))
    if isinstance(value, torch.Tensor) and value.dim() > 1:
        strides = value.stride()
        if all(type(one) is int for one in (*value.shape, *strides)) and not value.is_contiguous():
            text += f" strides [{', '.join(map(str, strides))}]"
    return text


def memory_text(spec: Any) -> str:
    """Return where the result of a node lies; nothing before memory is planned."""
    if isinstance(spec, list | tuple):
        return "; ".join(text for one in spec if (text := memory_text(one)))
    if not isinstance(spec, TensorSpec) or spec.mem_offset is None:
        return ""
    first, last = spec.lifetime
    steps = "" if first is None else f", steps {first} to {last}"
    return f"arena {spec.mem_id}, bytes {spec.mem_offset} to {spec.mem_offset + spec.nbytes()}{steps}"
