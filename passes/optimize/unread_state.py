"""Remove state that a program only keeps up to date: counters that nothing reads but the call that counts on."""

from __future__ import annotations

from torch.fx import Node

from exirkit.ir import GraphEditor, ProgramInterface
from exirkit.passes.analysis import is_plain_call
from exirkit.passes.contract import Pass


class RemoveUnreadState(Pass):
    """Remove buffers that are written, and on which nothing depends but what is written to such buffers.

    The counter `num_batches_tracked` of a batch normalization in evaluation is one. Results of the program do not
    change. Programs whose buffers something else reads, such as another method that shares them, are not for this pass.

    Ensures: on every buffer that the program writes to, a result or an effect depends.
    """

    name = "remove-unread-state"
    changes_outputs = True

    def edit(self, editor: GraphEditor) -> None:
        """Remove the writes, what computes them, and the buffers."""
        unread = _unread(editor)
        if not unread:
            return
        calls = [node for node in editor.graph.nodes if node.op == "call_function" and node.users]
        editor.remove_mutations(unread)
        for node in reversed(calls):
            if not node._erased and not node.users and is_plain_call(node):
                editor.erase_unused(node)
        editor.remove_inputs([node for node in unread if not node.users])


def _unread(editor: GraphEditor) -> list[Node]:
    """Return the placeholders of the largest set of buffers on which only the new values of these depend."""
    interface = ProgramInterface.of(editor.program)
    states: dict[str, list[Node]] = {}
    for node in interface.placeholders:
        if interface.is_stored(node):
            states.setdefault(str(interface.inputs[node].target), []).append(node)
    values = {str(spec.target): value for owner, value, spec in interface.mutations if interface.is_stored(owner)}
    trained = {str(interface.inputs[node].target) for node in interface.trained}
    values = {target: value for target, value in values.items() if target not in trained}
    # What leaves the program by another way than as one of these values, and what has an effect.
    results = [value for value, spec in interface.results if spec is None or str(spec.target) not in values]
    pending = [one for one in results if isinstance(one, Node)]
    pending += [node for node in editor.graph.nodes if node.op == "call_function" and not is_plain_call(node)]
    owner_of = {node: target for target, nodes in states.items() for node in nodes}
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        pending += node.all_input_nodes
        # What the next run reads, this one writes.
        value = values.pop(owner_of.get(node, ""), None)
        if isinstance(value, Node):
            pending.append(value)
    return [node for target in values for node in states[target]]
