"""The passes that turn an Edge program into one of the ExecuTorch dialect, in their order."""

from __future__ import annotations

from exirkit.ir import GraphEditor

from .bound_symbolic_shapes import BoundSymbolicShapes
from .contract import Pass, PassReport, run_passes
from .convert_to_out_variants import ConvertToOutVariants
from .eliminate_views import EliminateViews
from .legalize_dim_order import LegalizeDimOrder
from .lower_symbolic_arithmetic import LowerSymbolicArithmetic
from .lowering_config import ExecutorchBackendConfig
from .memory import MemoryPlanningPass
from .propagate_specs import PropagateSpecs
from .remove_asserts import RemoveAsserts
from .separate_outputs import SeparateOutputs
from .write_back_mutations import WriteBackMutations


def to_executorch_passes(
    *,
    alloc_graph_input: bool = True,
    alloc_graph_output: bool = True,
    remove_view_copy: bool = True,
    skip_dim_order: bool = False,
    ignore_to_out_var_failure: bool = False,
) -> list[Pass]:
    """Return the passes from Edge to the ExecuTorch dialect; memory is planned after them.

    Args:
        alloc_graph_input: Inputs will be planned.
        alloc_graph_output: Outputs will be planned.
        remove_view_copy: Let reshaping copies share the memory of their source.
        skip_dim_order: Introduce no operators of `dim_order_ops` to make layouts agree.
        ignore_to_out_var_failure: Keep operators without out variant as they are.
    """
    return [
        WriteBackMutations(skip_dim_order=skip_dim_order),
        SeparateOutputs(
            alloc_graph_input=alloc_graph_input,
            alloc_graph_output=alloc_graph_output,
            skip_dim_order=skip_dim_order,
        ),
        # After all that inserts copies, which have to agree in layout as well.
        LegalizeDimOrder(skip_dim_order=skip_dim_order),
        # Before arithmetic is lowered, because what only an assertion computes needs no primitive.
        RemoveAsserts(),
        LowerSymbolicArithmetic(),
        # From here on specs say what values are; no pass may change a value any more.
        PropagateSpecs(),
        BoundSymbolicShapes(),
        *([EliminateViews(alloc_graph_output=alloc_graph_output)] if remove_view_copy else []),
        ConvertToOutVariants(ignore_to_out_var_failure=ignore_to_out_var_failure),
    ]


def lower_to_executorch(
    editor: GraphEditor,
    config: ExecutorchBackendConfig,
    planner: MemoryPlanningPass,
    *,
    skip_dim_order: bool = False,
) -> list[PassReport]:
    """Lower the editor's Edge program to the ExecuTorch dialect.

    Args:
        editor: Owns the program, which is changed.
        config: Choices of the caller.
        planner: Says whether inputs and outputs will be planned.
        skip_dim_order: Introduce no operators of `dim_order_ops` to make layouts agree.

    Raises:
        ModelError: EK431 to EK435, what cannot be lowered.
    """
    passes = to_executorch_passes(
        alloc_graph_input=planner.alloc_graph_input,
        alloc_graph_output=planner.alloc_graph_output,
        remove_view_copy=config.remove_view_copy,
        skip_dim_order=skip_dim_order,
        ignore_to_out_var_failure=config.to_out_var_pass.ignore_to_out_var_failure,
    )
    return run_passes(editor, passes)
