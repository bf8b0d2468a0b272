"""The manager of Edge programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.export import ExportedProgram

from exirkit.ir import (
    ContractError,
    Diagnostic,
    DiagnosticError,
    ModelError,
    UsageError,
)
from exirkit.passes import (
    EdgeCompileConfig,
    ExecutorchBackendConfig,
    MemoryPlanningPass,
    Partitioner,
    Pipeline,
    apply_user_passes,
    edge_settings,
    executorch_settings,
    finalize_methods,
    has_library_operators,
    reject_readers_of_shared_buffers,
)
from exirkit.verifiers import check_edge_program, check_kernels

from .arguments import Programs, Progress, by_method, method_of, pipeline_between, reject
from .delegation import delegated_methods
from .executorch import ExecutorchProgramManager
from .optimizing import MethodLowering, check_optimization, kernels_of, target_of


class EdgeProgramManager:
    """Programs of the Edge dialect by method name, and the way from there to ExecuTorch.

    No method changes the manager or its programs: each returns something new.

    Args:
        edge_programs: One program (`forward`), or programs by method name.
        constant_methods: Values by method name.
        compile_config: Choices that later steps respect.
        core_aten_ops_exception_list: Overloads accepted although they are not core ATen.
        preserve_ops: Overloads that were not decomposed.

    Source: `EdgeProgramManager` of the ExecuTorch documentation.
    """

    def __init__(
        self,
        edge_programs: Programs,
        constant_methods: Mapping[str, Any] | None = None,
        compile_config: EdgeCompileConfig | None = None,
        core_aten_ops_exception_list: Sequence[Any] | None = None,
        preserve_ops: Sequence[Any] | None = None,
    ) -> None:
        self.compile_config = compile_config or EdgeCompileConfig()
        self._core_aten_ops_exception_list = list(core_aten_ops_exception_list or ())
        self._preserve_ops = list(preserve_ops or ())
        self._programs = by_method(edge_programs)
        self._config_methods = dict(constant_methods or {})
        clash = set(self._programs) & set(self._config_methods)
        if clash:
            raise UsageError(
                Diagnostic(code="EK702", message=f"{sorted(clash)[0]} names both a program and a constant method")
            )
        if self.compile_config._check_ir_validity:
            _check_edge(self._programs)

    @property
    def methods(self) -> set[str]:
        """Names of the methods that are programs."""
        return set(self._programs)

    @property
    def config_methods(self) -> set[str]:
        """Names of the methods that return constants."""
        return set(self._config_methods)

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        """Return the program of one method.

        Raises:
            UsageError: EK703, there is no such method.
        """
        return method_of(self._programs, method_name)

    def transform(
        self,
        passes: Sequence[Any] | Mapping[str, Sequence[Any]] | Any,
        compile_config: EdgeCompileConfig | None = None,
    ) -> EdgeProgramManager:
        """Run passes on copies of the programs.

        Args:
            passes: A list of passes for all methods, a mapping from method names to lists, or a `PassManager`.
            compile_config: Choices for the result; the manager's own when absent.

        Raises:
            ContractError: A pass broke its word; see `exirkit.passes.apply_user_passes`.
            UsageError: EK703, the mapping names a method that is not there.
        """
        config = compile_config or self.compile_config
        if isinstance(passes, Mapping):
            for name in passes:
                method_of(self._programs, name)
            chosen = {name: passes.get(name, ()) for name in self._programs}
        else:
            chosen = dict.fromkeys(self._programs, passes)
        changed = {name: apply_user_passes(program, chosen[name]) for name, program in self._programs.items()}
        return EdgeProgramManager(
            changed, self._config_methods, config, self._core_aten_ops_exception_list, self._preserve_ops
        )

    def to_backend(self, partitioner: Partitioner | Mapping[str, Partitioner]) -> EdgeProgramManager:
        """Delegate parts of the programs to backends.

        Args:
            partitioner: One for all methods, or partitioners by method; programs of other methods stay as they are.

        Raises:
            ContractError: EK491 to EK493, EK741, EK742, a partitioner or a backend broke its word.
            UsageError: EK490, there is no such backend; EK703, the mapping names a method that is not there.
        """
        chosen = partitioner if isinstance(partitioner, Mapping) else dict.fromkeys(self._programs, partitioner)
        for name in chosen:
            method_of(self._programs, name)
        made = delegated_methods(self._programs, chosen)
        config = replace(self.compile_config, _check_ir_validity=False)
        return EdgeProgramManager(
            made, self._config_methods, config, self._core_aten_ops_exception_list, self._preserve_ops
        )

    def to_executorch(
        self,
        config: ExecutorchBackendConfig | None = None,
        *,
        pipeline: Pipeline | None = None,
        progress: Progress | None = None,
    ) -> ExecutorchProgramManager:
        """Lower to the ExecuTorch dialect, plan memory and emit.

        Calling it again gives the same bytes again.

        Args:
            config: Choices; see `ExecutorchBackendConfig`.
            pipeline: What to do instead of the pipeline `to_executorch` that comes with exirkit.
            progress: Called with a line of text before each long step.

        Raises:
            ModelError: A program cannot be lowered: unbounded sizes, operators without out variant, calls that no
                kernel of the target takes (EK359, EK360), ... What can be known of all methods before work begins is
                listed at once.
            ContractError: A pass or a planner broke its word.
            UsageError: EK705, the pipeline does not lead from Edge to ExecuTorch.
        """
        config = config or ExecutorchBackendConfig()
        for option in (
            "external_constants",
            "external_mutable_weights",
            "do_quant_fusion_and_const_prop",
            "run_reinplace_pass",
            "reinplace_extra_ops",
        ):
            reject(getattr(config, option), f"ExecutorchBackendConfig.{option}")
        check_optimization(config)
        kernels = kernels_of(target_of(config))
        pipeline = pipeline_between(pipeline, "to_executorch")
        programs = {
            name: apply_user_passes(program, config.passes) if config.passes else program
            for name, program in self._programs.items()
        }
        planners = {name: _planner(config, name) for name in programs}
        settings = {
            name: {**edge_settings(self.compile_config), **executorch_settings(config, planner)}
            for name, planner in planners.items()
        }
        programs = {name: _without_library_operators(one, settings[name]) for name, one in programs.items()}
        for planner, names in _by_planner(planners).items():
            if planner.share_mutable_buffers:
                reject_readers_of_shared_buffers({name: programs[name] for name in names})
        findings = {name: pipeline.leading_findings(programs[name], settings[name]) for name in programs}
        _raise_all(ModelError, findings)
        lowered: dict[str, ExportedProgram] = {}
        for name, program in programs.items():
            lowering = MethodLowering(name, pipeline, planners[name], settings[name], progress)
            lowered[name] = lowering.optimized(program, config)
        if kernels is not None:
            _raise_all(ModelError, {name: check_kernels(program, kernels) for name, program in lowered.items()})
        finalize_methods(lowered, planners)
        for planner in _by_planner(planners):
            planner.run_multimethod()
        return ExecutorchProgramManager(lowered, self._config_methods, config)


def _without_library_operators(program: ExportedProgram, settings: Mapping[str, Any]) -> ExportedProgram:
    """Return a program in which the composite operators of libraries that have no out variant are decomposed."""
    if settings["ignore-missing-out-variants"] or not has_library_operators(program):
        return program
    return Pipeline.shipped("library_operators").run(program, settings=settings).program


def _planner(config: ExecutorchBackendConfig, method: str) -> MemoryPlanningPass:
    planner = config.memory_planning_pass
    if isinstance(planner, dict):
        return planner.get(method) or MemoryPlanningPass()
    return planner


def _by_planner(planners: Mapping[str, MemoryPlanningPass]) -> dict[MemoryPlanningPass, list[str]]:
    """Return the planners, each once, with the methods that it plans."""
    found: dict[MemoryPlanningPass, list[str]] = {}
    for name, planner in planners.items():
        found.setdefault(planner, []).append(name)
    return found


def _check_edge(programs: Mapping[str, ExportedProgram]) -> None:
    _raise_all(ContractError, {name: check_edge_program(program) for name, program in programs.items()})


def _raise_all(kind: type[DiagnosticError], findings: Mapping[str, Sequence[Diagnostic]]) -> None:
    """Raise the findings of all methods at once, each with the name of its method."""
    named = [
        finding.model_copy(update={"location": finding.location.model_copy(update={"method": name})})
        for name, found in findings.items()
        for finding in found
    ]
    if named:
        raise kind(named)
