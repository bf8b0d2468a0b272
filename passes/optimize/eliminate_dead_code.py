"""Remove calls whose results nobody uses."""

from __future__ import annotations

from exirkit.ir import GraphEditor
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
