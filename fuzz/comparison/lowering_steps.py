"""Lowering with a snapshot after every pass that changes the program, so that any of them can be run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram

from exirkit.fuzz.compilers import LoweringTrace, Snapshot
from exirkit.ir import DiagnosticError
from exirkit.passes import ApplyRules, ExecutorchBackendConfig, Partitioner, Pipeline, watching
from exirkit.patterns import CompiledRule, RewriteOptions
from exirkit.program import EdgeProgramManager, ExecutorchProgramManager, lower_to_backends, to_edge


@dataclass(frozen=True)
class LoweringChoices:
    """What a program is lowered with, in the order in which it is applied.

    Attributes:
        to_edge: A pipeline instead of the shipped one from ATen to Edge.
        rules: Rules applied to the Edge program, all at once.
        rewriting: How they are applied.
        passes: Passes on Edge programs, one after another.
        on_edge: Pipelines on Edge programs, one after another.
        to_executorch: A pipeline instead of the shipped one from Edge to ExecuTorch.
        config: Choices of `to_executorch`.
        partitioners: Give parts of the Edge programs to backends, after rules, passes and pipelines; with them
            `to_edge` is not used.
    """

    to_edge: Pipeline | None = None
    rules: tuple[CompiledRule, ...] = ()
    rewriting: RewriteOptions | None = None
    passes: tuple[Any, ...] = ()
    on_edge: tuple[Pipeline, ...] = ()
    to_executorch: Pipeline | None = None
    config: ExecutorchBackendConfig | None = None
    partitioners: tuple[Partitioner, ...] = ()


@dataclass(frozen=True)
class LoweringSteps:
    """A lowering that was watched.

    Attributes:
        exported: What was lowered, by method.
        edge: The Edge programs as `to_executorch` got them, by method; empty if the lowering ended before.
        manager: The result; None if the lowering ended before.
        failure: What ended it.
        stage: The pass that raised it.
    """

    exported: Mapping[str, ExportedProgram]
    edge: Mapping[str, ExportedProgram]
    manager: ExecutorchProgramManager | None
    failure: DiagnosticError | None
    stage: str | None
    _trace: LoweringTrace

    @property
    def applied(self) -> Mapping[str, int]:
        """How often each rule was applied, in all methods together."""
        return self._trace.applied

    def snapshots(self, method: str) -> list[Snapshot]:
        """Return the programs of a method from the exported one to the last one that there is."""
        if self.manager is not None:
            return self._trace.path_to(method, self.manager.exported_program(method))
        if method in self.edge:
            return self._trace.path_to(method, self.edge[method])
        path = self._trace.path_so_far(self.exported)
        if path and path[0].method == method:
            return path
        return [Snapshot(method, "export", "", self.exported[method])]

    def edge_snapshots(self, method: str) -> list[Snapshot]:
        """Return the programs of a method up to the Edge program that `to_executorch` got."""
        return self._trace.path_to(method, self.edge[method])


def lower_in_steps(
    exported: Mapping[str, ExportedProgram], choices: LoweringChoices, *, to_the_end: bool = True
) -> LoweringSteps:
    """Lower programs as `exirkit lower` does, and keep a snapshot after every pass that changes one.

    Args:
        exported: Programs by method name; they are not changed.
        choices: What to lower them with.
        to_the_end: Go on to the ExecuTorch dialect and the file, not only to Edge.
    """
    trace = LoweringTrace(keeps_snapshots=True)
    edge: dict[str, ExportedProgram] = {}
    try:
        with watching(trace.see):
            manager = _edge(exported, choices, trace)
            edge = {name: manager.exported_program(name) for name in sorted(manager.methods)}
            if not to_the_end:
                return LoweringSteps(exported, edge, None, None, None, trace)
            trace.see_part("planner")
            made = manager.to_executorch(choices.config, pipeline=choices.to_executorch)
            trace.see_part("emitter")
            # The file is made when it is first asked for; what is wrong then is to be found here.
            _ = made.buffer
    except DiagnosticError as error:
        return LoweringSteps(exported, edge, None, error, trace.current, trace)
    return LoweringSteps(exported, edge, made, None, None, trace)


class _ToBackend:
    """Stands for what partitioners do, in the trace."""

    name = "to-backend"


def _edge(
    exported: Mapping[str, ExportedProgram], choices: LoweringChoices, trace: LoweringTrace
) -> EdgeProgramManager:
    """Return what `to_executorch` gets."""
    if not choices.partitioners:
        return _transformed(to_edge(dict(exported), pipeline=choices.to_edge), choices, trace)
    whole: dict[str, ExportedProgram] = {}

    def transform(edge: EdgeProgramManager) -> EdgeProgramManager:
        made = _transformed(edge, choices, trace)
        whole.update({name: made.exported_program(name) for name in exported})
        trace.see_passes("before", whole, whole, _ToBackend)
        return made

    manager = lower_to_backends(dict(exported), list(choices.partitioners), transform)
    trace.see_passes("after", whole, {name: manager.exported_program(name) for name in exported}, _ToBackend)
    return manager


def _transformed(manager: EdgeProgramManager, choices: LoweringChoices, trace: LoweringTrace) -> EdgeProgramManager:
    steps = list(choices.passes)
    if choices.rules:
        steps.insert(0, ApplyRules(list(choices.rules), choices.rewriting))
    for one in steps:
        before = {name: manager.exported_program(name) for name in sorted(manager.methods)}
        trace.see_passes("before", before, before, one)
        manager = manager.transform([one])
        trace.see_passes("after", before, {name: manager.exported_program(name) for name in before}, one)
    for pipeline in choices.on_edge:
        changed = {name: pipeline.run(manager.exported_program(name)).program for name in sorted(manager.methods)}
        manager = EdgeProgramManager(changed, compile_config=manager.compile_config)
    return manager
