"""Choices of `to_executorch` that follow from a seed, so that campaigns try all of them together."""

from __future__ import annotations

import functools
import random
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from exirkit.ir import catalogue

from .compilers import ExirkitCompiler

_AS_GIVEN = 0.4
"""Share of the seeds with the choices that most users make, which is none."""

_MOST_DRAWS = 60

_POOLS = """\
policy: 1
pools: [{name: sram, limit: 512, priority: 1}, {name: dram}]
"""
_PLACED = """\
policy: 1
pools: [{name: first, alignment: 64}, {name: second}]
rules: [{kind: output, pool: second}, {kind: intermediate, nbytes: {at_most: 64}, pool: second}]
"""


def drawn_choices(compiler: ExirkitCompiler, seed: int, unusual: Collection[str] = ()) -> ExirkitCompiler:
    """Return our chain with the choices of a seed instead of the usual ones.

    Args:
        compiler: Level, pipeline, rules and passes stay as they are.
        seed: Not negative.
        unusual: Names of choices that shall not be the usual ones, as far as a few draws give that.
    """
    for turn in range(_MOST_DRAWS if unusual else 1):
        draw = random.Random(f"choices {seed}:{turn}" if turn else f"choices {seed}")
        drawn = {} if draw.random() < _AS_GIVEN else _drawn(draw)
        made = replace(compiler, **drawn)
        if all(name in drawn and drawn[name] != getattr(compiler, name) for name in unusual):
            break
    return made


def _drawn(draw: random.Random) -> dict[str, Any]:
    return {
        "planner": draw.choice(("portfolio", "portfolio", "greedy", "naive")),
        "alloc_graph_input": draw.random() < 0.5,
        "alloc_graph_output": draw.random() < 0.5,
        "in_place": draw.random() < 0.5,
        "schedule": draw.random() < 0.25,
        "alignment": draw.choice((16, 16, 8, 64)),
        "share_mutable_buffers": draw.random() < 0.25,
        "separate_methods": draw.random() < 0.25,
        "memory_policy": draw.choice((None, None, None, _POOLS, _PLACED)),
        "remove_view_copy": draw.random() < 0.5,
        "skip_dim_order": draw.random() < 0.1,
        "kernels": "official" if draw.random() < 0.5 else "any",
        "variation": draw.randrange(1 << 16) if draw.random() < 0.4 else None,
        "run_reinplace_pass": draw.random() < 0.2,
        "do_quant_fusion_and_const_prop": draw.random() < 0.2,
        "optimize_for": "size" if draw.random() < 0.2 else "speed",
        "search": draw.choice((5, 20)) if draw.random() < 0.2 else 0,
        "emit_stacktrace": draw.random() < 0.1,
        "constant_tensor_alignment": draw.choice((None, None, None, 32, 64)),
        "reinplace_extra_ops": _drawn_operators(draw) if draw.random() < 0.2 else (),
    }


def _drawn_operators(draw: random.Random) -> tuple[str, ...]:
    """Return a half of the operators whose kernels may write over an argument."""
    return tuple(name for name in _overwriting() if draw.random() < 0.5)


@functools.cache
def _overwriting() -> tuple[str, ...]:
    return tuple(sorted(name for name, facts in catalogue().items() if facts.in_place))


def unusual_choices(compiler: ExirkitCompiler) -> list[str]:
    """Return the names of the choices that are drawn and are not the usual ones."""
    usual = ExirkitCompiler()
    named = _drawn(random.Random(0))
    return [name for name in named if getattr(compiler, name) != getattr(usual, name)]


def simpler_choices(compiler: ExirkitCompiler) -> Iterator[ExirkitCompiler]:
    """Yield our chain with fewer of the choices that can be drawn: with none of them first, then without each."""
    usual = ExirkitCompiler()
    others = {name: getattr(usual, name) for name in unusual_choices(compiler)}
    if len(others) > 1:
        yield replace(compiler, **others)
    for name, value in others.items():
        yield replace(compiler, **{name: value})
