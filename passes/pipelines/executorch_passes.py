"""The passes that turn an Edge program into one of the ExecuTorch dialect, in their order."""

from __future__ import annotations

from exirkit.passes.contract import Pass
from .pipeline import Pipeline


def to_executorch_passes(
    *,
    alloc_graph_input: bool = True,
    alloc_graph_output: bool = True,
    remove_view_copy: bool = True,
    skip_dim_order: bool = False,
    ignore_to_out_var_failure: bool = False,
) -> list[Pass]:
    """Return the passes from Edge to the ExecuTorch dialect; memory is planned after them.

    They are those of the shipped pipeline `to_executorch`.

    Args:
        alloc_graph_input: Inputs will be planned.
        alloc_graph_output: Outputs will be planned.
        remove_view_copy: Let reshaping copies share the memory of their source.
        skip_dim_order: Introduce no operators of `dim_order_ops` to make layouts agree.
        ignore_to_out_var_failure: Keep operators without out variant as they are.
    """
    return Pipeline.shipped("to_executorch").passes(
        {
            "alloc-graph-input": alloc_graph_input,
            "alloc-graph-output": alloc_graph_output,
            "remove-view-copy": remove_view_copy,
            "skip-dim-order": skip_dim_order,
            "ignore-missing-out-variants": ignore_to_out_var_failure,
        }
    )
