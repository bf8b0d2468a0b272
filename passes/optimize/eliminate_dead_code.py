"""Remove calls whose results are not used, and inputs that nothing reads."""

from __future__ import annotations

from torch.export.graph_signature import InputKind

from exirkit.ir import GraphEditor, subgraph_editors
from exirkit.passes.contract import Pass


class EliminateDeadCode(Pass):
    """Erase unused calls, last first, so that one sweep is enough.

    Requires: operators without effects may be dropped, random ones too; what writes or asserts stays.
    """

    name = "eliminate-dead-code"
    enters_bodies = True
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Erase what has no users."""
        for node in reversed(list(editor.graph.nodes)):
            if node.op in ("call_function", "get_attr") and not node.users and not node.is_impure():
                editor.erase(node)


_STORED = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})


class RemoveUnusedInputs(Pass):
    """Remove stored tensors without users from graph, signature and tables; user inputs stay.

    Before that, graphs of control flow lose the inputs that none of the graphs of the same call reads.

    Ensures: every parameter, buffer and constant of the program is read or written.
    """

    name = "remove-unused-inputs"
    invalidates = ()
    after = ("eliminate-dead-code",)

    def edit(self, editor: GraphEditor) -> None:
        """Remove what nothing reads; a buffer that is written stays, even if it is never read."""
        _remove_from_bodies(editor)
        signature = editor.program.graph_signature
        # The tables of the signature go by the value that is written, and two buffers may get the same one.
        written = {spec.target for spec in signature.output_specs if spec.target is not None}
        kinds = {spec.arg.name: spec for spec in signature.input_specs}
        editor.remove_inputs(
            [
                node
                for node in editor.graph.find_nodes(op="placeholder")
                if not node.users and kinds[node.name].kind in _STORED and kinds[node.name].target not in written
            ]
        )


def _remove_from_bodies(editor: GraphEditor) -> None:
    """Remove inputs of bodies, those of the innermost first, since they may be the only readers of an outer one."""
    for body in subgraph_editors(editor):
        _remove_from_bodies(body)
        for node in body.graph.find_nodes(op="placeholder"):
            # The other body of the call has lost its input with that of the first.
            if not node._erased and not node.users:
                body.remove_inputs([node])
