"""Running the stages of a pipeline on one program, and watching it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from exirkit.ir import (
    ContractError,
    Diagnostic,
    DocumentCodes,
    EdgeOpOverload,
    EdgeProgramVerifier,
    ExecutorchProgramVerifier,
    GraphEditor,
    ModelError,
    OpOverload,
    UsageError,
    YamlSource,
    called_graphs,
    copy_program,
    in_file_order,
    read_document,
    read_text,
    seldom_collected,
)
from exirkit.passes.contract import Pass, PassRegistry, PassReport, ReportingPass
from exirkit.passes.optimize.clean_up import ApplyRules
from exirkit.passes.stage_events import Moment, StageEvent, current_watch, next_run
from exirkit.passes.to_aten.operator_recorder import WholeGraphNeededError
from exirkit.passes.to_executorch.symbolic_shapes import is_assertion
from exirkit.passes.user_passes.base import ExportedProgramPassBase, ExportedProgramPassResult
from exirkit.passes.user_passes.running import run_user_pass
from exirkit.patterns import RewriteOptions, backend_books, backend_chain_text
from exirkit.verifiers import CallMemory, remembering

from .model import CHECKS, SETTINGS, PipelineModel
from .resolving import Knowledge, OrderCheck, ResolvedStage, Resolver, build_options, initial_knowledge, is_active

_FALL_BACKS: ContextVar[list[str] | None] = ContextVar("_FALL_BACKS", default=None)


@contextmanager
def noted_fall_backs() -> Iterator[Sequence[str]]:
    """Note why groups of stages that run inside fell back on their `otherwise`, such as torch's own decomposition."""
    noted: list[str] = []
    token = _FALL_BACKS.set(noted)
    try:
        yield noted
    finally:
        _FALL_BACKS.reset(token)


def _note_fall_back(error: WholeGraphNeededError) -> None:
    noted = _FALL_BACKS.get()
    if noted is not None:
        noted += [each.message for each in error.diagnostics]


@dataclass(frozen=True, slots=True)
class StageReport:
    """What one run of one stage did.

    Attributes:
        number: Place of the stage: `3`, or `3.2` inside stage 3.
        name: What the stage is called.
        round: Which round of the innermost `repeat`, from 1; 0 outside of one.
        modified: Whether the program differs from before.
        nodes_before: Nodes of the graph before.
        nodes_after: Nodes of the graph afterwards.
        created: How many nodes are new; 0 for passes over graph modules, which do not tell.
        erased: How many nodes are gone; likewise.
        changed: How many nodes that were there before and are still there differ; likewise.
        seconds: Wall time.
        details: The report of a pass that keeps one, such as what a propagation converts.
    """

    number: str
    name: str
    round: int
    modified: bool
    nodes_before: int
    nodes_after: int
    created: int
    erased: int
    changed: int
    seconds: float
    details: Any = None


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What came out of a run.

    Attributes:
        program: The new program.
        reports: What the stages did, in the order in which they ran; groups and repetitions themselves have none.
        is_complete: Whether the last stage was reached.
    """

    program: ExportedProgram
    reports: tuple[StageReport, ...]
    is_complete: bool

    def table(self) -> str:
        """Return the reports as text, a line for each stage."""
        lines = [f"{'stage':<8}{'name':<34}{'nodes':>14}  {'ms':>8}  changes"]
        for one in self.reports:
            nodes = f"{one.nodes_before} -> {one.nodes_after}"
            counts = f"+{one.created} -{one.erased} ~{one.changed}" if one.modified else "none"
            name = one.name + (f" (round {one.round})" if one.round else "")
            lines.append(f"{one.number:<8}{name:<34}{nodes:>14}  {one.seconds * 1e3:>8.2f}  {counts}")
        return "\n".join(lines)


Progress = Callable[[str], None]


class _StopRun(Exception):  # noqa: N818 - no error
    """The stage after which to stop has run."""


class PipelineRun:
    """One run over one program.

    Args:
        program: The program; it is not changed.
        settings: Values of all settings.
        source: The file, for messages.
        knowledge: What holds for the program.
        verify: When to check what should hold: `each`, `end`, `none`.
        stop_after: Number of the stage after which to stop.
        progress: Called with the titles of stages.

    Attributes:
        program: The program as it is now.
        reports: What the stages did.
        is_complete: Whether the last stage was reached.
    """

    def __init__(
        self,
        program: ExportedProgram,
        settings: Mapping[str, Any],
        source: YamlSource,
        knowledge: Knowledge,
        *,
        verify: str = "none",
        stop_after: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.program = program
        self.reports: list[StageReport] = []
        self.is_complete = True
        self._settings = settings
        self._source = source
        self._knowledge = knowledge
        watch = current_watch()
        self._verify = verify if watch.verify is None else watch.verify
        self._watcher = watch.watcher
        self._number = next_run()
        self._stop_after = stop_after
        self._progress = progress
        # There is an editor where the program is a copy of our own, which may be edited.
        self._editor: GraphEditor | None = None
        self._round = 0
        # Checks without findings since the last edit: what has not changed need not be examined again.
        self._confirmed: set[str] = set()
        # Of what has changed, calls that are as they were need not be examined again either.
        self._memory = CallMemory()

    def run(self, stages: tuple[ResolvedStage, ...]) -> None:
        """Run the stages.

        Raises:
            ModelError: A check stage has findings, or a pass cannot handle the program.
            ContractError: EK476, a repetition hits its bound; or a pass violated its contract.
        """
        self._tell("start", None)
        try:
            self._run_all(stages)
        except _StopRun:
            self.is_complete = False
        if self._verify == "end":
            self._verify_after(None)
        self._own()
        self._tell("end", None)

    def _tell(
        self,
        moment: Moment,
        one: ResolvedStage | None,
        edit: Any = None,
        is_modified: bool = False,
    ) -> None:
        """Notify the watcher."""
        if self._watcher is not None:
            number, name = ("", "") if one is None else (one.number, one.stage.label)
            self._watcher(
                StageEvent(
                    moment,
                    self._number,
                    self._source.file,
                    len(self.reports),
                    number,
                    name,
                    self.program,
                    is_modified,
                    edit,
                )
            )

    def _run_all(self, stages: tuple[ResolvedStage, ...]) -> None:
        for one in stages:
            if is_active(one, self._settings):
                self._run_stage(one)
                if one.number == self._stop_after:
                    raise _StopRun

    def _run_stage(self, one: ResolvedStage) -> None:
        if one.stage.title is not None and self._progress is not None:
            self._progress(one.stage.title)
        if one.stage.kind == "repeat":
            self._repeat(one)
        elif one.stage.kind == "group":
            self._group(one)
        else:
            self._run_leaf(one)
        self._knowledge = self._knowledge.after(one)
        if self._verify == "each" and not one.inner and one.check is None:
            self._verify_after(one)

    def _run_leaf(self, one: ResolvedStage) -> None:
        edit = None if one.check is not None else built_pass(one, self._settings, self._source)
        self._tell("before", one, edit)
        nodes, start = len(self.program.graph.nodes), time.perf_counter()
        if one.check is not None:
            findings = one.check.find(self.program, self._settings)
            if findings:
                raise ModelError(findings)
            report = PassReport(one.stage.label, False, 0, 0, 0, 0.0)
        else:
            report = self._edit(edit)
        self.reports.append(
            StageReport(
                number=one.number,
                name=one.stage.label,
                round=self._round,
                modified=report.modified,
                nodes_before=nodes,
                nodes_after=len(self.program.graph.nodes),
                created=report.created,
                erased=report.erased,
                changed=report.changed,
                seconds=time.perf_counter() - start,
                details=edit.report if isinstance(edit, ReportingPass) else None,
            )
        )
        self._tell("after", one, edit, report.modified)

    def _edit(self, edit: Any) -> PassReport:
        if isinstance(edit, Pass):
            report = edit.run(self._own())
            if report.modified:
                self._confirmed.clear()
            return report
        self._own()
        # What others say about themselves is not relied on.
        self._confirmed.clear()
        program, is_modified = run_user_pass(self.program, edit)
        # A pass may keep what it returns, so another program is not ours before it is copied.
        self._editor = GraphEditor(program) if program is self.program else None
        self.program = program
        return PassReport("", is_modified, 0, 0, 0, 0.0)

    def _own(self) -> GraphEditor:
        if self._editor is None:
            self.program = copy_program(self.program)
            self._editor = GraphEditor(self.program)
        return self._editor

    def _group(self, one: ResolvedStage) -> None:
        otherwise = one.inner.get("otherwise")
        if otherwise is None:
            self._run_all(one.inner["stages"])
            return
        backup = self.program if self._editor is None else copy_program(self.program)
        knowledge, count = self._knowledge, len(self.reports)
        try:
            self._run_all(one.inner["stages"])
        except WholeGraphNeededError as error:
            _note_fall_back(error)
            del self.reports[count:]
            self.program, self._editor, self._knowledge = backup, None, knowledge
            self._confirmed.clear()
            self._run_all(otherwise)

    def _repeat(self, one: ResolvedStage) -> None:
        outer, changing = self._round, list[str]()
        for number in range(1, one.stage.bound + 1):
            self._round, count = number, len(self.reports)
            self._run_all(one.inner["repeat"])
            changing = [report.name for report in self.reports[count:] if report.modified]
            if not changing:
                break
        self._round = outer
        if changing:
            text = self._source.key((*one.path, "repeat"))
            message = f"the stages still change the program after {one.stage.bound} rounds"
            names = f"still changing: {', '.join(dict.fromkeys(changing))}"
            hint = "raise `bound`, or take out one of two stages that undo each other"
            raise ContractError(text.diagnostic("EK476", message, length=len("repeat"), notes=(names,), hint=hint))

    def _verify_after(self, one: ResolvedStage | None) -> None:
        """Make the checks of everything that should hold now."""
        findings: list[Diagnostic] = []
        with remembering(self._memory):
            for name, check in CHECKS.items():
                if check.confirms <= self._knowledge.held and name not in self._confirmed:
                    found = check.find(self.program, self._settings)
                    findings += found
                    if not found:
                        self._confirmed.add(name)
        if findings:
            where = f"at the end of {self._source.file}"
            if one is not None:
                place = self._source.text(one.path).location()
                where = f"after stage {one.number}, {one.stage.label} ({place.file}:{place.line})"
            raise ContractError([each.model_copy(update={"notes": (*each.notes, where)}) for each in findings])


def built_pass(one: ResolvedStage, settings: Mapping[str, Any], source: YamlSource) -> Any:
    """Make the pass of a stage with `pass` or `rules`."""
    if one.rules is not None:
        options = RewriteOptions(
            limit=one.stage.limit,
            target=settings["target"],
            room=settings["scratch-room"],
            estimates=settings["known-estimates"],
            adds_calls=settings["adds-calls"],
            search=settings["search"],
            keeps_layouts=settings["keep-layouts"],
        )
        return ApplyRules(one.engine, options)
    assert one.registered is not None, "a valid pipeline"
    return one.registered.build(build_options(one, settings, source))


_CODES = DocumentCodes(syntax="EK470", form="EK471")
_VERIFIERS = {"edge": EdgeProgramVerifier, "executorch": ExecutorchProgramVerifier}


class Pipeline(ExportedProgramPassBase):
    """A valid pipeline; make one with `from_file`, `parse` or `shipped`.

    It is a pass over programs itself, so `transform` takes it.

    An object keeps no state between runs; it can be used for any number of programs.

    Attributes:
        model: What the file says.
        file: Its path.
        stages: Its stages, with what their names stand for.
    """

    def __init__(self, model: PipelineModel, source: YamlSource, stages: tuple[ResolvedStage, ...]) -> None:
        self.model = model
        self.file = source.file
        self.stages = stages
        self._source = source
        self._settings = {**{name: one.default for name, one in SETTINGS.items()}, **model.settings}

    @classmethod
    def from_file(cls, path: str | Path, *, passes: Mapping[str, Any] | None = None) -> Pipeline:
        """Read and check a pipeline file; nothing in it is run.

        Args:
            path: Path of the file; or the name of a backend's book, `backends/...`, for the chain that comes with it.
            passes: Passes that the file may name besides those of exirkit and of plug-ins: classes or objects by name.

        Raises:
            ModelError: All that is wrong with the file: EK470 to EK475, and what is wrong with its rule books.
            OSError: The file cannot be read.
        """
        if str(path) in backend_books():
            return cls.parse(backend_chain_text(str(path)), f"{path}.yaml", passes=passes)
        return cls.parse(read_text(path, _CODES.syntax), str(path), passes=passes)

    @classmethod
    def parse(cls, text: str, file: str = "<pipeline>", *, passes: Mapping[str, Any] | None = None) -> Pipeline:
        """Read and check a pipeline from its text.

        Args:
            text: The text.
            file: Name for messages; rule books are looked for beside it.
            passes: As for `from_file`.

        Raises:
            ModelError: All that is wrong with it.
        """
        document = read_document(text, PipelineModel, _CODES, file=file)
        model, source = document.model, document.source
        resolver = Resolver(model, source, PassRegistry(passes))
        stages = resolver.resolve()
        resolver.check_order_names(stages)
        findings = resolver.found or OrderCheck(model, source, stages).findings()
        if findings:
            raise ModelError(in_file_order(findings, file))
        return cls(model, source, stages)

    @staticmethod
    def shipped(name: str) -> Pipeline:
        """Return a pipeline that comes with exirkit; it is read once.

        Args:
            name: `to_edge` or `to_executorch`.

        Raises:
            UsageError: EK478, there is none of that name.
        """
        if name not in shipped_pipelines():
            known = ", ".join(shipped_pipelines())
            raise _misuse(f"no pipeline {name!r} comes with exirkit", expected=f"one of {known}")
        return _shipped(name)

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self.model.name

    @seldom_collected()
    def run(
        self,
        program: ExportedProgram,
        *,
        settings: Mapping[str, Any] | None = None,
        start_at: str | int | None = None,
        stop_before: str | int | None = None,
        stop_after: str | int | None = None,
        progress: Progress | None = None,
    ) -> PipelineResult:
        """Run the stages on a copy of a program.

        Args:
            program: A program of the dialect that the pipeline takes; it is not changed.
            settings: Values of settings, where they are not the usual ones.
            start_at: Number or name of the stage at which to start, outside of groups and repetitions: those before it
                have run.
            stop_before: Number or name of such a stage before which to stop.
            stop_after: Number (`3`, `"3.2"`) or name of the stage after which to stop.
            progress: Called with the titles of stages that have one.

        Raises:
            UsageError: EK478, the program has another dialect, or there is no such setting or stage.
            ModelError: A check of the pipeline has findings, or a pass cannot handle the program.
            ContractError: EK476, a repetition hits its bound; or a pass violated its contract.
        """
        self._reject_other_dialect(program)
        run = PipelineRun(
            program,
            self._all_settings(settings),
            self._source,
            initial_knowledge(self.model),
            verify=self.model.verify,
            stop_after=None if stop_after is None else self._stage(str(stop_after)).number,
            progress=progress,
        )
        first = 0 if start_at is None else self._place(str(start_at))
        run.run(self.stages[first : None if stop_before is None else self._place(str(stop_before))])
        made = _VERIFIERS.get(self.model.dialect.to)
        if made is not None:
            run.program._verifiers = [made]
        return PipelineResult(run.program, tuple(run.reports), run.is_complete and stop_before is None)

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Run with the usual settings, as a pass among others."""
        result = self.run(exported_program)
        return ExportedProgramPassResult(result.program, any(one.modified for one in result.reports))

    def leading_findings(self, program: ExportedProgram, settings: Mapping[str, Any] | None = None) -> list[Diagnostic]:
        """Make the checks that stand before the first stage that edits, and return their findings.

        Args:
            program: The program.
            settings: As for `run`.
        """
        values = self._all_settings(settings)
        findings: list[Diagnostic] = []
        for one in self.stages:
            if one.check is None:
                break
            if is_active(one, values):
                findings += one.check.find(program, values)
        return findings

    def passes(self, settings: Mapping[str, Any] | None = None, *, group: str | None = None) -> list[Pass]:
        """Return the passes of the pipeline in their order; checks, repetition and `otherwise` are left out.

        Args:
            settings: As for `run`.
            group: Only those of this group.
        """
        values = self._all_settings(settings)
        stages = self.stages if group is None else (self._stage(group),)
        return [built_pass(one, values, self._source) for one in _editing(stages, values)]

    def _place(self, name: str) -> int:
        """Return how many stages stand before one that is not part of another."""
        one = self._stage(name)
        if one not in self.stages:
            raise _misuse(
                f"stage {name!r} of {self.file} is part of another one", expected="a stage of the file itself"
            )
        return self.stages.index(one)

    def _stage(self, name: str) -> ResolvedStage:
        everything = [one for stage in self.stages for one in stage.walk()]
        found = next((one for one in everything if one.number == name), None)
        found = found or next((one for one in everything if one.answers_to(name)), None)
        if found is None:
            raise _misuse(f"{self.file} has no stage {name!r}", expected="a number such as 2.1, or a name")
        return found

    def _all_settings(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        for name in given or ():
            if name not in self._settings:
                raise _misuse(f"{self.file} has no setting {name!r}", expected=f"one of {', '.join(self._settings)}")
        return {**self._settings, **(given or {})}

    def _reject_other_dialect(self, program: ExportedProgram) -> None:
        wanted, found = self.model.dialect.from_, _dialect_of(program)
        if found is not None and found != wanted:
            raise _misuse(
                f"pipeline {self.name} was given a program of dialect {found}",
                expected=f"a program of dialect {wanted}, which the file says under `dialect`",
            )

    def __repr__(self) -> str:
        return f"<Pipeline {self.name}: {self.model.dialect.from_} to {self.model.dialect.to}, {self.file}>"


@cache
def shipped_pipelines() -> tuple[str, ...]:
    """Return the names of the pipelines that come with exirkit."""
    folder = files(__package__ or "exirkit.passes.pipelines")
    return tuple(sorted(each.name.removesuffix(".yaml") for each in folder.iterdir() if each.name.endswith(".yaml")))


def shipped_text(name: str) -> str:
    """Return the text of a pipeline that comes with exirkit, to be copied and changed."""
    return files(__package__ or "exirkit.passes.pipelines").joinpath(f"{name}.yaml").read_text(encoding="utf-8")


@cache
def _shipped(name: str) -> Pipeline:
    return Pipeline.parse(shipped_text(name), f"{name}.yaml")


def _editing(stages: tuple[ResolvedStage, ...], settings: Mapping[str, Any]) -> Iterator[ResolvedStage]:
    for one in stages:
        if not is_active(one, settings):
            continue
        if one.registered is not None or one.rules is not None:
            yield one
        for key, listed in one.inner.items():
            if key != "otherwise":
                yield from _editing(listed, settings)


def _dialect_of(program: ExportedProgram) -> str | None:
    """Return the dialect that the calls of a program are of, or None if they do not tell."""
    found = None
    for module in called_graphs(program.graph_module):
        for node in module.graph.nodes:
            if isinstance(node.target, EdgeOpOverload):
                return "edge"
            if isinstance(node.target, OpOverload) and not is_assertion(node):
                found = "aten"
    return found


def _misuse(message: str, expected: str) -> UsageError:
    return UsageError(code="EK478", message=message, expected=expected)


def decomposition_passes(preserved: frozenset[OpOverload] = frozenset()) -> list[Pass]:
    """Return the passes from an exported program to functional core ATen, each an edit of what it touches.

    They are those of the group `decompose` of the shipped pipeline `to_edge`.

    Args:
        preserved: Operators that stay whole.
    """
    settings = {"preserved-operators": tuple(preserved)}
    return Pipeline.shipped("to_edge").passes(settings, group="decompose")


def to_edge_passes(*, skip_dim_order: bool = False) -> list[Pass]:
    """Return the passes from core ATen to Edge.

    They are those of the group `legalize` of the shipped pipeline `to_edge`.

    Args:
        skip_dim_order: Keep memory formats instead of dim orders.
    """
    return Pipeline.shipped("to_edge").passes({"skip-dim-order": skip_dim_order}, group="legalize")


def to_executorch_passes(
    *,
    alloc_graph_input: bool = True,
    alloc_graph_output: bool = True,
    remove_view_copy: bool = True,
    skip_dim_order: bool = False,
    ignore_to_out_var_failure: bool = False,
) -> list[Pass]:
    """Return the passes from Edge to the ExecuTorch dialect; memory is planned after them.

    They are those of the shipped pipeline `to_executorch`.

    Args:
        alloc_graph_input: Inputs will be planned.
        alloc_graph_output: Outputs will be planned.
        remove_view_copy: Let reshaping copies share the memory of their source.
        skip_dim_order: Introduce no operators of `dim_order_ops` to make layouts agree.
        ignore_to_out_var_failure: Keep operators without out variant as they are.
    """
    return Pipeline.shipped("to_executorch").passes(
        {
            "alloc-graph-input": alloc_graph_input,
            "alloc-graph-output": alloc_graph_output,
            "remove-view-copy": remove_view_copy,
            "skip-dim-order": skip_dim_order,
            "ignore-missing-out-variants": ignore_to_out_var_failure,
        }
    )
