"""A pipeline: read from a file, checked before anything runs, and run on programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch._ops import OpOverload
from torch.export import ExportedProgram

from exirkit.ir import (
    Diagnostic,
    DocumentCodes,
    EdgeOpOverload,
    EdgeProgramVerifier,
    ExecutorchProgramVerifier,
    ModelError,
    UsageError,
    YamlSource,
    called_graphs,
    in_file_order,
    read_document,
    read_text,
)
from exirkit.passes.contract import Pass
from exirkit.passes.registry import PassRegistry
from exirkit.passes.to_executorch.asserts import is_assertion
from exirkit.passes.user_passes.base import ExportedProgramPassBase, ExportedProgramPassResult

from .model import PipelineModel
from .resolving import OrderCheck, ResolvedStage, Resolver, initial_knowledge, is_active
from .running import PipelineResult, PipelineRun, Progress, built_pass
from .settings import SETTINGS

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
            path: Path of the file.
            passes: Passes that the file may name besides those of exirkit and of plug-ins: classes or objects by name.

        Raises:
            ModelError: All that is wrong with the file: EK470 to EK475, and what is wrong with its rule books.
            OSError: The file cannot be read.
        """
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

    def run(
        self,
        program: ExportedProgram,
        *,
        settings: Mapping[str, Any] | None = None,
        stop_after: str | int | None = None,
        progress: Progress | None = None,
    ) -> PipelineResult:
        """Run the stages on a copy of a program.

        Args:
            program: A program of the dialect that the pipeline takes; it is not changed.
            settings: Values of settings, where they are not the usual ones.
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
        run.run(self.stages)
        made = _VERIFIERS.get(self.model.dialect.to)
        if made is not None:
            run.program._verifiers = [made]
        return PipelineResult(run.program, tuple(run.reports), run.is_complete)

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
    return UsageError(Diagnostic(code="EK478", message=message, expected=expected))


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
