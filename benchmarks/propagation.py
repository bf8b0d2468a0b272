"""Layouts chosen by a minimum cut against the official XNNPACK layout pass, and against conversion around every call.

Usage: python -m benchmarks.propagation [MODEL ...] [--json FILE] [--propagation FILE]

Models are the vision models of the zoo, or MODULE:FACTORY of any other, where FACTORY returns a model and its inputs.
Each is lowered by the official exporter to Edge; the official pass and the propagation get the same program. Counted
are conversions and the elements that they move; stored tensors, which both convert while lowering, are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from exirkit.passes import PropagationPass

VISION = ("tests.models.families.vision", "tests.models.families.vision_blocks")
LEFT_OUT = ("encoder", "pictures", "conv_norm", "double_conv")


@dataclass
class Figures:
    """What one model needs.

    Attributes:
        nodes: Calls in its Edge program.
        ours: Conversions of the propagation, and the elements that they move.
        official: Conversions of the official pass, likewise; None if it fails.
        around: Conversions around every call, likewise.
        seconds: Processor time of the propagation, and of the official pass.
        error: Largest difference of the results from eager, over the largest value.
    """

    nodes: int
    ours: tuple[int, int]
    official: tuple[int, int] | None
    around: tuple[int, int]
    seconds: tuple[float, float]
    error: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="models to measure; all vision models of the zoo when absent")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--propagation", default="layout.channels-last", help="what to measure")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    known = zoo()
    figures: dict[str, Figures] = {}
    for name in options.models or known:
        figures[name] = measured(known[name] if name in known else named(name), options.propagation)
        print(name, asdict(figures[name]), file=sys.stderr)
        if options.json:
            options.json.write_text(json.dumps({key: asdict(one) for key, one in figures.items()}, indent=1))
    report(figures)
    return int(any(one.official is not None and one.ours[1] > one.official[1] for one in figures.values()))


def zoo() -> dict[str, Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]]]:
    """Return the vision models of the zoo by name."""
    found: dict[str, Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]]] = {}
    for module in map(import_module, VISION):
        for name, one in vars(module).items():
            if name not in LEFT_OUT and getattr(one, "__module__", "") == module.__name__ and not isinstance(one, type):
                found[name] = _of_zoo(one)
    return found


def _of_zoo(build: Callable[[], Any]) -> Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]]:
    def made() -> tuple[torch.nn.Module, tuple[Any, ...]]:
        method = build().methods["forward"]
        return method.module.eval(), tuple(method.calls[0].args)

    return made


def named(name: str) -> Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]]:
    """Return the factory that `MODULE:FACTORY` names."""
    module, _, factory = name.partition(":")
    made: Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]] = getattr(import_module(module), factory)
    return made


def measured(factory: Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]], propagation: str) -> Figures:
    """Run both passes on the Edge program of a model."""
    from executorch.backends.xnnpack._passes import FuseBatchNormPass, XNNPACKPassManager
    from executorch.exir import EdgeCompileConfig, to_edge

    from exirkit.bridge import edge_from_official

    torch.manual_seed(0)
    model, inputs = factory()
    with torch.no_grad():
        exported = torch.export.export(model, inputs)
        config = EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True)
        official = to_edge(exported, compile_config=config).exported_program()
        # As in the official list of passes: no batch norm is left between a convolution and what follows.
        official = XNNPACKPassManager(official, [FuseBatchNormPass]).transform()
        ours = edge_from_official(official).exported_program("forward")
        one = PropagationPass(propagation)
        start = time.process_time()
        made, _ = one.apply(ours)
        middle = time.process_time()
        theirs = official_conversions(official)
        seconds = (middle - start, time.process_time() - middle)
        error = largest_error(made.module()(*inputs), model(*inputs))
    assert one.report is not None
    nodes = sum(node.op == "call_function" for node in ours.graph.nodes)
    found = (one.report.conversions, one.report.cost)
    return Figures(nodes, found, theirs, one.report.around_every_call, seconds, error)


def official_conversions(program: Any) -> tuple[int, int] | None:
    """Return how many conversions the official pass inserts, and the elements that they move; None if it fails."""
    from executorch.backends.xnnpack._passes.channels_last_tagged_reshape_pass import ChannelsLastTaggedReshapePass
    from executorch.exir.dialects._ops import ops

    before = set(program.graph_module.graph.nodes)
    try:
        result = ChannelsLastTaggedReshapePass(program)(program.graph_module)
    except (AssertionError, KeyError) as error:
        print(f"the official pass fails: {type(error).__name__}: {error}", file=sys.stderr)
        return None
    stored = {*program.graph_signature.inputs_to_parameters, *program.graph_signature.inputs_to_buffers}
    copies = [
        node
        for node in result.graph_module.graph.nodes
        if node.target is ops.edge.aten._to_copy.default and node not in before and "memory_format" in node.kwargs
    ]
    copies = [node for node in copies if node.args[0].name not in stored]
    return len(copies), sum(node.meta["val"].numel() for node in copies)


def largest_error(found: Any, expected: Any) -> float:
    """Return the largest difference of any result, over the largest value."""
    pairs = zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected), strict=True)
    return max(float((one - other).abs().max() / other.abs().max().clamp(min=1e-9)) for one, other in pairs)


def report(figures: dict[str, Figures]) -> None:
    """Print a table, and the geometric means of the ratios."""
    table = Table(
        "model", "calls", "ours", "official", "around every call", "elements / official", "/ around", "error", "s"
    )
    for name, one in figures.items():
        theirs = "fails" if one.official is None else f"{one.official[0]}: {one.official[1]:,}"
        ratio = None if one.official is None else ratio_of(one.ours[1], one.official[1])
        table.add_row(
            name, str(one.nodes), f"{one.ours[0]}: {one.ours[1]:,}", theirs, f"{one.around[0]}: {one.around[1]:,}",
            "" if ratio is None else f"{ratio:.3f}", f"{ratio_of(one.ours[1], one.around[1]):.3f}", f"{one.error:.1e}",
            f"{one.seconds[0]:.2f} / {one.seconds[1]:.2f}",
        )  # fmt: skip
    Console(width=160).print(table)
    ratios = [ratio_of(one.ours[1], one.official[1]) for one in figures.values() if one.official is not None]
    less = [one for one in ratios if one < 1]
    if ratios:
        print(f"elements against the official pass: {mean(ratios):.3f}; where it can be less: {mean(less or [1]):.3f}")


def ratio_of(one: int, other: int) -> float:
    """Return a ratio; 1 if both are nothing."""
    return one / other if other else 1.0 if one == other else math.inf


def mean(ratios: list[float]) -> float:
    """Return the geometric mean; nothing at all counts as a thousandth."""
    return statistics.geometric_mean([max(one, 1e-3) for one in ratios])


if __name__ == "__main__":
    raise SystemExit(main())
