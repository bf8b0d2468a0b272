"""A pass on generated programs and models: what it changes, and what it leaves alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch.export import ExportedProgram

from exirkit.bridge.against import AgainstBench
from exirkit.bridge.against.subjects import Subject
from exirkit.bridge.official_edge import officially_lowered
from exirkit.fuzz import CampaignConfig, GraphFailedError, GraphSession
from exirkit.ir import called_graphs

from .sites import Site, sites_of


@dataclass
class Observations:
    """What was seen of a pass.

    Attributes:
        sites: Places that it has changed, by their operators and connections.
        programs: How many programs it was given ...
        changed: ... how many of them it changed ...
        wrong: ... and how many of these have other results afterwards, or made it raise.
        unclear: Changed programs in which no site was found that a rule could describe.
        untouched: Programs that it left alone, for what they say about its conditions.
    """

    sites: dict[str, list[Site]] = field(default_factory=dict)
    programs: int = 0
    changed: int = 0
    wrong: int = 0
    unclear: int = 0
    untouched: list[ExportedProgram] = field(default_factory=list)


def observe(
    target: str, *, seeds: int, models: Sequence[str] = (), progress: Callable[[str], None] = lambda _: None
) -> Observations:
    """Run a pass on programs, and collect what it changes.

    Args:
        target: `MODULE:CLASS`, as for `exirkit fuzz --against`.
        seeds: How many programs; models are the first of them.
        models: `MODULE:FACTORY` of models.
        progress: Called with what is being done.

    Raises:
        ModelError: EK863, there is no such pass.
        UsageError: EK766, EK767, the pass or a model cannot be used.
    """
    bench = AgainstBench(CampaignConfig(against=(target,), models=tuple(models)))
    (comparison,) = bench.comparisons
    seen = Observations()
    for seed in range(seeds):
        progress(f"program {seed + 1} of {seeds}")
        subject = bench.subject(bench.make(seed).program)
        try:
            with torch.no_grad():
                exported = dict(subject.exported)
                before = officially_lowered(exported) if comparison.is_on_edge else exported
        except Exception:
            # A program that the official exporter does not take says nothing about the pass.
            continue
        for method, program in before.items():
            if method in subject.inputs and len(list(called_graphs(program.graph_module))) == 1:
                _observe_method(seen, subject, method, program, comparison.theirs)
    return seen


def _observe_method(
    seen: Observations,
    subject: Subject,
    method: str,
    program: ExportedProgram,
    run: Callable[[ExportedProgram], ExportedProgram],
) -> None:
    seen.programs += 1
    try:
        with torch.no_grad():
            after = run(program)
    except Exception:
        seen.wrong += 1
        return
    if _calls(after) == _calls(program):
        seen.untouched.append(program)
        return
    seen.changed += 1
    inputs = subject.inputs[method][0]
    try:
        results = [GraphSession(after).run(inputs)]
        if next(subject.failures("the pass", method, results), None) is not None:
            seen.wrong += 1
            return
        found = list(itertools.islice(sites_of(program, after, inputs), 8))
    except (GraphFailedError, KeyError, ValueError):
        # No kernel for an operator of the target, or a signature that does not fit.
        seen.unclear += 1
        return
    seen.unclear += not found
    for site in found:
        seen.sites.setdefault(site.skeleton, []).append(site)


def _calls(program: ExportedProgram) -> list[str]:
    return [f"{node.target}{node.args}{node.kwargs}" for node in program.graph.nodes if node.op == "call_function"]
