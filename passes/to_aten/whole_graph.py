"""torch's own decomposition, for programs that cannot be decomposed node by node: it traces the whole graph again."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram, default_decompositions
from torch.fx import Graph, Node

from exirkit.ir import (
    GraphEditor,
    ModelError,
    OpOverload,
    alias_root,
    control_flow_call,
    copy_program,
    locate,
    use_lazy_graph_module,
)
from exirkit.passes.analysis import is_kept_whole
from exirkit.passes.config.lowering_config import Overload
from exirkit.passes.contract import registered
from exirkit.passes.to_edge.edge_operators import LiftConstants
from exirkit.passes.user_passes.base import ExportedProgramPassBase, ExportedProgramPassResult

from .alias_families import is_in_place
from .decompose_to_core import DecomposeToCore, beyond_core, is_library_composite
from .own_results import with_own_results


@dataclass(eq=False)
class DecomposeWholeGraph(ExportedProgramPassBase):
    """Have torch trace and decompose the whole program.

    Args:
        preserve: Operators that stay whole.
    """

    name = "decompose-whole-graph"
    # torch states the size of some views wrongly when it exports them, and rightly when it traces them again.
    changes_outputs = True

    preserve: frozenset[Overload] = frozenset()

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Return another program; what is given stays as it is.

        Raises:
            ModelError: EK427, a branch or the body of a loop writes to what it is given, which torch would forget.
        """
        _reject_written_operands(exported_program.graph)
        if exported_program.graph.find_nodes(op="get_attr"):
            # torch finds tensors that hang on the module, and forgets where it has put them.
            exported_program = copy_program(exported_program)
            LiftConstants().run(GraphEditor(exported_program))
        exported_program = with_own_results(exported_program)
        table: dict[Any, Callable[..., Any]] = default_decompositions()
        table.update(beyond_core())
        whole = {node.target for node in exported_program.graph.nodes if is_kept_whole(node)}
        libraries = {op for op in table if isinstance(op, OpOverload) and is_library_composite(op)}
        for op in (*self.preserve, *whole, *libraries):
            table.pop(op, None)
        # Nothing calls the graphs in between, so no code is generated for them.
        with use_lazy_graph_module(True), warnings.catch_warnings():
            # torch warns of its own internals here, and there is nothing a caller could do about it.
            warnings.simplefilter("ignore")
            made = exported_program.run_decompositions(table)
        if whole:
            # Of the operators that were left, other calls are to be decomposed after all.
            DecomposeToCore(self.preserve).run(GraphEditor(made))
        return ExportedProgramPassResult(made, True)


def _reject_written_operands(graph: Graph) -> None:
    for call in filter(None, map(control_flow_call, graph.nodes)):
        for body in call.subgraphs:
            for node in body.graph.nodes:
                written = node.args[0] if is_in_place(node) and node.args else None
                if isinstance(written, Node) and alias_root(written).op == "placeholder":
                    raise ModelError(
                        code="EK427",
                        message="a body writes to an operand, in a program that torch has to decompose as a whole",
                        location=locate(node),
                    )
            _reject_written_operands(body.graph)


REGISTERED = registered(DecomposeWholeGraph, ensures=("core-operators", "functional"), invalidates=())
