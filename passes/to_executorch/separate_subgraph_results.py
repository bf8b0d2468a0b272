"""Results of branches, and what loops carry, get memory of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import COND, SCAN, WHILE, ControlFlowCall, GraphEditor, bodies_of, control_flow_call, results_of_graph
from exirkit.passes.contract import Pass

from .inserted_copies import insert_clone


@dataclass(eq=False, kw_only=True)
class SeparateBodyResults(Pass):
    """Copy results of bodies that have to be computed into a given place, where they are something else as well.

    The branches of a `cond` compute their results right into the memory of the result, so that none may be an input, a
    constant or another result. What a loop carries is copied from round to round, one after the other, so that a result
    may be anything but what the round began with, unless that stays in its place.

    Args:
        skip_dim_order: Introduce no operators of `dim_order_ops`.

    Before: the branch `return (%x, %sin, %sin)`
    After: `%c = _clone_dim_order(%x)`; `%c_1 = _clone_dim_order(%sin)`; `return (%c, %sin, %c_1)`
    """

    name = "separate-body-results"
    requires = ("mutations-written-back",)
    ensures = ("body-results-separate",)
    invalidates = ("dim-orders-agree", "specs", "bounded-shapes")

    skip_dim_order: bool = False

    def edit(self, editor: GraphEditor) -> None:
        """Insert the copies into all bodies, at any depth."""
        calls = {body: call for node in editor.graph.nodes if (call := control_flow_call(node)) for body in call.bodies}
        for body in bodies_of(editor):
            call = calls.get(body.program.graph_module)
            if call is not None:
                with body.transaction(self.name, records_effect=False):
                    self._separate(body, call)
            self.edit(body)

    def _separate(self, body: GraphEditor, call: ControlFlowCall) -> None:
        output = body.graph.output_node()
        results = results_of_graph(body.program.graph_module)
        shared = _shared_results(body, call, results)
        if not shared:
            return
        for place in shared:
            clone = insert_clone(body, results[place], output, skip_dim_order=self.skip_dim_order)
            if clone.meta.get("debug_handle") is None and "debug_handle" in call.node.meta:
                # What an input of the body comes from has no handle; the call is what the copy is made for.
                body.set_meta(clone, "debug_handle", call.node.meta["debug_handle"])
            results[place] = clone
        body.rewire(output, (tuple(results),))


def _shared_results(body: GraphEditor, call: ControlFlowCall, results: list[Any]) -> list[int]:
    """Return the places of the results of a body that need a copy."""
    inputs = body.graph.find_nodes(op="placeholder")
    found = []
    for place, result in enumerate(results):
        if not isinstance(result, Node) or not isinstance(result.meta.get("val"), torch.Tensor):
            continue
        if call.kind == COND:
            needs_copy = result.op != "call_function" or result in results[:place]
        else:
            is_carried = call.kind in (SCAN, WHILE) and body.program.graph_module is call.body
            carried = inputs[: len(call.carried)] if is_carried else []
            needs_copy = result in carried and (place >= len(carried) or result is not carried[place])
        if needs_copy:
            found.append(place)
    return found
