"""The table of out variants: derived from schemas, with overrides as data; what is missing is listed in one go."""

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
    Location,
    UsageError,
    find_out_variant,
    has_trait,
    is_pure,
    locate,
    ops,
    underlying,
)

from .remove_asserts import is_assertion

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
            UsageError: EK436, a name is no operator, or the overload does not take what the operator gives it.
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
    """Return the overload of an override after a look at the two schemas."""
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
