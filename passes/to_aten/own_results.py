"""Results with memory of their own, without which torch does not trace a program a second time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from exirkit.ir import GraphEditor, SubgraphEditor, copy_program, results_of_graph
from exirkit.passes.to_executorch.propagate_specs import all_editors

_CLONE = torch.ops.aten.clone.default


def with_own_results(program: ExportedProgram) -> ExportedProgram:
    """Copy results that are inputs, where torch rejects them or takes one for another.

    That is a buffer whose new value is another buffer, as where two are exchanged, which torch's own programs have; and
    a result of a body that is an input of it or another result, as where copies that do nothing are gone.

    Args:
        program: It is not changed.

    Returns:
        A copy, or the program itself if it has no such results.
    """
    if not any(any(_aliases(one)) for one in all_editors(GraphEditor(program))):
        return program
    copied = copy_program(program)
    for editor in all_editors(GraphEditor(copied)):
        with editor.transaction("own-results"):
            results, output = results_of_graph(editor.program.graph_module), editor.graph.output_node()
            for place in list(_aliases(editor)):
                results[place] = editor.call(_CLONE, (results[place],), before=output, origins=results[place])
            editor.rewire(output, (tuple(results),))
    return copied


def _aliases(editor: GraphEditor) -> Iterator[int]:
    """Yield the places of the results of a graph that need a copy."""
    results = results_of_graph(editor.program.graph_module)
    is_body = isinstance(editor, SubgraphEditor)
    specs = [] if is_body else editor.program.graph_signature.output_specs
    for place, result in enumerate(results):
        if not isinstance(result, Node) or not isinstance(result.meta.get("val"), torch.Tensor):
            continue
        if is_body:
            if result.op == "placeholder" or result in results[:place]:
                yield place
        elif specs[place].kind is OutputKind.BUFFER_MUTATION and result.op == "placeholder":
            yield place
