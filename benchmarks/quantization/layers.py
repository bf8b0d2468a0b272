"""Layers of trained models: whether a damaged one is named first, and which a search leaves in float.

Usage: python -m benchmarks.quantization.layers [MODEL ...] [--tries N]

Each model is trained here on generated data. For the first table it is quantized and one layer is damaged, in each try
another way. For the second its weights get three bits, per tensor and per channel, and the search is to come within a
hundredth of the share of labels that the float model gets right.
"""

from __future__ import annotations

import argparse
import logging
import warnings

import torch
from rich.console import Console
from rich.table import Table

from exirkit.passes import FloatModules, QuantizerPolicy, load_quantizer, quantize_program, search_float_modules

from .damage import damaged, is_named_first
from .trained import KINDS, trained


def named_first(name: str, tries: int) -> int:
    """Return how often of so many tries the report ranks the damaged layer of a model first."""
    one = trained(name)
    samples = one.samples(8, seed=5)
    plain = torch.export.export(one.model, samples[0])
    quantized = quantize_program(plain, "xnnpack", samples, {"per_channel": True})
    return sum(is_named_first(plain, damaged(quantized, seed), samples[:4]) for seed in range(tries))


def weights_of_three_bits() -> QuantizerPolicy:
    """Return a quantizer for activations of 8 and weights of 3 bits."""
    policy = load_quantizer("xnnpack")
    narrow = tuple(way.model_copy(update={"limits": (-3, 3)}) for way in policy.specs["weight"])
    return policy.model_copy(update={"specs": {**policy.specs, "weight": narrow}})


def left_in_float(name: str, *, per_channel: bool) -> tuple[float, float, FloatModules]:
    """Return the accuracy of a float model, of its quantized form, and what a search leaves."""
    one = trained(name)
    samples = one.samples(4, seed=5)
    plain = torch.export.export(one.model, samples[0])
    asked = one.accuracy(one.model) - 0.01
    settings = {"per_channel": per_channel}
    found = search_float_modules(plain, weights_of_three_bits(), samples, asked, settings=settings, metric=one.accuracy)
    return asked + 0.01, found.steps[0].score, found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", choices=[[], *KINDS])
    parser.add_argument("--tries", type=int, default=10)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    table = Table(
        "model", "damaged layer first", "weights", "float", "quantized", "with layers in float", "layers left"
    )
    bad = 0
    for name in options.models or KINDS:
        first = named_first(name, options.tries)
        bad += first < options.tries
        for per_channel in (False, True):
            plain, quantized, found = left_in_float(name, per_channel=per_channel)
            share = f"{found.left} of {found.layers}: {', '.join(found.modules)}"
            scores = [f"{one:.3f}" for one in (plain, quantized, found.score)]
            ways = "per channel" if per_channel else "per tensor"
            table.add_row(name, f"{first} of {options.tries}", ways, *scores, share)
            bad += found.left * 4 > found.layers
    Console(width=150).print(table)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
