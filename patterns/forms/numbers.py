"""Forms of pointwise operators: with numbers and tensors, read from the other side, limits, choices by a mask."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import underlying
from exirkit.patterns.operators.arguments import argument_of, canonical_arguments
from exirkit.patterns.syntax.expressions import compare

from .readers import FormReader, Found, Reader, Values, rank_of, recorded, renaming, same

# Numbers and tensors


def _with_number(name: str) -> Reader:
    """A call with a tensor of no dimension is one with a number."""

    def is_number(node: Node) -> bool:
        other = argument_of(node, name)
        return not isinstance(other, Node) or rank_of(other) == 0

    return FormReader(same, is_number, keeps=frozenset({"self", name}))


def _turned(names: tuple[str, str] = ("self", "other")) -> Reader:
    """A difference read from the other side: `rsub(x, c)` is `sub(c, x)`."""

    def read(node: Node) -> Found:
        arguments = dict(canonical_arguments(node))
        left, right = names
        arguments[left], arguments[right] = arguments[right], arguments[left]
        if arguments.get("alpha", 1) == 1:
            yield arguments, ()

    return read


def _is_number_first(node: Node) -> bool:
    return rank_of(argument_of(node, "self")) <= 0


def _multiplies_itself(node: Node) -> bool:
    value = argument_of(node, "self")
    return value is argument_of(node, "other") and isinstance(value, Node)


def _as_square(node: Node) -> Found:
    yield {"self": argument_of(node, "self"), "exponent": 2}, ()


def _is_square(node: Node) -> bool:
    return _is_two(canonical_arguments(node))


def _as_product_with_itself(node: Node) -> Found:
    value = argument_of(node, "self")
    yield {"self": value, "other": value}, ()


def _is_two(arguments: Values) -> bool:
    """Whether an exponent is two; of integers it must be one itself, since results would be floats."""
    exponent, source = arguments.get("exponent", 2), recorded(arguments["self"])
    is_float = source is not None and source.dtype.is_floating_point
    return type(exponent) in (int, float) and exponent == 2 and (type(exponent) is int or is_float)


# Limits


def _limits_of(node: Node) -> tuple[Any, Any, Any, tuple[Node, ...]]:
    """Return what a call limits, its limits, and a further call if one sets each limit."""
    arguments = canonical_arguments(node)
    low = arguments.get("min", arguments.get("min_val"))
    high = arguments.get("max", arguments.get("max_val"))
    if "min" not in arguments and "max" not in arguments and "min_val" not in arguments:
        low, high = 0, 6
    source = arguments["self"]
    if low is None and isinstance(source, Node) and source.op == "call_function" and _is_limit(source):
        inner = canonical_arguments(source)
        if inner.get("max") is None and inner.get("min") is not None:
            return inner["self"], inner["min"], high, (source,)
    return source, low, high, ()


def _is_limit(node: Node) -> bool:
    return underlying(node.target) in (torch.ops.aten.clamp.default, torch.ops.aten.clamp_min.default)


def _limiting(low_name: str, high_name: str) -> Reader:
    """Return a reader of the calls that set two limits."""

    def read(node: Node) -> Found:
        source, low, high, inner = _limits_of(node)
        if low is not None and high is not None:
            yield {"self": source, low_name: low, high_name: high}, inner

    return read


def _limits_what_is_limited(node: Node) -> bool:
    source = argument_of(node, "self")
    return isinstance(source, Node) and source.op == "call_function" and _is_limit(source)


def _as_both_limits(node: Node) -> Found:
    source, low, high, inner = _limits_of(node)
    if inner:
        yield {"self": source, "min": low, "max": high}, inner


further_limits: Reader = FormReader(_as_both_limits, _limits_what_is_limited)
"""Reads two calls that set one limit each as one that sets both."""


def _as_relu6(node: Node) -> Found:
    source, low, high, inner = _limits_of(node)
    if type(low) in (int, float) and type(high) in (int, float) and low == 0 and high == 6:
        yield {"self": source}, inner


def _limits_by(reader: Reader) -> dict[str, Reader]:
    """Return a reader of limits for each operator; those that set both limits at once limit what they are given."""
    whole = FormReader(reader, keeps=frozenset({"self"}))
    return {
        "aten.hardtanh.default": whole,
        "aten.relu6.default": whole,
        "aten.clamp.default": reader,
        "aten.clamp_max.default": reader,
    }


def _squared(node: Node) -> Found:
    yield {"self": argument_of(node, "self")}, ()


def _as_masked_fill(node: Node) -> Found:
    arguments = canonical_arguments(node)
    value, other, mask = arguments["self"], arguments["other"], arguments["condition"]
    source, found = recorded(other), recorded(node)
    is_number = not isinstance(value, Node) or rank_of(value) == 0
    if not is_number or source is None or found is None or source.dtype != found.dtype:
        return
    if compare("==", list(source.shape), list(found.shape)) is True:
        yield {"self": other, "mask": mask, "value": value}, ()


def _as_choice(node: Node) -> Found:
    arguments = canonical_arguments(node)
    source = recorded(arguments["self"])
    if source is not None and source.dtype.is_floating_point:
        yield {"condition": arguments["mask"], "self": arguments["value"], "other": arguments["self"]}, ()


def number_forms() -> dict[str, dict[str, Reader]]:
    """Return the forms of arithmetic with numbers, by the operator that is written."""
    table: dict[str, dict[str, Reader]] = {}
    for base in ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod"):
        table[f"aten.{base}.Tensor"] = {f"aten.{base}.Scalar": same}
        table[f"aten.{base}.Scalar"] = {f"aten.{base}.Tensor": _with_number("other")}
    table["aten.sub.Tensor"] |= {"aten.rsub.Scalar": _turned(), "aten.rsub.Tensor": _turned()}
    table["aten.rsub.Scalar"] = {"aten.sub.Tensor": FormReader(_turned(), _is_number_first)}
    table["aten.pow.Tensor_Tensor"] = {"aten.pow.Tensor_Scalar": same}
    table["aten.pow.Tensor_Scalar"] = {
        "aten.pow.Tensor_Tensor": _with_number("exponent"),
        "aten.mul.Tensor": FormReader(_as_square, _multiplies_itself, keeps=frozenset({"self"})),
        "aten.square.default": renaming(exponent=2),
    }
    table["aten.square.default"] = {
        "aten.mul.Tensor": FormReader(_squared, _multiplies_itself, keeps=frozenset({"self"})),
        "aten.pow.Tensor_Scalar": FormReader(_squared, _is_square, keeps=frozenset({"self"})),
    }
    for met in ("aten.pow.Tensor_Scalar", "aten.square.default"):
        table["aten.mul.Tensor"][met] = FormReader(_as_product_with_itself, _is_square, keeps=frozenset({"self"}))
    return table


def limit_forms() -> dict[str, dict[str, Reader]]:
    """Return the forms of limits, by the operator that is written."""
    return {
        "aten.clamp.default": _limits_by(_limiting("min", "max")),
        "aten.hardtanh.default": _limits_by(_limiting("min_val", "max_val")),
        "aten.relu6.default": _limits_by(_as_relu6),
    }


def choice_forms() -> dict[str, dict[str, Reader]]:
    """Return readers of choices by a mask."""
    return {
        "aten.where.self": {
            "aten.where.ScalarOther": same,
            "aten.where.ScalarSelf": same,
            "aten.masked_fill.Scalar": _as_choice,
            "aten.masked_fill.Tensor": _as_choice,
        },
        "aten.where.ScalarOther": {"aten.where.self": _with_number("other")},
        "aten.where.ScalarSelf": {"aten.where.self": _with_number("self")},
        "aten.masked_fill.Scalar": {"aten.where.self": _as_masked_fill, "aten.where.ScalarSelf": _as_masked_fill},
    }
