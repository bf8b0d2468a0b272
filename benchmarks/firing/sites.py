"""What is counted: building blocks of models, and the places where they stand."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

CONCEPTS: dict[str, str] = {
    "attention": "attention without a mask",
    "attention, masked": "attention with a mask",
    "attention, causal": "attention with a causal mask, or that is told to be causal",
    "attention, grouped": "attention in which several heads of queries share a head of keys",
    "attention, scaled operand": "attention whose query or key is scaled before the scores are computed",
    "rotary": "rotary positions",
    "RMS norm": "RMS norm",
    "layer norm": "layer norm",
    "group norm": "group norm",
    "GELU": "GELU by the error function",
    "GELU, tanh": "GELU approximated by a hyperbolic tangent",
    "SiLU": "SiLU",
    "hardswish": "hardswish",
    "hardsigmoid": "hardsigmoid",
    "mish": "mish",
    "GLU": "GLU",
    "SwiGLU": "an activation of one linear layer times another (SwiGLU, GEGLU)",
    "linear + activation": "a linear layer and the activation of its result",
    "conv + activation": "a convolution, and a batch norm behind it, and the activation of the result",
    "conv + batch norm": "a convolution and the batch norm of its result",
    "pixel shuffle": "pixel shuffle",
    "squeeze and excite": "the mean over height and width in a squeeze-and-excite block",
}
"""Names of what is counted, with what they mean."""


@dataclass(frozen=True, order=True)
class Site:
    """One place in a model.

    Attributes:
        concept: A key of `CONCEPTS`.
        path: Module in which it is called, as `layers.0.mlp`; several calls have several equal sites.
    """

    concept: str
    path: str


def family(concept: str) -> str:
    """Return what the rules of a concept find: the kinds of attention are one."""
    return concept.partition(",")[0] if concept.startswith("attention") else concept


def is_around(outer: str, inner: str) -> bool:
    """Return whether a module is another or contains it."""
    return not outer or inner == outer or inner.startswith(outer + ".")


def missed(sites: Counter[Site], found: Counter[Site]) -> Counter[Site]:
    """Return the sites that were not found.

    A rule is found where its last operator stands, which may be a module inside of the one that calls the block, or
    around it: what is left after equal paths are paired is paired along these.

    Args:
        sites: What the model has, by the oracle.
        found: Where rules fired, or the operator stands; only the families of the concepts count.
    """
    left: Counter[Site] = Counter(sites)
    spare: Counter[tuple[str, str]] = Counter()
    for site, count in found.items():
        spare[family(site.concept), site.path] += count
    for site in sorted(left):
        key = (family(site.concept), site.path)
        taken = min(left[site], spare[key])
        left[site] -= taken
        spare[key] -= taken
    for site in sorted(left):
        for key in sorted(spare):
            is_near = key[0] == family(site.concept) and (is_around(key[1], site.path) or is_around(site.path, key[1]))
            taken = min(left[site], spare[key]) if is_near else 0
            left[site] -= taken
            spare[key] -= taken
    return +left
