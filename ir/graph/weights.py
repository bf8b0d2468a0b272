"""Reading and changing the tensors that a program stores: parameters, buffers and constants, by their placeholders.

The names are those that torch and ExecuTorch document for it. Each function takes a program, its `GraphEditor`, or an
`EdgeProgramManager`, of which the method `forward` is meant. With an editor, or a program on which an editor has a
transaction open, changes are part of that transaction: journaled, and undone with it. On any other program each change
is a transaction of its own, which happens as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.fx import Graph, Node

from exirkit.ir.analysis import STORED_KINDS, attribute_of, called_graphs, stored_tensor
from exirkit.ir.diagnostics import Diagnostic, UsageError
from exirkit.ir.provenance import locate
from exirkit.ir.torch_internals import FakeTensor

from .editor import GraphEditor
from .journal import open_editor
from .programs import input_specs_by_node
from .subgraph_editor import SubgraphEditor

_Result = TypeVar("_Result")


class ProgramManager(Protocol):
    """What holds programs by method, such as `EdgeProgramManager`."""

    def exported_program(self) -> ExportedProgram:
        """Return the program of the method `forward`."""


HasProgram: TypeAlias = ExportedProgram | GraphEditor | ProgramManager
"""A program, its editor, or a manager of which the method `forward` is meant."""

_WRITES_STATE = frozenset({OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION})


def is_param(program: HasProgram, node: Node) -> bool:
    """Return whether a node is a parameter of a program.

    Raises:
        UsageError: EK114, the node is not in the program.
    """
    return _spec_of(program, node, InputKind.PARAMETER) is not None


def is_buffer(program: HasProgram, node: Node) -> bool:
    """Return whether a node is a buffer of a program, mutated or not, in its state dict or not.

    Raises:
        UsageError: EK114, the node is not in the program.
    """
    return _spec_of(program, node, InputKind.BUFFER) is not None


def is_lifted_tensor_constant(program: HasProgram, node: Node) -> bool:
    """Return whether a node is a constant tensor of a program.

    Raises:
        UsageError: EK114, the node is not in the program.
    """
    return _spec_of(program, node, InputKind.CONSTANT_TENSOR) is not None


def is_get_attr_node(node: object) -> bool:
    """Return whether something is a node that reads an attribute of its graph's module."""
    return isinstance(node, Node) and node.op == "get_attr"


def is_param_node(exp_prog: HasProgram, node: Node) -> bool:
    """Return whether a node is a parameter, a buffer or a constant, or reads an attribute of its graph's module.

    Raises:
        UsageError: EK114, the node is not in the program.
    """
    return is_get_attr_node(node) or _spec_of(exp_prog, node, *STORED_KINDS) is not None


def get_param(program: HasProgram, node: Node) -> torch.nn.Parameter | None:
    """Return the parameter of a node, or None if the node is not a parameter.

    Raises:
        UsageError: EK114, the node is not in the program.
    """
    found: torch.nn.Parameter | None = _tensor_of(program, node, InputKind.PARAMETER)
    return found


def get_buffer(program: HasProgram, node: Node) -> torch.Tensor | None:
    """Return the buffer of a node as it is before the first run, or None if the node is not a buffer.

    Raises:
        UsageError: EK114, the node is not in the program.
    """
    found: torch.Tensor | None = _tensor_of(program, node, InputKind.BUFFER)
    return found


def get_lifted_tensor_constant(program: HasProgram, node: Node) -> torch.Tensor | None:
    """Return the constant tensor of a node, or None if the node is not a constant tensor.

    Raises:
        UsageError: EK114, the node is not in the program.
    """
    found: torch.Tensor | None = _tensor_of(program, node, InputKind.CONSTANT_TENSOR)
    return found


def get_param_tensor(exp_prog: HasProgram, node: Node | None) -> torch.Tensor | None:
    """Return the tensor of a parameter, a buffer, a constant, or an attribute of the graph's module.

    Args:
        exp_prog: Program, or its editor.
        node: Node, or None for an argument that is not given, such as the bias of a linear layer.

    Returns:
        The tensor itself, not a copy: it must not be changed in place. None if there is no node.

    Raises:
        UsageError: EK114, the node is not in the program; EK116, it has no stored tensor.
    """
    if node is None:
        return None
    found = attribute_of(node) if is_get_attr_node(node) else _tensor_of(exp_prog, node, *STORED_KINDS)
    if not isinstance(found, torch.Tensor):
        raise _no_tensor(node)
    return found


def set_param_tensor(exp_prog: HasProgram, node: Node, data: torch.Tensor) -> None:
    """Replace the tensor of a parameter, a buffer or a constant.

    All users of the node get the new tensor, and so do the other names of a weight that modules of the model share
    (tied weights). Make a new placeholder if only one user shall get another tensor.

    Args:
        exp_prog: Program, or its editor.
        node: Placeholder.
        data: New tensor; it is shared, not copied. Shape and dtype may differ from before: values behind it are
            inferred again.

    Raises:
        UsageError: EK114, the node is not in the program; EK116, it has no stored tensor; EK124, the program writes
            values of another shape or dtype to it; EK125, there is no real tensor to store.
        ModelError: EK111, a user of the node does not take the new tensor.
    """
    _check_tensor(data, f"%{node.name}")

    def change(editor: GraphEditor, is_alone: bool) -> None:
        if _spec_of(editor, node, *STORED_KINDS) is None:
            raise _no_tensor(node)
        for each in (*_tied(editor, node), node):
            editor.set_tensor(each, data)
        if is_alone:
            # With a transaction of the caller, other edits may be to come that make program and tensor agree.
            editor.propagate()
            _check_written(editor, node)

    _edit(exp_prog, "set_param_tensor", change)


def create_constant_placeholder(
    exp_program: HasProgram,
    graph: Graph,
    name: str,
    kind: InputKind,
    data: torch.Tensor,
    persistent_buffer: bool | None = None,
) -> Node:
    """Make a tensor a parameter, a buffer or a constant of a program.

    The placeholder finds its place among the inputs by itself: behind those of its kind, in front of those of the user.

    Args:
        exp_program: Program, or its editor.
        graph: Graph of the program, or of the editor.
        name: Wish for its name; a taken one gets a number, unless an input of this name and kind that the program does
            not write to has an equal tensor: then that one is returned.
        kind: `InputKind.PARAMETER`, `BUFFER` or `CONSTANT_TENSOR`.
        data: Tensor; it is shared, not copied.
        persistent_buffer: For buffers: whether it is in the state dict.

    Returns:
        The placeholder.

    Raises:
        UsageError: EK123, another kind of input, or a buffer of which is not said whether it is persistent; EK125,
            there is no real tensor to store; EK126, the graph is another one.
    """
    _check_tensor(data, name)
    if kind is InputKind.BUFFER and persistent_buffer is None:
        raise UsageError(
            Diagnostic.of(
                "EK123",
                f"nothing says whether the buffer {name!r} is persistent",
                expected="persistent_buffer=True, in the state dict, or False, in the constants of the program",
            )
        )

    def change(editor: GraphEditor, _is_alone: bool) -> Node:
        if graph is not editor.graph:
            raise _other_graph(editor, name)
        return _equal_input(editor, name, kind, data) or editor.add_constant(
            data, name=name, kind=kind, persistent=bool(persistent_buffer)
        )

    return _edit(exp_program, "create_constant_placeholder", change)


def delete_constant_placeholder(exp_program: HasProgram, node: Node) -> None:
    """Remove a parameter, a buffer or a constant that nothing uses, and its tensor if no other input has the same one.

    Raises:
        UsageError: EK114, the node is not in the program; EK115, something uses it, or the program writes to it; EK116,
            it has no stored tensor.
    """
    _edit(exp_program, "delete_constant_placeholder", lambda editor, _is_alone: editor.remove_input(node))


def _edit(program: HasProgram, author: str, change: Callable[[GraphEditor, bool], _Result]) -> _Result:
    """Make a change in the transaction of the caller, or alone in one of its own."""
    editor = _editor_of(program) or GraphEditor(_program_of(program))
    if editor._open:
        return change(editor, False)
    with editor.transaction(author, records_effect=False):
        return change(editor, True)


def _editor_of(program: HasProgram) -> GraphEditor | None:
    found = program if isinstance(program, GraphEditor) else open_editor(_program_of(program))
    return found if isinstance(found, GraphEditor) else None


def _program_of(program: HasProgram) -> ExportedProgram:
    """Return the program that is meant.

    Raises:
        UsageError: EK114, there is none; EK703, a manager has no method `forward`.
    """
    if isinstance(program, GraphEditor):
        return program.program
    found = program if isinstance(program, ExportedProgram) else getattr(program, "exported_program", None)
    found = found() if callable(found) and not isinstance(found, ExportedProgram) else found
    if not isinstance(found, ExportedProgram):
        raise UsageError(
            Diagnostic.of(
                "EK114",
                f"a {type(program).__name__} has no graph with nodes",
                expected="an exported program, its editor, or an EdgeProgramManager",
            )
        )
    return found


def _spec_of(program: HasProgram, node: Node, *kinds: InputKind) -> InputSpec | None:
    """Return what the signature says of a node if it is an input of one of the kinds."""
    held = _program_of(program)
    if node._erased or (node.graph is not held.graph and not _is_subgraph(held, node.graph)):
        gone = "is not in the program" if not node._erased else "is no longer in the program"
        hint = "`transform` and lowering copy programs: look nodes up in the graph of the program that is given"
        raise UsageError(Diagnostic.of("EK114", f"%{node.name} {gone}", hint=hint))
    if node.op != "placeholder" or node.graph is not held.graph:
        return None
    editor = _editor_of(program)
    specs = editor._specs() if editor else input_specs_by_node(held.graph, held.graph_signature.input_specs)
    spec = specs.get(node)
    return spec if spec is not None and spec.kind in kinds else None


def _is_subgraph(program: ExportedProgram, graph: Graph) -> bool:
    return any(module.graph is graph for module in called_graphs(program.graph_module))


def _tensor_of(program: HasProgram, node: Node, *kinds: InputKind) -> Any:
    spec = _spec_of(program, node, *kinds)
    return None if spec is None else stored_tensor(_program_of(program), spec)


def _tied(editor: GraphEditor, node: Node) -> list[Node]:
    """Return the placeholders of other names of the same tensor.

    The exporter lets all modules that share a weight use one of its placeholders; its other names have no users, and
    hold the very same object. Placeholders that a pass makes have objects of their own, also of equal memory.
    """
    held = _tensor_of(editor, node, *STORED_KINDS)
    return [
        other
        for other, spec in editor._specs().items()
        if other is not node
        and not other.users
        and spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
        and stored_tensor(editor.program, spec) is held
    ]


def _equal_input(editor: GraphEditor, name: str, kind: InputKind, data: torch.Tensor) -> Node | None:
    """Return an input of this name and kind with an equal tensor, to which the program does not write."""
    written = {spec.target for spec in editor.program.graph_signature.output_specs if spec.kind in _WRITES_STATE}
    for node, spec in editor._specs().items():
        if node.name == name and spec.kind is kind and spec.target not in written:
            known = stored_tensor(editor.program, spec)
            return node if isinstance(known, torch.Tensor) and _is_equal(known, data) else None
    return None


def _is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape or one.device != other.device:
        return False
    return one is other or torch.equal(one, other)


def _check_tensor(data: object, name: str) -> None:
    if isinstance(data, torch.Tensor) and not isinstance(data, FakeTensor):
        return
    what = "a fake tensor, which has a shape and no elements" if isinstance(data, FakeTensor) else type(data).__name__
    hint = "`get_param_tensor` returns the tensor of a node, and `node.meta['val']` only its shape and dtype"
    raise UsageError(Diagnostic.of("EK125", f"what {name} shall store is {what}", hint=hint))


def _check_written(editor: GraphEditor, node: Node) -> None:
    """Raise if what the program writes to an input has not the shape and dtype of its tensor."""
    target, value = editor._specs()[node].target, node.meta["val"]
    outputs: Any = editor.graph.output_node().args[0]
    for spec, written in zip(editor.program.graph_signature.output_specs, outputs, strict=True):
        if spec.kind in _WRITES_STATE and spec.target == target:
            held = written.meta["val"]
            if held.dtype != value.dtype or held.shape != value.shape:
                raise UsageError(
                    Diagnostic.of(
                        "EK124",
                        f"the program writes %{written.name}, {_form(held)}, to %{node.name}, which would be "
                        f"{_form(value)}",
                        location=locate(written),
                        expected=f"a tensor that is {_form(held)}",
                    )
                )


def _form(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def _no_tensor(node: Node) -> UsageError:
    return UsageError(
        Diagnostic.of(
            "EK116",
            f"%{node.name} has no stored tensor",
            location=locate(node),
            expected="the placeholder of a parameter, buffer or constant",
        )
    )


def _other_graph(editor: GraphEditor, name: str) -> UsageError:
    where = "subgraph of control flow" if isinstance(editor, SubgraphEditor) else "program"
    return UsageError(
        Diagnostic.of("EK126", f"{name!r} shall become an input of a graph that is not the graph of the {where}")
    )
