"""What happens while a compiler works: which part is at it, which rules it applies, and snapshots if asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from exirkit.ir import called_graphs, copy_program
from exirkit.passes import ApplyRules, StageEvent, shipped_pipelines
from exirkit.patterns import RewriteReport

_SHIPPED_FILES = frozenset(f"{name}.yaml" for name in shipped_pipelines())


@dataclass(frozen=True)
class Snapshot:
    """A program at a place of the chain.

    Attributes:
        method: Name of the method, where it is known.
        stage: The pass that has just worked; `export` at the beginning.
        pipeline: File of the pipeline that it is in.
        program: A copy that is never changed.
        edit: The pass as an object, if there is one.
    """

    method: str
    stage: str
    pipeline: str
    program: ExportedProgram
    edit: Any = None


@dataclass
class _Run:
    """One run of a pipeline; what it had done when it started again in another way is given up.

    Attributes:
        working: The stage that has begun and is not done.
        gave_up: The stage that sent the run another way: it began, and another one began instead of its end.
    """

    pipeline: str
    source: ExportedProgram
    steps: dict[int, Snapshot] = field(default_factory=dict)
    given_up: dict[int, Snapshot] = field(default_factory=dict)
    result: ExportedProgram | None = None
    working: str | None = None
    gave_up: str | None = None


class LoweringTrace:
    """Listens to a compiler.

    Args:
        has_state: Whether the program keeps something from run to run.
        keeps_snapshots: Keep a copy of the program after every pass that changes it.
        always_after: Passes after which a copy is kept although they have changed nothing.

    Attributes:
        current: The pass or part that works now, and after an exception the one that raised it.
        relaxing_rules: Ids of applied rules that declare a tolerance.
        applied: Ids of all applied rules.
        faults: Rules that violated their contract, by id: stage, and what was wrong. Their results were taken back, so
            that nothing else shows it.
        fired: How often the rules under test were applied, by id.
        changed: Whether each part under test has changed the program: passes, pipelines and their stages, by name.
        edge: Programs of the Edge dialect by method, from when `to_executorch` begins.
        worked: Passes of the shipped pipelines that have changed the program.
    """

    def __init__(
        self, *, has_state: bool = False, keeps_snapshots: bool = False, always_after: Collection[str] = ()
    ) -> None:
        self.has_state = has_state
        self.keeps_snapshots = keeps_snapshots
        self.always_after = frozenset(always_after)
        self.current: str | None = None
        self.relaxing_rules: dict[str, None] = {}
        self.applied: dict[str, int] = {}
        self.faults: dict[str, tuple[str, str]] = {}
        self.fired: Counter[str] = Counter()
        self.changed: dict[str, bool] = {}
        self.edge: Mapping[str, ExportedProgram] = {}
        self.worked: set[str] = set()
        self._pipelines: dict[str, str] = {}
        self._rules: frozenset[str] = frozenset()
        self._texts: dict[str, str] = {}
        self._reports = 0
        self._runs: dict[int, _Run] = {}
        self._transforms: list[tuple[Mapping[str, ExportedProgram], Mapping[str, ExportedProgram], Any]] = []
        self._after: str | None = None
        self._told: dict[str, list[Snapshot]] = {}

    @property
    def sees_passes(self) -> bool:
        """Whether passes that are applied without a pipeline are told as stages too."""
        return self.keeps_snapshots

    def expect(self, pipelines: Mapping[str, str], rules: Iterable[str]) -> None:
        """Say what is under test.

        Args:
            pipelines: Names of pipelines, by file.
            rules: Ids of rules.
        """
        self._pipelines, self._rules = dict(pipelines), frozenset(rules)
        self.changed.update(dict.fromkeys(self._pipelines.values(), False))

    def see(self, event: StageEvent) -> None:
        """Take note of an event of a pipeline."""
        if event.moment == "start":
            self._runs[event.run] = _Run(event.pipeline, event.program)
        elif event.moment == "before":
            self.current = event.name
            run = self._runs[event.run]
            run.gave_up, run.working = run.working or run.gave_up, event.name
            self._forget(event.run, event.position)
        elif event.moment == "after":
            self._runs[event.run].working = None
            if isinstance(event.edit, ApplyRules):
                self._note_rules(event.edit, event.edit.reports[-1:])
            self._note_stage(event)
            if self.keeps_snapshots and (event.modified or event.name in self.always_after):
                copied = copy_program(event.program)
                snapshot = Snapshot("", event.name, event.pipeline, copied, event.edit)
                self._runs[event.run].steps[event.position] = snapshot
        else:
            self._runs[event.run].result = event.program
            self.current = self._after

    def see_passes(
        self, moment: str, before: Mapping[str, ExportedProgram], after: Mapping[str, ExportedProgram], edit: Any
    ) -> None:
        """Take note of a pass that a manager runs on all methods."""
        name = self.current = name_of_pass(edit)
        is_rules = isinstance(edit, ApplyRules)
        if moment == "before":
            self._texts = {} if is_rules else {method: _text(program) for method, program in before.items()}
            self._reports = len(edit.reports) if is_rules else 0
            return
        self._transforms.append((before, after, edit))
        if is_rules:
            # One for each method.
            self._note_rules(edit, edit.reports[self._reports :])
        else:
            has_changed = any(
                self._texts[method] != _text(program) or not _same_tensors(before[method], program)
                for method, program in after.items()
            )
            self.changed[name] = self.changed.get(name, False) or has_changed

    def see_programs(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        """Take note of what a pass of a compiler that is not ours has made of the programs, by method.

        Args:
            name: Of the pass that has just worked.
            programs: As they are now; those that are kept are copied.
        """
        self.current = f"what follows {name}"
        if self.keeps_snapshots:
            for method, program in programs.items():
                snapshot = Snapshot(method, name, "", copy_program(program))
                self._told.setdefault(method, []).append(snapshot)

    def see_part(self, name: str | None) -> None:
        """Take note that a part of the chain which is not a pass begins: it is at work whenever no pass is."""
        self.current = self._after = name

    def path_to(self, method: str, lowered: ExportedProgram | None) -> list[Snapshot]:
        """Return the snapshots of a method on the way to what became of it, from the export on.

        What was tried on the way and given up is left out.

        Args:
            method: Name of the method.
            lowered: A result of a run or of a manager.
        """
        if method in self._told:
            return self._told[method]
        return [] if lowered is None else self._path(method, lowered)

    def path_so_far(self, exported: Mapping[str, ExportedProgram], *, is_given_up: bool = False) -> list[Snapshot]:
        """Return the snapshots on the way to the place where the compiler raised.

        Args:
            exported: What the compiler was given, by method. They say whose snapshots these are.
            is_given_up: Return the way that the last run gave up for another one, if it did; nothing otherwise.
        """
        if self._told:
            return max(self._told.values(), key=len)
        if not self._runs:
            return []
        last = self._runs[max(self._runs)]
        at = last.source if last.result is None else last.result
        begun = self._path("", at)[0].program
        method = next((name for name, one in exported.items() if one is begun), None)
        if method is None:
            return []
        path = self._path(method, at)
        if is_given_up:
            steps = sorted(last.given_up.items()) if last.result is None else []
            return [*path, *(_of_method(one, method) for _, one in steps)] if steps else []
        return (
            path
            if last.result is not None
            else [*path, *(_of_method(one, method) for _, one in sorted(last.steps.items()))]
        )

    def gave_up(self) -> str | None:
        """Return the pass that sent the last run another way, on which the run has not come to its end."""
        last = self._runs[max(self._runs)] if self._runs else None
        return last.gave_up if last is not None and last.result is None else None

    def _path(self, method: str, lowered: ExportedProgram) -> list[Snapshot]:
        path: list[Snapshot] = []
        at: ExportedProgram | None = lowered
        while at is not None:
            run = next((one for one in self._runs.values() if one.result is at), None)
            if run is not None:
                path += [_of_method(one, method) for _, one in sorted(run.steps.items(), reverse=True)]
                at = run.source
                continue
            found = [(before, edit) for before, after, edit in self._transforms if after.get(method) is at]
            if not found:
                break
            before, edit = found[-1]
            path.append(Snapshot(method, name_of_pass(edit), "", at, edit))
            at = before.get(method)
        if at is not None:
            path.append(Snapshot(method, "export", "", at))
        return path[::-1]

    def _forget(self, run: int, position: int) -> None:
        steps = self._runs[run].steps
        later = [one for one in steps if one > position]
        if later:
            self._runs[run].given_up = dict(steps)
        for one in later:
            del steps[one]

    def _note_rules(self, edit: ApplyRules, reports: Sequence[RewriteReport]) -> None:
        exact = {rule.id: rule.rule.equiv.is_exact for rule in edit.engine.rules}
        for report in reports:
            for one in report.rejections:
                if one.is_fault:
                    self.faults.setdefault(one.rule, (self.current or "", f"at %{one.node}: {one.reason}"))
            for name, count in report.applied.items():
                self.applied[name] = self.applied.get(name, 0) + count
                if name in self._rules:
                    self.fired[name] += count
                if not exact.get(name, True):
                    self.relaxing_rules[name] = None

    def _note_stage(self, event: StageEvent) -> None:
        if event.modified and event.edit is not None and event.pipeline in _SHIPPED_FILES:
            self.worked.add(event.name)
        pipeline = self._pipelines.get(event.pipeline)
        if pipeline is None or event.edit is None:
            return
        for name in (pipeline, f"{pipeline}: {event.name}"):
            self.changed[name] = self.changed.get(name, False) or event.modified


def _text(program: ExportedProgram) -> str:
    """Return all that tells two graphs apart, but for what is stored."""
    return "\n".join(str(module.graph) for module in called_graphs(program.graph_module))


def _same_tensors(before: ExportedProgram, after: ExportedProgram) -> bool:
    """Return whether two programs store the same, element by element."""
    stored = [{**program.state_dict, **program.constants} for program in (before, after)]
    return stored[0].keys() == stored[1].keys() and all(
        one is stored[1][name]
        or not isinstance(one, torch.Tensor)
        or (isinstance(stored[1][name], torch.Tensor) and torch.equal(one, stored[1][name]))
        for name, one in stored[0].items()
    )


def name_of_pass(edit: Any) -> str:
    """Return the name under which a pass is reported."""
    for attribute in ("name", "__name__"):
        name = getattr(edit, attribute, None)
        if isinstance(name, str):
            return name
    return type(edit).__name__


def _of_method(snapshot: Snapshot, method: str) -> Snapshot:
    return Snapshot(method, snapshot.stage, snapshot.pipeline, snapshot.program, snapshot.edit)
