"""Which modules to leave in float, so that a quantized model is accurate enough and costs little more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.export import ExportedProgram

from exirkit.ir import Diagnostic, ModelError, UsageError, module_path
from exirkit.passes.quantizer.annotating import CARRIED, Annotator
from exirkit.passes.quantizer.model import ModuleSelector, QuantizerPolicy, load_quantizer
from exirkit.passes.quantizer.torchao_quantizer import with_numbers_as_tensors

from .quantizing import Sample, quantize_program
from .report import QuantizationReport, quantization_report

Metric = Callable[[Callable[..., Any]], float]
"""Says how good a model is, more being better: it is called with a function that takes what the model takes."""

CostModel = Callable[[ExportedProgram], float]
"""Says what a quantized program costs, less being better."""


@dataclass(frozen=True)
class SearchStep:
    """One module that was left in float.

    Attributes:
        module: Its path; None for the program as the quantizer makes it.
        score: What the metric says with it, or the signal to noise of the worst result in decibels.
        cost: What the program costs with it.
    """

    module: str | None
    score: float
    cost: float


@dataclass(frozen=True)
class FloatModules:
    """What a search found.

    Attributes:
        policy: The quantizer that leaves these modules.
        modules: Their paths.
        layers: How many calls the quantizer quantizes if it leaves none of them.
        left: How many of these it leaves.
        score: What the metric says, or the signal to noise of the worst result in decibels.
        cost: What the program costs.
        steps: All that was tried, in order.
    """

    policy: QuantizerPolicy
    modules: tuple[str, ...]
    layers: int
    left: int
    score: float
    cost: float
    steps: tuple[SearchStep, ...]


def stored_bytes(program: ExportedProgram) -> float:
    """Return how many bytes the weights of a program take."""
    signature = program.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    # What no call reads is not stored in a file: float weights that were quantized.
    used = {names[node.name] for node in program.graph.nodes if node.name in names and node.users}
    tensors = {**program.constants, **program.state_dict}
    return float(sum(tensors[name].numel() * tensors[name].element_size() for name in used))


def search_float_modules(
    program: ExportedProgram,
    quantizer: QuantizerPolicy | str | Path,
    samples: Iterable[Sample],
    at_least: float,
    *,
    settings: Mapping[str, bool] | None = None,
    metric: Metric | None = None,
    cost: CostModel = stored_bytes,
    limit: float = math.inf,
) -> FloatModules:
    """Find modules to leave in float until a quantized model is as accurate as asked.

    Modules are left one by one: each time the one whose noise on the results is largest for what leaving it costs. In
    the end those are quantized again without which the model is accurate enough.

    Args:
        program: The float program.
        quantizer: A policy, a file, or the name of one that comes with exirkit: `xnnpack`.
        samples: Inputs, for calibration and to measure with.
        at_least: The accuracy that is asked: of the metric, or signal to noise of the worst result in decibels.
        settings: Choices of the quantizer by name.
        metric: How good a model is; signal to noise if absent.
        cost: What a quantized program costs: `stored_bytes`, or another function.
        limit: The most that the program may cost.

    Raises:
        ModelError: EK419, no choice of modules is accurate enough within the limit; EK417, EK438 to EK440, EK469 and
            EK477 as of `quantize_program` and `quantization_report`.
        UsageError: EK418, a sample does not fit the program; EK440, EK479 as of `data_quantizer`; EK420, the metric did
            not return a number.
        OSError: The file cannot be read.
    """
    policy = quantizer if isinstance(quantizer, QuantizerPolicy) else load_quantizer(quantizer)
    search = _Search(program, policy, list(samples), dict(settings or {}), metric, cost)
    return search.run(at_least, limit)


class _Search:
    def __init__(
        self,
        program: ExportedProgram,
        policy: QuantizerPolicy,
        samples: Sequence[Sample],
        settings: Mapping[str, bool],
        metric: Metric | None,
        cost: CostModel,
    ) -> None:
        self.program, self.policy, self.samples, self.settings = program, policy, samples, settings
        self.metric, self.cost = metric, cost
        module = with_numbers_as_tensors(program.module(check_guards=False), policy.numbers)
        plan = Annotator(policy, settings).plan(module)
        layers = [one for one in plan.annotations if one.rule != CARRIED]
        # Modules of quantized layers; a call of the model itself has none that could be left. The first call is what a
        # layer is called after: activations may follow it.
        self.modules = {one.calls[-1].name: module_path(one.calls[-1]) for one in layers}
        # To which modules the noise of each call belongs: to its own, else to those that read its value quantized.
        own = {call.name: module_path(one.calls[-1]) for one in layers for call in one.calls}
        self.owners: dict[str, set[str]] = {
            node.name: {path for name in ([node.name] if node.name in own else [one.name for one in node.users])
                        if (path := own.get(name))}
            for node in module.graph.nodes
        }  # fmt: skip
        self.steps: list[SearchStep] = []

    def run(self, at_least: float, limit: float) -> FloatModules:
        left: list[str] = []
        report, step = self.tried(left)
        alone: dict[str, float] = {}
        while step.score < at_least:
            best = self.noisiest(report, left, step, alone)
            if best is None:
                raise _not_reached(at_least, limit, max(self.steps, key=lambda one: one.score), "all modules in float")
            left.append(best)
            report, step = self.tried(left)
            if step.cost > limit:
                raise _not_reached(at_least, limit, step, f"{len(left)} modules in float")
        return self.pruned(left, step, at_least, limit)

    def noisiest(
        self, report: QuantizationReport, left: Sequence[str], now: SearchStep, alone: dict[str, float]
    ) -> str | None:
        """Return the module that is to be left next; None if there is no other.

        Args:
            report: Of the program as it is now.
            left: What is left already.
            now: What the program costs now.
            alone: What it costs to leave each module alone, as far as known.
        """
        noise: dict[str, float] = {}
        for one in report.ranked():
            for path in self.owners.get(one.call, set()) | self.owners.get(one.value, set()):
                if path not in left:
                    ratio = one.on_results if one.on_results is not None else one.isolated
                    noise[path] = noise.get(path, 0.0) + 10 ** (-max(ratio, -300) / 10)
        # What is noisy below a thousandth of the noisiest does not matter, however little it costs.
        heard = {path: value for path, value in noise.items() if value and value >= max(noise.values()) / 1000}
        for path in heard:
            if path not in alone:
                policy = self.leaving([path])
                alone[path] = self.cost(quantize_program(self.program, policy, self.samples[:1], self.settings))
        base = self.steps[0].cost
        worth = {path: value / max(alone[path] - base, 0.02 * abs(base) + 1e-9) for path, value in heard.items()}
        rest = [path for path in self.modules.values() if path and path not in left]
        return max(sorted(worth), key=worth.__getitem__) if worth else next(iter(rest), None)

    def tried(self, left: Sequence[str]) -> tuple[QuantizationReport, SearchStep]:
        """Quantize all but some modules, and measure."""
        made = quantize_program(self.program, self.leaving(left), self.samples, self.settings)
        report = quantization_report(self.program, made, self.samples)
        score = report.decibels if self.metric is None else _number(self.metric, made)
        step = SearchStep(left[-1] if left else None, score, self.cost(made))
        self.steps.append(step)
        return report, step

    def pruned(self, left: list[str], step: SearchStep, at_least: float, limit: float) -> FloatModules:
        """Quantize again what need not be left, the first that was left first."""
        for path in left[:-1]:
            fewer = [one for one in left if one != path]
            _, other = self.tried(fewer)
            # Also where float costs less, as of layers with more bytes of scales than of weights.
            if other.score >= at_least and other.cost <= max(limit, step.cost):
                left, step = fewer, other
        return FloatModules(
            policy=self.leaving(left),
            modules=tuple(left),
            layers=len(self.modules),
            left=sum(path in left for path in self.modules.values()),
            score=step.score,
            cost=step.cost,
            steps=tuple(self.steps),
        )

    def leaving(self, modules: Iterable[str]) -> QuantizerPolicy:
        """Return the quantizer that also leaves some modules; of one with others inside, what it computes itself."""
        return self.policy.model_copy(update={"leave": (*self.policy.leave, *map(self.selector, modules))})

    def selector(self, path: str) -> ModuleSelector:
        """Return what means the calls of a module, but not those of other modules that may be left."""
        inside = any(one is not None and one.startswith(f"{path}.") for one in self.modules.values())
        return ModuleSelector(module=(path,), own=inside)


def _number(metric: Metric, program: ExportedProgram) -> float:
    """Return what a metric says of a program.

    Raises:
        UsageError: EK420, it is not a number.
    """
    with torch.no_grad():
        found = metric(program.module(check_guards=False))
    try:
        score = float(found)
    except (TypeError, ValueError):
        score = math.nan
    if math.isnan(score):
        raise UsageError(Diagnostic.of("EK420", f"the metric returned {found!r}, which is not a number"))
    return score


def _not_reached(at_least: float, limit: float, best: SearchStep, what: str) -> ModelError:
    within = "" if math.isinf(limit) else f" at a cost of at most {limit:g}"
    message = f"an accuracy of {at_least:g} is not reached{within}: with {what} it is {best.score:g} at {best.cost:g}"
    return ModelError(Diagnostic.of("EK419", message))


def leaving_text(text: str, found: FloatModules) -> str:
    """Return the text of a quantizer that also leaves modules.

    Where the text has `leave` already, it is written again as a whole, and comments are lost.

    Args:
        text: The text of a quantizer.
        found: What a search found.
    """
    document = yaml.safe_load(text)
    chosen = found.policy.leave[len(found.policy.leave) - len(found.modules) :]
    entries = [{"module": one.module[0], **({"own": True} if one.own else {})} for one in chosen]
    if not entries:
        return text
    if document.get("leave"):
        document["leave"] = [*document["leave"], *entries]
        return yaml.safe_dump(document, sort_keys=False, width=120)
    lines = yaml.safe_dump({"leave": entries}, sort_keys=False, default_flow_style=None)
    return f"{text.rstrip()}\n{lines}"
