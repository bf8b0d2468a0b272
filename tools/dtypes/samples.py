"""One call of every Edge operator, with arguments small enough that all combinations of dtypes can be tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from exirkit.ir import DefinedOperator, ops, returns_view, underlying
from exirkit.verifiers import is_core


@dataclass(frozen=True)
class Tensor:
    """A tensor of these sizes, filled with a number that every dtype holds."""

    sizes: tuple[int, ...]
    fill: int = 1


def t(*sizes: int) -> Tensor:
    return Tensor(sizes)


def zeros(*sizes: int) -> Tensor:
    return Tensor(sizes, 0)


def truth(*sizes: int) -> Tensor:
    return Tensor(sizes)


# Arguments by name that do for most operators.
_USUAL: dict[str, Any] = {
    "dim": 0, "dim0": 0, "dim1": 1, "dims": [1, 0], "size": [2, 3], "index": zeros(2, 3), "k": 1, "repeats": [2, 2],
    "keepdim": False, "half_to_float": False, "p": 0.5, "pad": [1, 1], "dimension": 0, "step": 1, "split_size": 1,
    "split_sizes": [1, 1], "start": 0, "end": 1, "length": 1, "correction": 1, "fill_value": 1, "value": 1, "s": 1,
    "min": 0, "max": 1, "rounding_mode": "floor", "stride": [3, 1],
}  # fmt: skip

_MATRICES = (t(2, 3), t(3, 4))
_IMAGE = t(1, 2, 4, 4)
_NORM = (t(2), t(2))

# Whole calls, positional.
_CALLS: dict[str, tuple[Any, ...]] = {
    "_adaptive_avg_pool2d.default": (_IMAGE, [2, 2]),
    "_adaptive_avg_pool3d.default": (t(1, 2, 4, 4, 4), [2, 2, 2]),
    "adaptive_avg_pool1d.default": (t(1, 2, 4), [2]),
    "_cdist_forward.default": (t(2, 3), t(4, 3), 2.0, None),
    "_embedding_bag.default": (t(4, 3), zeros(3), zeros(2), False, 0, False, t(3)),
    "_native_batch_norm_legit.no_stats": (_IMAGE, *_NORM, True, 0.1, 1e-5),
    "_native_batch_norm_legit_no_training.default": (_IMAGE, *_NORM, *_NORM, 0.1, 1e-5),
    "_upsample_bilinear2d_aa.default": (_IMAGE, [8, 8], False),
    "addmm.default": (t(4), *_MATRICES),
    "arange.start_step": (0, 4, 1),
    "as_strided_copy.default": (t(2, 3), [2], [1]),
    "avg_pool1d.default": (t(1, 2, 4), [2]),
    "avg_pool2d.default": (_IMAGE, [2, 2]),
    "avg_pool3d.default": (t(1, 2, 4, 4, 4), [2, 2, 2]),
    "bmm.default": (t(2, 2, 3), t(2, 3, 4)),
    "cat.default": ([t(2, 3), t(2, 3)], 0),
    "col2im.default": (t(1, 8, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
    "constant_pad_nd.default": (t(2, 3), [1, 1], 1),
    "convolution.default": (_IMAGE, t(3, 2, 3, 3), t(3), [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    "embedding.default": (t(4, 3), zeros(2)),
    "empty_strided.default": ([2, 3], [3, 1]),
    "expand_copy.default": (t(1, 3), [2, 3]),
    "gather.default": (t(2, 3), 0, zeros(2, 3)),
    "grid_sampler_2d.default": (_IMAGE, zeros(1, 2, 2, 2), 0, 0, False),
    "hardtanh.default": (t(2, 3), 0, 1),
    "index.Tensor": (t(2, 3), [zeros(2)]),
    "index_put.default": (t(2, 3), [zeros(2)], t(3)),
    "index_select.default": (t(2, 3), 0, zeros(2)),
    "linear.default": (t(2, 3), t(4, 3), t(4)),
    "max_pool2d_with_indices.default": (_IMAGE, [2, 2]),
    "max_pool3d_with_indices.default": (t(1, 2, 4, 4, 4), [2, 2, 2]),
    "masked_scatter.default": (t(2, 3), truth(2, 3), t(2, 3)),
    "mean.dim": (t(2, 3), [0]),
    "mm.default": _MATRICES,
    "any.dims": (t(2, 3), [0]),
    "amax.default": (t(2, 3), [0]),
    "amin.default": (t(2, 3), [0]),
    "narrow_copy.default": (t(2, 3), 0, 0, 1),
    "native_dropout.default": (t(2, 3), 0.5, True),
    "native_group_norm.default": (t(1, 2, 4), *_NORM, 1, 2, 4, 1, 1e-5),
    "native_layer_norm.default": (t(2, 3), [3], t(3), t(3), 1e-5),
    "pixel_shuffle.default": (t(1, 4, 2, 2), 2),
    "pixel_unshuffle.default": (t(1, 1, 4, 4), 2),
    "permute_copy.default": (t(2, 3), [1, 0]),
    "randperm.default": (4,),
    "reflection_pad1d.default": (t(1, 2, 4), [1, 1]),
    "reflection_pad2d.default": (_IMAGE, [1, 1, 1, 1]),
    "reflection_pad3d.default": (t(1, 2, 4, 4, 4), [1, 1, 1, 1, 1, 1]),
    "replication_pad1d.default": (t(1, 2, 4), [1, 1]),
    "replication_pad2d.default": (_IMAGE, [1, 1, 1, 1]),
    "replication_pad3d.default": (t(1, 2, 4, 4, 4), [1, 1, 1, 1, 1, 1]),
    "repeat_interleave.Tensor": (t(3),),
    "scatter.src": (t(2, 3), 0, zeros(2, 3), t(2, 3)),
    "scatter.value": (t(2, 3), 0, zeros(2, 3), 1),
    "scatter_add.default": (t(2, 3), 0, zeros(2, 3), t(2, 3)),
    "scatter_reduce.two": (t(2, 3), 0, zeros(2, 3), t(2, 3), "sum"),
    "select_copy.int": (t(2, 3), 0, 0),
    "select_scatter.default": (t(2, 3), t(3), 0, 0),
    "slice_scatter.default": (t(2, 3), t(1, 3), 0, 0, 1),
    "squeeze_copy.dims": (t(1, 3), [0]),
    "sum.dim_IntList": (t(2, 3), [0]),
    "t_copy.default": (t(2, 3),),
    "unfold_copy.default": (t(2, 3), 0, 1, 1),
    "upsample_bilinear2d.vec": (_IMAGE, [8, 8], False, None),
    "upsample_nearest2d.vec": (_IMAGE, [8, 8], None),
    "var.correction": (t(2, 3), [0]),
    "var.dim": (t(2, 3), [0]),
    "view_copy.default": (t(2, 3), [3, 2]),
    "where.self": (truth(2, 3), t(2, 3), t(2, 3)),
    "stack.default": ([t(2, 3), t(2, 3)], 0),
    "roll.default": (t(2, 3), [1], [0]),
    "glu.default": (t(2, 4), 0),
    "masked_fill.Scalar": (t(2, 3), truth(2, 3), 1),
    "tril.default": (t(3, 3),),
    "_pdist_forward.default": (t(3, 2), 2.0),
}  # fmt: skip

# Not core, but preserved on demand, left over, or made by passes, and known to the runtime.
_MORE = (
    "max.default", "min.default", "full_like.default", "var_mean.correction", "unfold_copy.default", "linear.default",
    "pixel_shuffle.default", "pixel_unshuffle.default", "stack.default", "roll.default", "glu.default", "silu.default",
    "masked_fill.Scalar", "tril.default", "_upsample_bilinear2d_aa.default", "repeat_interleave.Tensor", "any.default",
    "all.default", "floor_divide.default", "hardswish.default", "hardsigmoid.default", "softplus.default",
    "log_softmax.int", "softmax.int", "leaky_relu.default", "mish.default", "logit.default", "selu.default",
    "celu.default", "rsub.Scalar", "minimum.default", "expm1.default", "prod.int_out", "zeros_like.default",
    "ones_like.default", "rand_like.default", "randn_like.default", "empty_like.default", "sum.default",
    "argmax.default", "isfinite.default", "signbit.default", "square.default", "frac.default", "lerp.Tensor",
    "addcmul.default", "addcdiv.default", "logaddexp.default", "hypot.default", "copysign.Tensor", "nextafter.default",
)  # fmt: skip

# Training, sparse and nested tensors, complex numbers, and what only makes views: no part of Edge programs.
_LEFT_OUT = (
    "backward", "sparse", "nested", "_fft", "complex", "view_as_real", "_conj", "_neg_view", "dual", "_primal",
    "indices_copy", "values_copy", "autograd", "sym_", "lift_fresh", "_reshape_alias", "_local_scalar_dense", "_assert",
    "mkldnn", "quantize", "_test",
)  # fmt: skip


def operators() -> Mapping[str, OpOverload | DefinedOperator]:
    """Return the operators to try, by their names in the catalogue."""
    found: dict[str, OpOverload | DefinedOperator] = {}
    for qualified in torch._C._dispatch_get_all_op_names():
        namespace, _, name = qualified.partition("::")
        if namespace == "aten" and not any(part in name for part in _LEFT_OUT):
            base, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
            short = f"{base}.{overload or 'default'}"
            if not isinstance(op, OpOverload) or op._schema.is_mutable or returns_view(op):
                continue
            if is_core(op) or short in _MORE:
                found[f"aten.{short}"] = op
    for name in ("_to_dim_order_copy", "_clone_dim_order", "_empty_dim_order"):
        found[f"dim_order_ops.{name}.default"] = underlying(getattr(ops.edge.dim_order_ops, name).default)
    return dict(sorted(found.items()))


def sample_call(op: OpOverload | DefinedOperator) -> dict[str, Any]:
    """Return the arguments of a call by name; numbers for `Scalar`s are given later, and dtypes not at all."""
    name = op._schema.name.partition("::")[2]
    known = _CALLS.get(f"{name}.{op._overloadname}")
    if known is not None:
        return {argument.name: value for argument, value in zip(op._schema.arguments, known, strict=False)}
    call: dict[str, Any] = {}
    for argument in op._schema.arguments:
        kind = str(argument.real_type)
        if kind == "Optional[Tensor]" or (kind == "Tensor" and argument.name != "index"):
            call[argument.name] = t(2, 3)
        elif argument.name in _USUAL and (not argument.has_default_value() or argument.name in ("min", "max")):
            call[argument.name] = _USUAL[argument.name]
        elif kind == "number" and not argument.has_default_value():
            call[argument.name] = 1
    return call
