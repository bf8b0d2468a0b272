"""Editing the subgraphs of control flow: each is a graph of its own that shares the journal of the program around it.

A subgraph gets everything through the operands of the calls that run it. Some operands are passed on as they are,
others are slices or carried from turn to turn; only the former can be looked through, and a new constant becomes one of
them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, TensorArgument
from torch.fx import GraphModule, Node

from exirkit.ir.analysis import IGNORED_OPTIONS, LAYOUTS, CallLayout
from exirkit.ir.diagnostics import Diagnostic, Location, ModelError
from exirkit.ir.provenance import inherited, locate

from .editor import GraphEditor
from .journal import Moved, Transaction


class SealedSubgraphError(ModelError):
    """A subgraph of control flow cannot be given another operand; not an error of the caller."""


class SubgraphEditor(GraphEditor):
    """Edits a subgraph of control flow; its transactions are stretches of those of the program around it.

    Attributes:
        parent: Editor of the graph that calls the subgraph.
        name: Attribute of that graph's module that holds the subgraph.
        program: A program of which the subgraph is the graph; it stores nothing.
    """

    def __init__(self, parent: GraphEditor, name: str, module: GraphModule) -> None:
        super().__init__(program_around(parent.program, module))
        self.parent = parent
        self.name = name
        self._journal = parent._journal
        self._open = parent._open
        if self.fake_mode.shape_env is None:
            self.fake_mode = self._inference.mode = parent.fake_mode

    @property
    def path(self) -> str:
        """Names of the attributes that lead from the program's module to the subgraph, with dots between them."""
        return f"{self.parent.path}.{self.name}" if isinstance(self.parent, SubgraphEditor) else self.name

    @property
    def is_isolated(self) -> bool:
        """Whether what the subgraph returns may share no memory with what it is given."""
        layouts = [_layout_of(call) for call in self._calls()]
        return any(layout is None or layout.is_isolated for layout in layouts)

    def operand_of(self, placeholder: Node) -> Node | None:
        """Return the value that every call hands on to a placeholder as it is, or None if there is no such value."""
        index = self._inputs().index(placeholder)
        found: set[Any] = set()
        for call in self._calls():
            layout = _layout_of(call)
            place = None if layout is None else _place(call, layout, index)
            if layout is None or place is None or place[0] != layout.operands[-1]:
                return None
            found.add(_operands(call, place[0])[place[1]])
        operand = found.pop() if len(found) == 1 else None
        return operand if isinstance(operand, Node) else None

    def add_constant(
        self,
        tensor: torch.Tensor,
        *,
        name: str,
        origins: Node | Sequence[Node] = (),
        kind: InputKind = InputKind.CONSTANT_TENSOR,
        persistent: bool = True,
    ) -> Node:
        """Make a tensor a constant, parameter or buffer of the program, and hand it to the subgraph as an operand.

        Args:
            tensor: Real tensor; it is shared, not copied.
            name: Wish for its name; a taken one gets a number.
            origins: Nodes whose provenance it inherits.
            kind: What the program stores it as.
            persistent: Whether a buffer is part of the state dict.

        Returns:
            The placeholder of the subgraph. The other subgraph of the same call gets one too.

        Raises:
            SealedSubgraphError: EK120, the calls cannot be given another operand.
        """
        call, layout = self._only_call()
        outer = self.parent.add_constant(tensor, name=name, origins=call, kind=kind, persistent=persistent)
        handed = _operands(call, layout.operands[-1])
        known = next((index for index, one in enumerate(handed) if one is outer), None)
        if known is not None:
            return self._inputs()[known - len(handed)]
        self.parent._set_arguments(call, _with_operands(call, layout.operands[-1], [*handed, outer]), None)
        for subgraph in self._siblings(call, layout):
            if subgraph is not self:
                subgraph._add_placeholder(name, outer.meta["val"], call)
        return self._add_placeholder(name, outer.meta["val"], origins)

    def remove_inputs(self, nodes: Sequence[Node]) -> None:
        """Remove operands that no subgraph of the call uses; the others stay, since the subgraphs are called alike."""
        for node in nodes:
            self._check(node)
            self._check_unused(node)
            self._remove_operand(node)

    def carry(self, indices: Sequence[int]) -> None:
        """Let inputs of the graphs of a `while_loop` stand behind those that are carried; the call is the caller's.

        Args:
            indices: Numbers of inputs that are handed on as they are.

        Raises:
            SealedSubgraphError: EK120, several calls run the subgraph.
        """
        call, layout = self._only_call()
        inputs = self._inputs()
        first = len(_operands(call, layout.operands[0]))
        follower = inputs[-1].next
        for index, node in enumerate(inputs[first:], start=first):
            if index not in indices and node.next is not follower:
                change = Moved(node, node.next)
                follower.prepend(node)
                self._record(change)

    def _remove_operand(self, node: Node) -> None:
        outer = self.operand_of(node)
        try:
            call, layout = self._only_call()
        except SealedSubgraphError:
            return
        handed = _operands(call, layout.operands[-1])
        index = self._inputs().index(node) - len(self._inputs())
        inputs = [(subgraph, subgraph._inputs()[index]) for subgraph in self._siblings(call, layout)]
        if outer is None or any(one.users for _, one in inputs):
            return
        del handed[index]
        self.parent._set_arguments(call, _with_operands(call, layout.operands[-1], handed), None)
        for subgraph, one in inputs:
            subgraph.erase(one)
        if not outer.users and self.parent._is_removable(outer):
            self.parent.remove_inputs([outer])

    def _is_removable(self, node: Node) -> bool:
        return node.op == "placeholder"

    def _add_placeholder(self, name: str, value: Any, origins: Node | Sequence[Node]) -> Node:
        inputs = self._inputs()
        follower = inputs[-1].next if inputs else next(iter(self.graph.nodes))
        meta = inherited((origins,) if isinstance(origins, Node) else tuple(origins))
        meta["val"] = value
        return self._create("placeholder", name, (), {}, follower, name, meta)

    def _inputs(self) -> list[Node]:
        return list(self.graph.find_nodes(op="placeholder"))

    def _calls(self) -> list[Node]:
        attributes = self.parent.graph.find_nodes(op="get_attr", target=self.name)
        return list(dict.fromkeys(user for attribute in attributes for user in attribute.users))

    def _only_call(self) -> tuple[Node, CallLayout]:
        """Return the one call that runs this subgraph and those that are run with it."""
        calls = self._calls()
        layout = _layout_of(calls[0]) if len(calls) == 1 else None
        if layout is None or any(len(subgraph._calls()) > 1 for subgraph in self._siblings(calls[0], layout)):
            raise SealedSubgraphError(
                Diagnostic.of(
                    "EK120",
                    f"the subgraph {self.path} cannot be given another operand",
                    location=locate(calls[0]) if calls else Location(),
                )
            )
        return calls[0], layout

    def _siblings(self, call: Node, layout: CallLayout) -> list[SubgraphEditor]:
        names = dict.fromkeys(str(call.args[at].target) for at in layout.subgraphs)  # type: ignore[union-attr]
        subgraphs = {subgraph.name: subgraph for subgraph in subgraph_editors(self.parent)}
        return [subgraphs[name] for name in names]

    def _end(self, transaction: Transaction) -> None:
        super()._end(transaction)
        if not self._open:
            self.parent._settle()

    def _agree_signature(self) -> None:
        self.parent._agree_signature()

    def _forget(self) -> None:
        super()._forget()
        if hasattr(self, "parent"):
            self.parent._forget()


def subgraph_editors(editor: GraphEditor) -> Iterator[SubgraphEditor]:
    """Yield an editor of every graph that the calls of a graph run, each once; theirs are asked for from them."""
    module = editor.program.graph_module
    seen: set[int] = set()
    for node in editor.graph.find_nodes(op="get_attr"):
        name = str(node.target)
        subgraph = getattr(module, name, None)
        if not isinstance(subgraph, GraphModule) or id(subgraph) in seen or not node.users:
            continue
        seen.add(id(subgraph))
        known = editor._subgraphs.get(name)
        if not isinstance(known, SubgraphEditor) or known.program.graph_module is not subgraph:
            known = editor._subgraphs[name] = SubgraphEditor(editor, name, subgraph)
        yield known


def _layout_of(call: Node) -> CallLayout | None:
    layout = LAYOUTS.get(str(getattr(call.target, "__name__", "")))
    if layout is None or set(call.kwargs) - IGNORED_OPTIONS or call.op != "call_function":
        return None
    named = [call.args[at] for at in layout.subgraphs if at < len(call.args)]
    return layout if all(isinstance(one, Node) and one.op == "get_attr" for one in named) else None


def _operands(call: Node, position: int) -> list[Any]:
    if position < 0:
        return list(call.args[-position:])
    found = call.args[position] if position < len(call.args) else ()
    return list(found) if isinstance(found, list | tuple) else []


def _with_operands(call: Node, position: int, operands: Sequence[Any]) -> list[Any]:
    args = list(call.args)
    if position < 0:
        return [*args[:-position], *operands]
    if position == len(args):
        return [*args, tuple(operands)]
    args[position] = list(operands) if isinstance(args[position], list) else tuple(operands)
    return args


def _place(call: Node, layout: CallLayout, index: int) -> tuple[int, int] | None:
    for position in layout.operands:
        count = len(_operands(call, position))
        if index < count:
            return position, index
        index -= count
    return None


def program_around(program: ExportedProgram, module: GraphModule) -> ExportedProgram:
    """Return a program of which a graph of control flow is the graph; it stores nothing."""
    result = copy.copy(program)
    result._graph_module = module
    inputs = [
        InputSpec(InputKind.USER_INPUT, TensorArgument(name=node.name), target=None)
        for node in module.graph.find_nodes(op="placeholder")
    ]
    result._graph_signature = ExportGraphSignature(input_specs=inputs, output_specs=[])
    result._state_dict = {}
    result._constants = {}
    return result
