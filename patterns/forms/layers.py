"""Forms of whole layers: softmax, norms, pooling, convolutions, products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.fx import Node

from exirkit.ir import underlying
from exirkit.patterns.operators.arguments import canonical_arguments
from exirkit.patterns.operators.table import OperatorTable
from exirkit.patterns.syntax.expressions import compare

from .products import linear_forms, product_forms
from .readers import FormReader, Found, Reader, rank_of, recorded, renaming, when

# Softmax, norms, pooling, convolution, casts


def _as_whole_softmax(node: Node) -> Found:
    arguments = canonical_arguments(node)
    if arguments["half_to_float"] is False:
        yield {"self": arguments["self"], "dim": arguments["dim"], "dtype": None}, ()


def _as_core_softmax(node: Node) -> Found:
    arguments = canonical_arguments(node)
    found = recorded(arguments["self"])
    if found is not None and arguments["dtype"] in (None, found.dtype) and found.dtype.is_floating_point:
        yield {"self": arguments["self"], "dim": arguments["dim"], "half_to_float": False}, ()


def _first_of(target: str, names: Mapping[str, str], **added: Any) -> Reader:
    """Return a reader of the first result of a call."""
    op = OperatorTable().find(target)

    def is_first(node: Node) -> bool:
        base, index = node.args
        is_call = isinstance(base, Node) and base.op == "call_function"
        return is_call and type(index) is int and index == 0 and underlying(node.all_input_nodes[0].target) is op

    def read(node: Node) -> Found:
        base = node.args[0]
        assert isinstance(base, Node), "the quick look asks"
        arguments = canonical_arguments(base)
        yield {**{new: arguments[old] for new, old in names.items()}, **added}, (base,)

    return FormReader(read, is_first, of=target)


_POOLING = ("self", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
_NORM = {"input": "input", "normalized_shape": "normalized_shape", "weight": "weight", "bias": "bias", "eps": "eps"}
_BATCH = {name: name for name in ("input", "weight", "bias", "running_mean", "running_var", "momentum", "eps")}
_GROUP = {"input": "input", "num_groups": "group", "weight": "weight", "bias": "bias", "eps": "eps"}
_CONV = ("input", "weight", "bias", "stride", "padding", "dilation")


def _as_mean(node: Node) -> Found:
    arguments = canonical_arguments(node)
    rank = rank_of(arguments["self"])
    if arguments["output_size"] in (1, [1], [1, 1]) and rank >= 2:
        yield {"self": arguments["self"], "dim": [rank - 2, rank - 1], "keepdim": True, "dtype": None}, ()


def _as_pooling_to_one(node: Node) -> Found:
    arguments = canonical_arguments(node)
    rank, dims, found = rank_of(arguments["self"]), arguments["dim"], recorded(arguments["self"])
    is_plain = arguments["keepdim"] is True and arguments["dtype"] in (None, found.dtype if found is not None else None)
    if rank in (3, 4) and is_plain and isinstance(dims, list) and sorted(dims) == [rank - 2, rank - 1]:
        yield {"self": arguments["self"], "output_size": [1, 1]}, ()


def _spread(value: Any, rank: int) -> Any:
    return value * rank if isinstance(value, list) and len(value) == 1 else value


def _as_convolution(rank: int) -> Reader:
    def read(node: Node) -> Found:
        arguments = canonical_arguments(node)
        values = {name: arguments[name] for name in _CONV}
        if isinstance(values["padding"], str) or rank_of(values["input"]) != rank + 2:
            return
        for name in ("stride", "padding", "dilation"):
            values[name] = _spread(values[name], rank)
        values["output_padding"] = _spread(arguments.get("output_padding", [0] * rank), rank)
        yield {**values, "transposed": "output_padding" in arguments, "groups": arguments["groups"]}, ()

    return read


def _from_convolution(rank: int, is_transposed: bool) -> Reader:
    def read(node: Node) -> Found:
        arguments = canonical_arguments(node)
        fits = arguments["transposed"] is is_transposed and rank_of(arguments["input"]) == rank + 2
        plain = is_transposed or not any(arguments["output_padding"])
        if fits and plain:
            values = {name: _spread(arguments[name], rank) for name in _CONV}
            values["groups"] = arguments["groups"]
            if is_transposed:
                values["output_padding"] = _spread(arguments["output_padding"], rank)
            yield values, ()

    return read


def norm_forms() -> dict[str, dict[str, Reader]]:
    """Return the forms of softmax and norms, by the operator that is written."""
    layer, batch = "aten.native_layer_norm.default", "aten._native_batch_norm_legit_no_training.default"
    group = "aten.native_group_norm.default"
    return {
        "aten.softmax.int": {"aten._softmax.default": _as_whole_softmax},
        "aten._softmax.default": {"aten.softmax.int": _as_core_softmax},
        "aten.log_softmax.int": {"aten._log_softmax.default": _as_whole_softmax},
        "aten._log_softmax.default": {"aten.log_softmax.int": _as_core_softmax},
        "aten.layer_norm.default": {"getitem": _first_of(layer, _NORM, cudnn_enable=True)},
        layer: {"aten.layer_norm.default": renaming(_NORM)},
        "aten.batch_norm.default": {"getitem": _first_of(batch, _BATCH, training=False, cudnn_enabled=True)},
        "aten.group_norm.default": {"getitem": _first_of(group, _GROUP, cudnn_enabled=True)},
        batch: {"aten.batch_norm.default": when(lambda values: values["training"] is False, renaming(_BATCH))},
    }


def pooling_forms() -> dict[str, dict[str, Reader]]:
    """Return the forms of pooling and convolutions, by the operator that is written."""
    convolution: dict[str, Reader] = {}
    table: dict[str, dict[str, Reader]] = {
        "aten.convolution.default": convolution,
        "aten.mean.dim": {"aten.adaptive_avg_pool2d.default": _as_mean},
        "aten.adaptive_avg_pool2d.default": {"aten.mean.dim": _as_pooling_to_one},
    }
    names = {name: name for name in _POOLING}
    for rank in (2, 3):
        pool, indexed = f"aten.max_pool{rank}d.default", f"aten.max_pool{rank}d_with_indices.default"
        table[pool], table[indexed] = {"getitem": _first_of(indexed, names)}, {pool: renaming(names)}
    for rank in (1, 2, 3):
        transposed = f"aten.conv_transpose{rank}d.{'input' if rank > 1 else 'default'}"
        for written in (f"aten.conv{rank}d.default", transposed):
            convolution[written] = _as_convolution(rank)
            table[written] = {"aten.convolution.default": _from_convolution(rank, written == transposed)}
    return table


_MULTIPLYING = ("aten.mm.default", "aten.bmm.default", "aten.view.default", "aten.view_copy.default",
                "aten._unsafe_view.default", "aten.reshape.default")  # fmt: skip


def _of_rank(rank: int, second: str) -> Reader:
    """Products of matrices of one rank, without broadcasting."""

    def read(node: Node) -> Found:
        arguments = canonical_arguments(node)
        left, right = recorded(arguments["self"]), recorded(arguments["other"])
        if left is None or right is None or left.dim() != rank or right.dim() != rank:
            return
        if rank == 2 or compare("==", left.shape[0], right.shape[0]) is True:
            yield {"self": arguments["self"], second: arguments["other"]}, ()

    return read


def matrix_forms() -> dict[str, dict[str, Reader]]:
    """Return the forms of products of matrices, by the operator that is written."""
    return {
        "aten.matmul.default": dict.fromkeys(_MULTIPLYING, product_forms),
        "aten.bmm.default": {"aten.matmul.default": _of_rank(3, "mat2")},
        "aten.mm.default": {"aten.matmul.default": _of_rank(2, "mat2")},
        "aten.linear.default": dict.fromkeys(("aten.addmm.default", *_MULTIPLYING), linear_forms),
    }
