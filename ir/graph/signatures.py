"""Bringing a program's signature in line with its graph, by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, Node

from exirkit.ir.diagnostics import ContractError, Diagnostic

from .metadata import same_argument

TO_USER_INPUT = frozenset({OutputKind.USER_INPUT_MUTATION, OutputKind.GRADIENT_TO_USER_INPUT})

_ARGUMENT_OF: tuple[tuple[type, Any], ...] = (
    (torch.Tensor, TensorArgument),
    (torch.SymInt, SymIntArgument),
    (torch.SymFloat, SymFloatArgument),
    (torch.SymBool, SymBoolArgument),
)

_Spec = TypeVar("_Spec", InputSpec, OutputSpec)


def input_specs_by_node(graph: Graph, specs: Sequence[InputSpec]) -> dict[Node, InputSpec]:
    """Return the spec of each placeholder.

    Raises:
        ContractError: EK113, there are more of one than of the other.
    """
    placeholders = graph.find_nodes(op="placeholder")
    _check_number("inputs", len(placeholders), len(specs))
    return dict(zip(placeholders, specs, strict=True))


def agreed_inputs(graph: Graph, specs: Sequence[InputSpec]) -> list[InputSpec]:
    """Return input specs with the names of the placeholders; a spec that agrees already is itself.

    Raises:
        ContractError: EK113, there are more or fewer placeholders.
    """
    nodes = input_specs_by_node(graph, specs)
    return [
        spec if spec.arg.name == node.name else replace(spec, arg=replace(spec.arg, name=node.name))
        for node, spec in nodes.items()
    ]


def agreed_outputs(graph: Graph, specs: Sequence[OutputSpec], renamed: Mapping[str, str]) -> list[OutputSpec]:
    """Return output specs that say what the graph returns; a spec that agrees already is itself.

    Args:
        graph: The graph.
        specs: Output specs as they were.
        renamed: New names of renamed inputs, by old name.

    Raises:
        ContractError: EK113, the graph returns more or fewer values.
    """
    results: Any = graph.output_node().args[0]
    if not isinstance(results, list | tuple):
        results = (results,)
    _check_number("outputs", len(results), len(specs))
    agreed = []
    for spec, result in zip(specs, results, strict=True):
        target = spec.target
        if target is not None and spec.kind in TO_USER_INPUT:
            target = renamed.get(target, target)
        arg = _argument(spec.arg, result)
        agreed.append(spec if arg is spec.arg and target == spec.target else replace(spec, arg=arg, target=target))
    return agreed


def _argument(arg: ArgumentSpec, result: Any) -> ArgumentSpec:
    if not isinstance(result, Node):
        if isinstance(arg, ConstantArgument) and same_argument(arg.value, result):
            return arg
        return ConstantArgument(name="", value=result)
    value = result.meta.get("val")
    wanted = next((kind for type_, kind in _ARGUMENT_OF if isinstance(value, type_)), None)
    if wanted is not None and not isinstance(arg, wanted):
        return wanted(name=result.name)  # type: ignore[no-any-return]
    return arg if arg.name == result.name else replace(arg, name=result.name)


def _check_number(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise ContractError(
            Diagnostic(
                code="EK113",
                message=f"the graph has {found} {what}, the signature of its program {wanted}",
                hint="add and remove stored tensors by add_constant and remove_input of the editor",
            )
        )


def scalar_key(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """Return a key that is equal for one-element tensors of equal dtype, shape and bytes; None for other tensors."""
    if tensor.numel() != 1 or type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return None
    if tensor.is_quantized or tensor.device.type != "cpu":
        return None
    # A single element is contiguous with any stride, but seen as bytes only with stride 1.
    data = tensor.resolve_conj().resolve_neg().contiguous().reshape(1).as_strided((1,), (1,)).view(torch.uint8)
    return (tensor.dtype, tuple(tensor.shape), bytes(data.tolist()))


def as_stored(old: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as the program stores it for an old one: a parameter stays a parameter."""
    if not isinstance(old, torch.nn.Parameter) or isinstance(tensor, torch.nn.Parameter):
        return tensor
    has_gradient = old.requires_grad and (tensor.is_floating_point() or tensor.is_complex())
    return torch.nn.Parameter(tensor.detach(), requires_grad=has_gradient)
