"""Outputs get memory of their own where the caller supplies it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from exirkit.ir import GraphEditor
from exirkit.passes.contract import Pass

from .inserted_copies import insert_clone


@dataclass(eq=False, kw_only=True)
class SeparateOutputs(Pass):
    """Copy an output that is an input, a constant or another output, if inputs or outputs are not planned.

    A value has one place. Where the caller names the place of an output, that output must be nothing else: the
    runtime refuses a place for a constant, and would redirect the input, or the other output, to it. Where both
    inputs and outputs lie in planned memory, such outputs need no copy.

    Args:
        alloc_graph_input: Inputs are planned.
        alloc_graph_output: Outputs are planned.
        skip_dim_order: Introduce no operators of `dim_order_ops`.
    """

    name = "separate-outputs"
    requires = ("mutations-written-back",)
    ensures = ("outputs-separate",)
    invalidates = ("dim-orders-agree", "specs", "bounded-shapes")

    alloc_graph_input: bool = True
    alloc_graph_output: bool = True
    skip_dim_order: bool = False

    def edit(self, editor: GraphEditor) -> None:
        """Insert the copies."""
        if self.alloc_graph_input and self.alloc_graph_output:
            return
        output = editor.graph.output_node()
        results = list(output.args[0])  # type: ignore[arg-type]
        signature = editor.program.graph_signature
        placeholders = editor.graph.find_nodes(op="placeholder")
        is_input = {
            node: spec.kind is InputKind.USER_INPUT
            for node, spec in zip(placeholders, signature.input_specs, strict=True)
        }
        seen: set[Node] = set()
        for index, (value, spec) in enumerate(zip(results, signature.output_specs, strict=True)):
            if spec.kind is not OutputKind.USER_OUTPUT or not _is_tensor(value):
                continue
            needs_own = is_input.get(value, False) or (
                not self.alloc_graph_output and (value in is_input or value in seen)
            )
            seen.add(value)
            if needs_own:
                results[index] = insert_clone(editor, value, output, skip_dim_order=self.skip_dim_order)
        editor.rewire(output, (tuple(results),))


def _is_tensor(value: object) -> bool:
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)
