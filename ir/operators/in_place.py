"""Which arguments an operator may overwrite with its result, read from `in_place.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import torch
import yaml
from pydantic import BaseModel, ConfigDict, Field
from torch.fx import Node

from exirkit.ir.tensor_spec import TensorSpec

from .edge_operators import underlying

_OperatorName = Annotated[str, Field(pattern=r"^\w+::\w+\.\w+$")]


class InPlaceTable(BaseModel):
    """What the file says.

    Attributes:
        in_place: Version of the form: 1.
        operators: For each operator and each of its results that may do so, the arguments it may overwrite.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    in_place: Literal[1]
    operators: dict[_OperatorName, dict[str, tuple[str, ...]]]


@cache
def in_place_table() -> InPlaceTable:
    """Return the table of in-place operators."""
    text = files(__package__ or "exirkit.ir").joinpath("in_place.yaml").read_text(encoding="utf-8")
    return InPlaceTable.model_validate(yaml.safe_load(text))


def overwritable_arguments(name: str) -> Mapping[str, tuple[str, ...]]:
    """Return, for each result of an operator, the arguments it may overwrite.

    Args:
        name: Such as `aten::add.out`.
    """
    return in_place_table().operators.get(name, {})


def out_operator_name(target: object) -> str:
    """Return the name of the operator behind a graph target, such as `aten::add.out`; empty if there is none."""
    schema = getattr(underlying(target), "_schema", None)
    if not isinstance(schema, torch.FunctionSchema):
        return ""
    return f"{schema.name}.{schema.overload_name}"


def has_form_of(argument: TensorSpec, result: TensorSpec) -> bool:
    """Return whether an argument is laid out like a result in every run: element by element at the same place.

    Sizes must be known: dynamic ones with equal bounds may differ when the program runs.
    """
    return (
        argument.dtype == result.dtype
        and argument.is_static_shape_tensor
        and result.is_static_shape_tensor
        and list(argument.shape) == list(result.shape)
        and list(argument.dim_order) == list(result.dim_order)
    )


def named_arguments(node: Node, schema: torch.FunctionSchema) -> dict[str, Any]:
    """Return what a node passes for each argument of its operator that it gives."""
    given = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False))
    return {**given, **node.kwargs}
