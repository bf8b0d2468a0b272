"""Results and operands with memory of their own, without which torch does not trace a program a second time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.ir import GraphEditor, SubgraphEditor, control_flow_call, copy_program, results_of_graph
from exirkit.passes.to_executorch.propagate_specs import all_editors

_CLONE = torch.ops.aten.clone.default


def with_own_results(program: ExportedProgram) -> ExportedProgram:
    """Copy results that are inputs, and operands that share memory, where torch rejects them or takes one for another.

    That is a buffer whose new value is another buffer, as where two are exchanged, which torch's own programs have; a
    result of a body that is an input of it or another result, and an operand of control flow that is another operand or
    a view of it, as where copies that do nothing are gone.

    Args:
        program: It is not changed.

    Returns:
        A copy, or the program itself if it has nothing of the kind.
    """
    found = all_editors(GraphEditor(program))
    if not any(any(True for _ in _aliases(one)) or any(map(_shares, _calls(one))) for one in found):
        return program
    copied = copy_program(program)
    for editor in all_editors(GraphEditor(copied)):
        with editor.transaction("own-results"):
            for call in filter(_shares, list(_calls(editor))):
                _separate(editor, call)
            results, output = results_of_graph(editor.program.graph_module), editor.graph.output_node()
            places = list(_aliases(editor))
            for place in places:
                results[place] = editor.call(_CLONE, (results[place],), before=output, origins=results[place])
            if places:
                # The condition of a loop gives a tensor and not a tuple of one.
                editor.rewire(output, (results[0] if isinstance(output.args[0], Node) else tuple(results),))
    return copied


def _calls(editor: GraphEditor) -> Iterator[Node]:
    return (node for node in editor.graph.nodes if control_flow_call(node) is not None)


def _shares(call: Node) -> bool:
    """Whether two operands of a call of control flow share memory."""
    roots: list[Node] = []
    map_arg(call.args, lambda one: roots.append(_root(one)) if _is_tensor(one) else None)
    return len(set(roots)) < len(roots)


def _separate(editor: GraphEditor, call: Node) -> None:
    seen: set[Node] = set()

    def own(operand: Node) -> Node:
        root = _root(operand)
        if not _is_tensor(operand) or root not in seen:
            seen.add(root)
            return operand
        return editor.call(_CLONE, (operand,), before=call, origins=operand)

    editor.rewire(call, map_arg(call.args, own), val=call.meta["val"])


def _root(node: Node) -> Node:
    """Return what a tensor shows, if it is a view, and otherwise itself."""
    while node.op == "call_function":
        schema = getattr(node.target, "_schema", None)
        if schema is None or not any(one.alias_info is not None for one in schema.returns):
            break
        shown = node.args[0] if node.args else None
        if not isinstance(shown, Node):
            break
        node = shown
    return node


def _is_tensor(node: Any) -> bool:
    return isinstance(node, Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _aliases(editor: GraphEditor) -> Iterator[int]:
    """Yield the places of the results of a graph that need a copy."""
    results = results_of_graph(editor.program.graph_module)
    is_body = isinstance(editor, SubgraphEditor)
    specs = [] if is_body else editor.program.graph_signature.output_specs
    for place, result in enumerate(results):
        if not _is_tensor(result):
            continue
        if is_body:
            if result.op == "placeholder" or result in results[:place]:
                yield place
        elif specs[place].kind is OutputKind.BUFFER_MUTATION and result.op == "placeholder":
            yield place
