"""Constant methods: plans that have values and no instructions."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from exirkit.emit.schema import Chain, ContainerMetadata, EValue, ExecutionPlan
from exirkit.ir import Diagnostic, Location, TensorSpec, UsageError

from .constants import ConstantPool
from .containers import container_text
from .values import constant_member, tensor_value


def constant_method(name: str, value: Any, constants: ConstantPool) -> ExecutionPlan:
    """Return the plan of a method that returns a constant.

    Args:
        name: Name of the method.
        value: Number, text, dtype, tensor, or a container of these; leaves become outputs in order.
        constants: Where tensors are stored.

    Raises:
        UsageError: EK555, a leaf is of another type.
    """
    leaves, spec = pytree.tree_flatten(value)
    values = [EValue(val=_member(name, leaf, constants)) for leaf in leaves]
    return ExecutionPlan(
        name=name,
        container_meta_type=ContainerMetadata(encoded_inp_str="", encoded_out_str=container_text(spec)),
        values=values,
        outputs=list(range(len(values))),
        chains=[Chain()],
        non_const_buffer_sizes=[0],
    )


def _member(name: str, leaf: Any, constants: ConstantPool) -> Any:
    if isinstance(leaf, torch.Tensor):
        spec = TensorSpec.from_tensor(leaf, const=True)
        data = constants.add(leaf, spec.dim_order, name)
        return tensor_value(spec, data_buffer_idx=data, is_planned=False)
    member = constant_member(leaf)
    if member is None:
        raise UsageError(
            Diagnostic(
                code="EK555",
                message=f"constant method {name} returns a {type(leaf).__name__}",
                location=Location(method=name, text=repr(leaf)[:160]),
                expected="integers, floats, truth values, texts, dtypes, tensors, None, or containers of these",
            )
        )
    return member
