"""The operators that out variants stand for, so that their results can be inferred without the memory they fill."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch._ops import OpOverload
from torch.fx import Node

from exirkit.ir import DefinedOperator, defined_operator, underlying
from exirkit.verifiers.graph.call_arguments import arguments_by_name

_KIND_OF_TENSOR = frozenset({"dtype", "layout", "device", "pin_memory", "memory_format"})
"""Arguments that say what kind of tensor to make; where `out` is given it says that itself."""


def twin_call(node: Node) -> tuple[Any, tuple[Any, ...], dict[str, Any], bool]:
    """Return what to run to learn the value of a call: operator, arguments, and whether its dtype is to be trusted.

    The operator is None for an out variant that stands for nothing known.
    """
    op = underlying(node.target)
    if not isinstance(op, OpOverload | DefinedOperator) or not _is_out_variant(op):
        return node.target, node.args, dict(node.kwargs), True
    twin = functional_twin(op)
    if twin is None:
        return None, (), {}, False
    given = arguments_by_name(node)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for place, argument in enumerate(twin._schema.arguments):
        if argument.name not in given:
            continue
        if argument.kwarg_only or len(args) < place:
            kwargs[argument.name] = given[argument.name]
        else:
            args.append(given[argument.name])
    lost = {argument.name for argument in twin._schema.arguments} - {argument.name for argument in op._schema.arguments}
    return twin, tuple(args), kwargs, "dtype" not in lost


@cache
def functional_twin(op: Any) -> Any:
    """Return the operator that computes what an out variant writes, or None.

    It takes the same arguments, save the out arguments and what these say themselves, and returns as many results.
    """
    if isinstance(op, DefinedOperator):
        return defined_operator(op._schema.name)
    wanted = _arguments(op)
    for name in op.overloadpacket.overloads():
        one = getattr(op.overloadpacket, name)
        if one._schema.is_mutable or _is_out_variant(one) or not _agree_in_results(one, op):
            continue
        found = _arguments(one)
        if (
            all(found.get(each) == kind for each, kind in wanted.items())
            and set(found) - set(wanted) <= _KIND_OF_TENSOR
        ):
            return one
    return None


def _agree_in_results(functional: Any, writing: Any) -> bool:
    # Variants that fill a list of tensors return nothing.
    return not writing._schema.returns or len(functional._schema.returns) == len(writing._schema.returns)


def _arguments(op: Any) -> dict[str, str]:
    return {one.name: str(one.real_type) for one in op._schema.arguments if not one.is_out}


@cache
def _is_out_variant(op: Any) -> bool:
    return any(argument.is_out for argument in op._schema.arguments)
