"""Trials of a rule on programs in which sizes vary: it must apply there, and be right for other sizes too."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

from exirkit.ir import Diagnostic, GraphEditor, copy_program, no_torch_logs
from exirkit.patterns.checking.pattern_execution import CannotRunError, PatternRun
from exirkit.patterns.checking.pattern_programs import PatternModule
from exirkit.patterns.checking.trials.rule_trials import RAISED, RuleTrials, Trial
from exirkit.patterns.engine.rewriting import RuleEngine
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.matching.varying_sizes import placed_dims, sizes_read_from
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.types.sizes import BroadcastDim, Dims, SequenceDim, SizeDim
from exirkit.patterns.types.tensors import TensorVariable

_PROGRAMS = 4
_MOST_TRIALS = 60
_ROUNDS = 4
_SIZES = (2, 7, 3, 11, 5)


@dataclass
class _Tried:
    """What became of the programs so far.

    Attributes:
        programs: Programs in which the sizes vary.
        sizes: Further sizes that they were run with.
        why: Why the last one could not be made.
    """

    programs: int = 0
    sizes: int = 0
    why: str = "the types draw no such sizes"


def varying_findings(trials: RuleTrials) -> Iterator[Diagnostic]:
    """Yield what is wrong with a rule where the sizes vary that it declares, EK228; at most one diagnostic.

    Programs of its pattern are exported with these sizes as symbols, rewritten by the engine, and run with other sizes.
    """
    tried = _Tried()
    if not trials.rule.rule.varying:
        return
    for number in range(1, _MOST_TRIALS + 1):
        trial, why = trials.trial(number, profile="normal")
        if trial is None:
            tried.why = why
            continue
        problem = _tried(trials, trial, tried)
        if problem is not None:
            yield _diagnostic(trials.rule, problem, trial)
            return
        if tried.programs >= _PROGRAMS:
            break
    if not tried.programs or not tried.sizes:
        yield _diagnostic(trials.rule, f"cannot be tried: {tried.why}", None)


def _tried(trials: RuleTrials, trial: Trial, tried: _Tried) -> str | None:
    """Return what is wrong for one trial, or None."""
    made = _exported(trials, trial, tried)
    if made is None:
        return None
    module, program = made
    tried.programs += 1
    editor = GraphEditor(copy_program(program))
    report = RuleEngine([trials.rule]).run(editor)
    if not report.journal:
        reasons = [one.reason for one in report.rejections]
        return f"is not applied: {reasons[0] if reasons else 'a condition does not hold for all sizes'}"
    original, rewritten = program.module(), editor.program.module()
    for count in range(_ROUNDS):
        again = _resized(module, trial, count)
        inputs = tuple(again.names[name] for name in module.inputs)
        try:
            with torch.no_grad():
                original(*inputs)
                again.expected = PatternRun(trials.rule.pattern, again.names, again.shape, TensorBuilder()).run()
        except (CannotRunError, *RAISED) as error:
            # The pattern itself does not take these sizes.
            tried.why = str(error).splitlines()[0][:200]
            continue
        tried.sizes += 1
        sizes = ", ".join(f"{name} = {again.names[name]}" for name in trials.rule.rule.varying)
        try:
            with torch.no_grad():
                results = rewritten(*inputs)
        except RAISED as error:
            return f"fails for {sizes}: {str(error).splitlines()[0][:200]}"
        problem = trials.compared(again, list(results))
        if problem is not None:
            return f"is wrong for {sizes}: {problem}"
    return None


class _Varying(PatternModule):
    """Computes a pattern over the sizes of its inputs."""

    def given(self, values: Sequence[torch.Tensor]) -> dict[str, Any]:
        """Return what the variables and sizes of the rule stand for; sizes that vary are those of the inputs."""
        names = super().given(values)
        for name in self.inputs:
            names.update(sizes_read_from(_dims(self.trials.rule, name), names[name].shape, self.varying))
        return names

    @property
    def varying(self) -> tuple[str, ...]:
        """Names of the sizes that vary."""
        return self.trials.rule.rule.varying

    def dynamic_dims(self) -> list[dict[int, Any]]:
        """Return for each input which dims vary."""
        return [_dynamic(_dims(self.trials.rule, name), self.trial.names[name], self.varying) for name in self.inputs]


def _dims(rule: CompiledRule, name: str) -> Dims:
    variable = rule.variables[name]
    return variable.signature if isinstance(variable, TensorVariable) else ()


def _dynamic(dims: Dims, value: torch.Tensor, varying: Sequence[str]) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for dim, place in placed_dims(dims, value.dim()):
        names = dim.size.names() if isinstance(dim, SizeDim) else {getattr(dim, "name", None)}
        if names.intersection(varying):
            # A dim of one element that broadcasts stays that.
            at = range(place.start, place.stop)
            found |= {i: torch.export.Dim.AUTO for i in at if value.shape[i] != 1 or not isinstance(dim, BroadcastDim)}
    return found


def _exported(trials: RuleTrials, trial: Trial, tried: _Tried) -> tuple[_Varying, ExportedProgram] | None:
    """Return a program in which the sizes vary, or None and why there is none."""
    sizes = [size for name in trials.rule.rule.varying for size in _listed(trial.names.get(name))]
    if not sizes or min(sizes) < 2:
        tried.why = "the sizes of the samples are 0 or 1, which do not vary in exported programs"
        return None
    module = _Varying(trials, trial)
    inputs = tuple(trial.names[name] for name in module.inputs)
    dims = module.dynamic_dims()
    try:
        with warnings.catch_warnings(), no_torch_logs():
            warnings.simplefilter("ignore")
            program = torch.export.export(module, inputs, dynamic_shapes=(tuple(dims),), strict=False)
    except Exception as error:  # Whatever torch.export raises: there is no such program.
        tried.why = f"torch.export: {str(error).splitlines()[0][:200] if str(error) else type(error).__name__}"
        return None
    inputs_of = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    values = [inputs_of[name] for name in program.graph_signature.user_inputs if isinstance(name, str)]
    for value, varies in zip(values, dims, strict=True):
        if any(not isinstance(value.shape[at], torch.SymInt) for at in varies):
            tried.why = "the pattern fixes the sizes that are to vary"
            return None
    return module, program


def _listed(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value] if isinstance(value, int) else []


def _resized(module: _Varying, trial: Trial, count: int) -> Trial:
    """Return a trial whose tensors have other sizes, made of the same elements."""
    names = {key: value for key, value in trial.names.items() if key not in module.trials.rule.pattern.named}
    at = count
    for name in module.varying:
        old = names[name]
        new = []
        for _ in _listed(old):
            new.append(_SIZES[at % len(_SIZES)])
            at += 1
        names[name] = new if isinstance(old, list | tuple) else new[0]
    for name in module.inputs:
        names[name] = _with_sizes(names[name], _dims(module.trials.rule, name), names, module.varying)
    return Trial(trial.seed, trial.shape, names)


def _with_sizes(value: torch.Tensor, dims: Dims, names: Mapping[str, Any], varying: Sequence[str]) -> torch.Tensor:
    for dim, place in placed_dims(dims, value.dim()):
        if isinstance(dim, SizeDim):
            wanted = [dim.size.evaluate(names)] if dim.size.names().intersection(varying) else []
        elif isinstance(dim, SequenceDim | BroadcastDim) and dim.name in varying:
            wanted = list(names[str(dim.name)])[-(place.stop - place.start) or place.stop :]
        else:
            continue
        for at, size in zip(range(place.start, place.stop), wanted, strict=False):
            if value.shape[at] != 1 or not isinstance(dim, BroadcastDim):
                value = value.index_select(at, torch.arange(int(size)) % value.shape[at])
    return value


def _diagnostic(rule: CompiledRule, problem: str, trial: Trial | None) -> Diagnostic:
    return rule.texts.rule.diagnostic(
        "EK228",
        f"rule {rule.id}, where {', '.join(rule.rule.varying)} varies, {problem}",
        length=len(rule.id),
        notes=() if trial is None else (f"seed {trial.seed}",),
        hint="compute with sizes of the match, as `size(x, 0)`, without asking what they are; or take the name out of"
        " `varying`",
    )
