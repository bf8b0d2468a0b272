"""Drop parameters, buffers and constants that nothing reads."""

from __future__ import annotations

from torch.export.graph_signature import InputKind

from exirkit.ir import GraphEditor

from .contract import Pass

_STORED = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})


class RemoveUnusedInputs(Pass):
    """Remove stored tensors without users from graph, signature and tables; user inputs stay.

    Ensures: every parameter, buffer and constant of the program is read or written.
    """

    name = "remove-unused-inputs"

    def edit(self, editor: GraphEditor) -> None:
        """Remove what nothing reads; a buffer that is written stays, even if it is never read."""
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
