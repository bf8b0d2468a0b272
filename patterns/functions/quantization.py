"""Words about quantised values: what the operator that makes one says of scale, zero point and limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.fx import Node

from exirkit.patterns.syntax.undecided import compare

from .graph import GraphFacts
from .words import word

_NAMESPACE = "quantized_decomposed."
_SCALES, _ZERO_POINTS = ("scale", "scales"), ("zero_point", "zero_points")


def _quantization(facts: GraphFacts, x: Any) -> tuple[str, Mapping[str, Any]]:
    name, arguments = facts.call_behind(x)
    if not name.startswith(_NAMESPACE) or "quantize" not in name:
        raise TypeError(f"a value that is quantised or dequantised is needed here, not one of {name or 'an input'}")
    return name, arguments


@word(needs_facts=True)
def qparams(facts: GraphFacts, x: Any) -> list[Any]:
    """Scale, zero point, least and greatest integer of a value that is quantised or dequantised."""
    _, arguments = _quantization(facts, x)
    scale = next((arguments[key] for key in _SCALES if key in arguments), None)
    zero_point = next((arguments[key] for key in _ZERO_POINTS if key in arguments), None)
    return [scale, zero_point, arguments.get("quant_min"), arguments.get("quant_max")]


@word(needs_facts=True)
def same_q(facts: GraphFacts, a: Any, b: Any) -> Any:
    """Whether two values are quantised alike: kind, scale, zero point, limits and axis."""
    (first, _), (second, _) = _quantization(facts, a), _quantization(facts, b)
    if first.rpartition("quantize_")[2] != second.rpartition("quantize_")[2]:
        return False
    alike = [
        one is other if isinstance(one, Node) or isinstance(other, Node) else compare("==", one, other)
        for one, other in zip([*qparams(facts, a), _axis(facts, a)], [*qparams(facts, b), _axis(facts, b)], strict=True)
    ]
    return all(one is True for one in alike)


def _axis(facts: GraphFacts, x: Any) -> Any:
    return _quantization(facts, x)[1].get("axis")


@word(needs_facts=True)
def per_channel(facts: GraphFacts, x: Any) -> bool:
    """Whether a value is quantised or dequantised channel by channel."""
    return "per_channel" in _quantization(facts, x)[0]


@word(needs_facts=True)
def q_range(facts: GraphFacts, x: Any) -> list[Any]:
    """Least and greatest integer of a value that is quantised or dequantised."""
    return qparams(facts, x)[2:]
