"""Operators write their results into tensors that they are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from exirkit.ir import (
    DefinedOperator,
    Diagnostic,
    EdgeOpOverload,
    GraphEditor,
    ModelError,
    TensorSpec,
    alloc,
    underlying,
)
from exirkit.passes.contract import Pass

from .out_variants import OutVariantTable, no_out_variant


@dataclass(eq=False, kw_only=True)
class ConvertToOutVariants(Pass):
    """Replace each edge operator by its out variant, with an `alloc` in front of it for every tensor that it returns.

    The alloc and the operator carry the same spec. A list of results is given as a list of allocs. Arguments that say
    what kind of tensor to make (dtype, layout, device) are dropped where the out variant does not take them.

    Args:
        ignore_missing: Keep an operator that has no out variant as it is; only a runtime that knows the
            operator under that name can run it.
        overrides: Names of overloads that write their results (`library.name.out`), by names of operators.

    Raises:
        UsageError: EK436, an override names what does not exist or does not fit.

    Before: `%add = edge.aten.add.Tensor(%x, %y)`
    After: `%alloc = alloc(((2, 3), torch.float32))`; `%add = aten.add.out(%x, %y, out=%alloc)`
    """

    name = "convert-to-out-variants"
    enters_bodies = True
    requires = ("specs", "bounded-shapes")
    ensures = ("out-variants",)
    invalidates = ("edge-operators", "out-variants-known")

    ignore_missing: bool = False
    overrides: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._table = OutVariantTable().with_overrides(self.overrides)

    def edit(self, editor: GraphEditor) -> None:
        """Replace the operators.

        Raises:
            ModelError: EK435, for each operator that has no out variant; nothing is changed then.
        """
        missing: list[Diagnostic] = []
        found: list[tuple[Node, OpOverload | DefinedOperator]] = []
        for node in editor.graph.nodes:
            if node.op != "call_function" or not isinstance(node.target, EdgeOpOverload):
                continue
            variant = self._table.find(node.target)
            if variant is None:
                missing.append(no_out_variant(node))
            else:
                found.append((node, variant))
        if missing and not self.ignore_missing:
            raise ModelError(missing)
        for node, op in found:
            _convert(editor, node, op)
        if missing:
            for node in editor.graph.nodes:
                if isinstance(node.target, EdgeOpOverload):
                    editor.retarget(node, underlying(node.target), val=node.meta["val"])


def _convert(editor: GraphEditor, node: Node, op: OpOverload | DefinedOperator) -> None:
    given = _by_name(node)
    allocs = _allocs(editor, node)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for place, argument in enumerate(op._schema.arguments):
        if argument.is_out:
            kwargs[argument.name] = allocs if isinstance(argument.type, torch.ListType) else allocs.pop(0)
        elif argument.name in given:
            if argument.kwarg_only or len(args) < place:
                # A default before it was left out, so it can only go by name.
                kwargs[argument.name] = given[argument.name]
            else:
                args.append(given[argument.name])
    editor.retarget(node, op, args, kwargs, val=node.meta["val"])


def _allocs(editor: GraphEditor, node: Node) -> list[Node | None]:
    """Make the allocs of a node, with None for a result that it leaves out."""
    spec, value = node.meta["spec"], node.meta["val"]
    if isinstance(spec, list):
        return [one and _alloc(editor, one, example, node) for one, example in zip(spec, value, strict=True)]
    return [_alloc(editor, spec, value, node)]


def _alloc(editor: GraphEditor, spec: TensorSpec, value: Any, node: Node) -> Node:
    made = editor.call(alloc, ((tuple(spec.shape), spec.dtype),), before=node, origins=node, val=value)
    editor.set_meta(made, "spec", spec)
    return made


def _by_name(node: Node) -> dict[str, Any]:
    """Return the arguments of a call by their names in the schema."""
    schema = underlying(node.target)._schema
    named = {argument.name: value for argument, value in zip(schema.arguments, node.args, strict=False)}
    return {**named, **node.kwargs}
