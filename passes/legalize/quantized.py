"""Calls of quantized operators whose arguments the kernels of runtimes do not take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.fx import Node

from exirkit.ir import (
    QUANTIZED_SCHEMAS,
    GraphEditor,
    dim_order_from_stride,
    is_quantization,
    named_arguments,
    ops,
    split_arguments,
    underlying,
)
from exirkit.passes.analysis import StoredValues
from exirkit.passes.contract import Pass

from .edge_calls import EdgeCalls

_DOUBLES: Final = {"scale": torch.float64, "zero_point": torch.int64}
_DOUBLE_LISTS: Final = {"scales": torch.float64, "zero_points": torch.int64}
_WANTED: Final[dict[str, dict[str, torch.dtype]]] = {
    "quantize_per_tensor.tensor": _DOUBLES,
    "quantize_per_channel": _DOUBLE_LISTS,
    "quantize_per_token": _DOUBLE_LISTS,
    "dequantize_per_tensor.tensor": _DOUBLES,
    "choose_qparams.tensor": {"input": torch.float32},
    "choose_qparams_per_token_asymmetric": {"input": torch.float32},
    "_choose_qparams_per_token_asymmetric_impl": {"input": torch.float32},
    "embedding_byte": {"indices": torch.int64},
    "embedding_byte.dtype": {"indices": torch.int64},
}
"""The dtype that a kernel asks of an argument, by operators of `quantized_decomposed`."""

_ZERO_POINTS_OF_32_BITS: Final = frozenset({"dequantize_per_channel", "dequantize_per_token"})
"""Operators whose kernels take zero points of int32 and int64."""


class LegalizeQuantized(Pass):
    """Cast what kernels of quantized operators do not take, since they end the process instead of reporting an error.

    Scales become float64 and zero points int64 where a kernel takes nothing else, which changes no value: the kernels
    round them to float32. What is stored is stored as the other dtype. Numbers of bfloat16 are quantized, and made of
    quantized ones, as float32. A tensor that is quantized by channels is laid out row by row, because the kernel
    counts its elements in memory.

    Before: `%q = quantize_per_channel.default(%x, %scales_f32, %zeros, 0, -128, 127, torch.int8)`
    After: `%q = quantize_per_channel.default(%x, %scales_f64, %zeros, 0, -128, 127, torch.int8)`
    """

    name = "legalize-quantized"
    enters_subgraphs = True
    requires = ("edge-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Rewrite the calls, in graph order."""
        calls = [node for node in editor.graph.nodes if is_quantization(node.target) and _operator(node)]
        if not calls:
            return
        stored = StoredValues(editor.program)
        made: dict[tuple[Node, torch.dtype], Node] = {}
        for node in calls:
            self._legalize(EdgeCalls(editor, node), editor, stored, made)
        unused = [source for source in dict.fromkeys(source for source, _ in made) if not source.users]
        if unused:
            editor.remove_inputs(unused)

    def _legalize(
        self, calls: EdgeCalls, editor: GraphEditor, stored: StoredValues, made: dict[tuple[Node, torch.dtype], Node]
    ) -> None:
        node = calls.node
        given = named_arguments(node)
        wanted = dict(_casts(node, given))
        for name, dtype in wanted.items():
            source = given[name]
            constant = stored.tensor(source)
            if constant is None:
                given[name] = calls.cast(source, dtype)
                continue
            if (source, dtype) not in made:
                made[source, dtype] = editor.add_constant(constant.to(dtype), name=source.name, origins=source)
            given[name] = made[source, dtype]
        if _counts_in_memory(node, given):
            rank = given["input"].meta["val"].dim()
            copy = ops.edge.dim_order_ops._clone_dim_order.default
            given["input"] = calls(copy, given["input"], dim_order=list(range(rank)))
            wanted["input"] = torch.float32
            order = dim_order_from_stride(node.meta["val"].stride(), node.meta["val"].shape)
            if order != list(range(rank)):
                # Callers get the result as it lay.
                args, kwargs = split_arguments(underlying(node.target), given)
                editor.replace(node, calls(copy, calls(node.target, *args, **kwargs), dim_order=order))
                editor.erase(node)
                return
        result = node.meta["val"]
        if isinstance(result, torch.Tensor) and result.dtype is torch.bfloat16:
            name = "output_dtype" if "output_dtype" in given else "out_dtype"
            args, kwargs = split_arguments(underlying(node.target), {**given, name: torch.float32})
            editor.replace(node, calls.cast(calls(node.target, *args, **kwargs), torch.bfloat16))
            editor.erase(node)
        elif wanted:
            editor.rewire(node, *split_arguments(underlying(node.target), given))


def _operator(node: Node) -> str:
    """Return the name of the quantized operator that a node calls, without library; empty if it calls none."""
    name = getattr(underlying(node.target), "name", None)
    full = str(name()) if node.op == "call_function" and callable(name) else ""
    return full.partition("::")[2] if full in QUANTIZED_SCHEMAS else ""


def _casts(node: Node, given: dict[str, Any]) -> Iterator[tuple[str, torch.dtype]]:
    """Yield the arguments of a call that need another dtype."""
    name = _operator(node)
    wanted = dict(_WANTED.get(name, {}))
    if name.startswith("quantize_") and given["input"].meta["val"].dtype is torch.bfloat16:
        wanted["input"] = torch.float32
    if name.startswith("embedding") and given.get("weight_zero_points") is not None:
        # The kernel reads both as what the result is.
        wanted |= dict.fromkeys(("weight_scales", "weight_zero_points"), node.meta["val"].dtype)
    if name in _ZERO_POINTS_OF_32_BITS and given.get("zero_points") is not None:
        is_taken = given["zero_points"].meta["val"].dtype in (torch.int32, torch.int64)
        wanted |= {} if is_taken else {"zero_points": torch.int32}
    for argument, dtype in wanted.items():
        if given[argument].meta["val"].dtype is not dtype:
            yield argument, dtype


def _counts_in_memory(node: Node, given: dict[str, Any]) -> bool:
    """Whether the input of a call has another layout than its kernel reads."""
    if _operator(node) != "quantize_per_channel":
        return False
    value = given["input"].meta["val"]
    return list(dim_order_from_stride(value.stride(), value.shape)) != list(range(value.dim()))
