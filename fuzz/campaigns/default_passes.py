"""Whether the programs of a campaign give every pass of the default chain something to do."""

from __future__ import annotations

from collections.abc import Mapping

from exirkit.ir import Diagnostic
from exirkit.passes import Pipeline

LEAST_SHARE = 0.005
"""Of all programs: a pass that changes fewer is not tested, and the generator is to blame."""

_PIPELINES = ("to_edge", "legalize", "optimize_1", "optimize_2", "to_executorch")

_BEYOND = frozenset({"free-unbounded"})
"""Passes that work with options that campaigns do not draw: `allow-unbounded`."""


def default_passes() -> tuple[str, ...]:
    """Return the names of the passes of the shipped pipelines through which every program goes, in their order."""
    found: dict[str, None] = {}
    for name in _PIPELINES:
        for stage in (inner for one in Pipeline.shipped(name).stages for inner in one.walk()):
            is_pass = stage.registered is not None or stage.rules is not None
            if is_pass and stage.stage.label not in _BEYOND:
                found[stage.stage.label] = None
    return tuple(found)


def idle_passes(shares: Mapping[str, float], programs: int) -> list[Diagnostic]:
    """Return a finding for each pass of the default chain that changed too few programs.

    Args:
        shares: Of the programs that each pass changed, by its name.
        programs: How many there are.
    """
    few = [(name, shares.get(name, 0.0)) for name in default_passes() if shares.get(name, 0.0) < LEAST_SHARE]
    return [
        Diagnostic.of("EK878", f"pass {name} changed {share:.2%} of {programs:,} programs, less than {LEAST_SHARE:.1%}")
        for name, share in few
    ]
