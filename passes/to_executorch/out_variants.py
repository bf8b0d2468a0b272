"""Operators write their results into tensors that they are given; the table of out variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from exirkit.ir import (
    DefinedOperator,
    Diagnostic,
    EdgeOpOverload,
    GraphEditor,
    Location,
    ModelError,
    TensorSpec,
    UsageError,
    alloc,
    find_out_variant,
    has_trait,
    is_pure,
    locate,
    ops,
    underlying,
)
from exirkit.passes.contract import Pass

from .asserts import is_assertion

OutVariant = OpOverload | DefinedOperator


@dataclass(frozen=True)
class OutVariantTable:
    """Finds out variants.

    Attributes:
        overrides: Out variants that are given, by operator.
    """

    overrides: Mapping[Any, OutVariant] = field(default_factory=dict)

    def find(self, target: Any) -> OutVariant | None:
        """Return the out variant of an operator or edge handle, or None where there is none."""
        op = underlying(target)
        return self.overrides.get(op) or _derived(op)

    def with_overrides(self, given: Mapping[str, str]) -> OutVariantTable:
        """Return a table in which some operators have other out variants.

        Args:
            given: Names of overloads (`library.name.out`) by names of operators (`library.name.default`).

        Raises:
            UsageError: EK436, a name is not an operator, or the overload does not take what the operator gives it.
        """
        if not given:
            return self
        found = {_operator(name): (name, other) for name, other in given.items()}
        made = {op: _checked(op, name, other) for op, (name, other) in found.items()}
        return OutVariantTable({**self.overrides, **made})


@cache
def _derived(op: Any) -> OutVariant | None:
    return find_out_variant(op)


def missing_out_variants(program: ExportedProgram, table: OutVariantTable | None = None) -> list[Diagnostic]:
    """List the calls of an Edge program whose operators have no out variant.

    Calls that lowering removes (assertions and what is computed for them alone) or turns into primitives of the runtime
    (arithmetic on sizes) are not among them.

    Args:
        program: A program of the Edge dialect.
        table: Out variants; those that schemas state when absent.

    Returns:
        A finding EK435 for each call, in graph order.
    """
    table = table or OutVariantTable()
    candidates = [node for node in program.graph.nodes if _needs_variant(node, table)]
    if not candidates:
        return []
    live = _live(program.graph)
    return [no_out_variant(node) for node in candidates if node in live]


def no_out_variant(node: Node) -> Diagnostic:
    """Return the finding EK435 for a call."""
    return Diagnostic(
        code="EK435",
        message=f"operator {underlying(node.target).name()} has no out variant",
        location=locate(node),
        expected="an overload that takes the same arguments and one `Tensor(a!) out` per result",
        hint="register one in the operator's library, or decompose the operator before lowering",
    )


def _needs_variant(node: Node, table: OutVariantTable) -> bool:
    target = node.target
    return (
        node.op == "call_function"
        and isinstance(target, EdgeOpOverload)
        and not has_trait(target, "returns_number")
        and not isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool | int | float)
        and table.find(target) is None
    )


def _live(graph: Graph) -> set[Node]:
    """Return the nodes that are still there when assertions are gone."""
    pending = [node for node in graph.nodes if not is_pure(node) and not is_assertion(node)]
    live = set(pending)
    while pending:
        for producer in pending.pop().all_input_nodes:
            if producer not in live:
                live.add(producer)
                pending.append(producer)
    return live


def _operator(name: str) -> Any:
    parts = name.split(".")
    if len(parts) != 3:
        raise _wrong(
            f"{name!r} is not the name of an operator", expected="library.name.overload, such as aten.add.Tensor"
        )
    found: Any = ops.edge
    try:
        for part in parts:
            found = getattr(found, part)
    except (UsageError, AttributeError) as error:
        notes = (str(error).splitlines()[0],)
        raise _wrong(f"there is no operator {name}", notes=notes, hint="import the library that registers it") from None
    return underlying(found)


def _checked(op: Any, name: str, other: str) -> OutVariant:
    """Return the overload of an override after an examination the two schemas."""
    found: OutVariant = _operator(other)
    results = len(op._schema.returns)
    outs = [argument for argument in found._schema.arguments if argument.is_out]
    if len(outs) != results:
        raise _wrong(
            f"{other} writes into {len(outs)} tensors, and {name} returns {results}",
            expected="one `Tensor(a!) out` for each result",
        )
    given = {argument.name: str(argument.type) for argument in op._schema.arguments}
    for argument in _plain(found):
        if argument.name not in given and not argument.has_default_value():
            raise _wrong(f"{other} needs the argument {argument.name!r}, which {name} does not have")
        kind, wanted = str(argument.type), given.get(argument.name)
        if wanted is not None and wanted != kind:
            raise _wrong(f"the argument {argument.name!r} of {other} is a {kind}, that of {name} a {wanted}")
    return found


def _plain(op: OutVariant) -> Iterator[Any]:
    return (argument for argument in op._schema.arguments if not argument.is_out)


def _wrong(message: str, location: Location | None = None, **more: Any) -> UsageError:
    return UsageError(Diagnostic(code="EK436", message=message, location=location or Location(), **more))


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
