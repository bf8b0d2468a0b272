"""The lowering chain: `to_edge`, the managers of its two halves, and nothing that another room can do."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, Any, BinaryIO

from torch.export import ExportedProgram
from torch.fx._lazy_graph_module import _use_lazy_graph_module

from exirkit.emit import (
    EmitterOutput,
    PteImage,
    emit_program,
    lay_out,
    print_program,
    write_file,
)
from exirkit.emit import (
    Program as ProgramSchema,
)
from exirkit.ir import (
    ContractError,
    Diagnostic,
    EdgeProgramVerifier,
    ExecutorchProgramVerifier,
    GraphEditor,
    ModelError,
    UsageError,
    copy_program,
)
from exirkit.passes import (
    EdgeCompileConfig,
    ExecutorchBackendConfig,
    MemoryPlanningPass,
    PassReport,
    apply_user_passes,
    lower_to_executorch,
    run_passes,
    to_edge_passes,
)
from exirkit.verifiers import check_aten_program, check_edge_program

Programs = ExportedProgram | Mapping[str, ExportedProgram]
Progress = Callable[[str], None]


def to_edge(
    programs: Programs,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
    *,
    progress: Progress | None = None,
) -> EdgeProgramManager:
    """Lower exported programs to the Edge dialect.

    Args:
        programs: One program, which becomes the method `forward`, or programs by method name. They are not changed.
        constant_methods: Values by method name; each becomes a method that returns its value.
        compile_config: Choices; see `EdgeCompileConfig`.
        generate_etrecord: Not supported yet.
        progress: Called with a line of text before each long step.

    Raises:
        ModelError: The program is outside of what can be lowered; all findings at once.
        UsageError: EK702, an argument is wrong.

    Source: `to_edge` of the ExecuTorch documentation.
    """
    _refuse(generate_etrecord, "generate_etrecord")
    config = compile_config or EdgeCompileConfig()
    named = _by_method(programs)
    lowered = {name: _edge_program(name, program, config, progress) for name, program in named.items()}
    return EdgeProgramManager(lowered, constant_methods, config)


def to_edge_transform_and_lower(
    programs: Programs,
    transform_passes: Sequence[Any] | Mapping[str, Sequence[Any]] | Any | None = None,
    partitioner: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """Lower exported programs to the Edge dialect and run passes on them.

    Args:
        programs: As for `to_edge`.
        transform_passes: Passes, as for `EdgeProgramManager.transform`.
        partitioner: Not supported yet, apart from an empty list.
        constant_methods: As for `to_edge`.
        compile_config: As for `to_edge`.
        generate_etrecord: Not supported yet.

    Raises:
        UsageError: EK701, a partitioner was given.

    Source: `to_edge_transform_and_lower` of the ExecuTorch documentation.
    """
    _refuse(partitioner, "partitioner")
    manager = to_edge(programs, constant_methods, compile_config, generate_etrecord)
    return manager if transform_passes is None else manager.transform(transform_passes)


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
        self._programs = _by_method(edge_programs)
        self._config_methods = dict(constant_methods or {})
        clash = set(self._programs) & set(self._config_methods)
        if clash:
            raise UsageError(
                Diagnostic(
                    code="EK702", message=f"{sorted(clash)[0]} names both a program and a constant method"
                )
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
        return _method(self._programs, method_name)

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
                _method(self._programs, name)
            chosen = {name: passes.get(name, ()) for name in self._programs}
        else:
            chosen = dict.fromkeys(self._programs, passes)
        changed = {name: apply_user_passes(program, chosen[name]) for name, program in self._programs.items()}
        return EdgeProgramManager(
            changed, self._config_methods, config, self._core_aten_ops_exception_list, self._preserve_ops
        )

    def to_backend(self, partitioner: Any) -> EdgeProgramManager:
        """Delegate parts of the programs to a backend.

        Raises:
            UsageError: EK701, delegation is not supported yet.
        """
        raise _not_yet("to_backend")

    def to_executorch(
        self, config: ExecutorchBackendConfig | None = None, *, progress: Progress | None = None
    ) -> ExecutorchProgramManager:
        """Lower to the ExecuTorch dialect, plan memory and emit.

        Calling it again gives the same bytes again.

        Args:
            config: Choices; see `ExecutorchBackendConfig`.
            progress: Called with a line of text before each long step.

        Raises:
            ModelError: A program cannot be lowered: unbounded sizes, operators without out variant, ...
            ContractError: A pass or a planner broke its word.
        """
        config = config or ExecutorchBackendConfig()
        for option in (
            "external_constants",
            "external_mutable_weights",
            "do_quant_fusion_and_const_prop",
            "run_reinplace_pass",
            "reinplace_extra_ops",
        ):
            _refuse(getattr(config, option), f"ExecutorchBackendConfig.{option}")
        lowered = {
            name: _executorch_program(name, program, config, self.compile_config, progress)
            for name, program in self._programs.items()
        }
        return ExecutorchProgramManager(lowered, self._config_methods, config)


class ExecutorchProgramManager:
    """Programs of the ExecuTorch dialect and the emitted program.

    Args:
        execution_programs: Lowered and planned programs by method name.
        config_methods: Values by method name.
        backend_config: Choices of emission and serialisation.

    Source: `ExecutorchProgramManager` of the ExecuTorch documentation.
    """

    def __init__(
        self,
        execution_programs: Mapping[str, ExportedProgram],
        config_methods: Mapping[str, Any] | None = None,
        backend_config: ExecutorchBackendConfig | None = None,
    ) -> None:
        self._programs = dict(execution_programs)
        self._config_methods = dict(config_methods or {})
        self._config = backend_config or ExecutorchBackendConfig()
        self._output: EmitterOutput = emit_program(
            self._programs,
            emit_stacktrace=self._config.emit_stacktrace,
            emit_mutable_buffer_names=self._config.emit_mutable_buffer_names,
            config_methods=self._config_methods,
        )
        self._image: PteImage | None = None

    @property
    def methods(self) -> set[str]:
        """Names of the methods that are programs."""
        return set(self._programs)

    @property
    def config_methods(self) -> set[str]:
        """Names of the methods that return constants."""
        return set(self._config_methods)

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        """Return the lowered program of one method.

        Raises:
            UsageError: EK703, there is no such method.
        """
        return _method(self._programs, method_name)

    @property
    def executorch_program(self) -> ProgramSchema:
        """The emitted program; its constants are views of the weights."""
        return self._output.program

    @property
    def debug_handle_map(self) -> dict[str, dict[int, int | tuple[int, ...]]]:
        """For each method, the debug handles of its instructions by index."""
        return self._output.debug_handle_map

    @property
    def delegate_map(self) -> dict[str, dict[int, Any]]:
        """For each method, what delegates report about their instructions."""
        return self._output.method_to_delegate_debug_id_map

    @property
    def instruction_id_to_num_outs_map(self) -> dict[str, dict[int, int]]:
        """For each method, how many results its instructions have, by index."""
        return self._output.instruction_id_to_num_outs_map

    @property
    def buffer(self) -> bytes:
        """The file as bytes: one copy of everything. To write a file, `write_to_file` needs no copy."""
        return self._laid_out().to_bytes()

    def write_to_file(self, open_file: IO[bytes] | BinaryIO | io.BufferedIOBase) -> None:
        """Stream the file into an open binary file; weights go there directly."""
        self._laid_out().write_to(open_file)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file; after a failure there is no half file.

        Raises:
            UsageError: EK704, the path does not end in `.pte`.
            OSError: The file cannot be written.
        """
        path = Path(path)
        if path.suffix != ".pte":
            raise UsageError(
                Diagnostic(code="EK704", message=f"{path} does not end in .pte", hint=f"save to {path.stem}.pte")
            )
        write_file(path, self._laid_out())

    def write_tensor_data_to_file(self, outdir: str | PathLike[str]) -> None:
        """Write external tensor data; programs hold all of theirs, so there is nothing to write."""

    def dump_executorch_program(self, verbose: bool = False, out: Any = None) -> None:
        """Print the emitted program.

        Args:
            verbose: Print every field of the schema instead of a listing.
            out: Text stream; standard output when absent.
        """
        print_program(self._output.program, verbose=verbose, out=out)

    def get_etrecord(self) -> Any:
        """Raise: there is no record.

        Raises:
            UsageError: EK701, records are not supported yet.
        """
        raise _not_yet("get_etrecord")

    def _laid_out(self) -> PteImage:
        if self._image is None:
            self._image = lay_out(
                self._output.program,
                mutable_data=self._output.mutable_data,
                named_data=self._output.named_data,
                segment_alignment=self._config.segment_alignment,
                constant_tensor_alignment=self._config.constant_tensor_alignment,
                delegate_alignment=self._config.delegate_alignment,
                extract_delegate_segments=self._config.extract_delegate_segments,
            )
        return self._image


def _edge_program(
    name: str, program: ExportedProgram, config: EdgeCompileConfig, progress: Progress | None
) -> ExportedProgram:
    _say(progress, f"{name}: decomposing")
    table = program_decompositions(config.preserve_ops)
    # Nobody calls the graphs in between, so no code is generated for them.
    with _use_lazy_graph_module(True):
        decomposed = program.run_decompositions(table)
    if config._check_ir_validity:
        exceptions = {*config._core_aten_ops_exception_list, *config.preserve_ops}
        findings = check_aten_program(decomposed, exceptions=exceptions)
        if findings:
            raise ModelError(findings)
    _say(progress, f"{name}: lowering to Edge")
    edge = copy_program(decomposed, verifier=EdgeProgramVerifier)
    run_passes(GraphEditor(edge), to_edge_passes(skip_dim_order=config._skip_dim_order))
    return edge


def program_decompositions(preserved: Sequence[Any]) -> dict[Any, Callable[..., Any]]:
    """Return torch's decompositions to core ATen, without those of the operators to preserve."""
    from torch.export import default_decompositions

    table: dict[Any, Callable[..., Any]] = default_decompositions()
    for op in preserved:
        table.pop(op, None)
    return table


def _executorch_program(
    name: str,
    program: ExportedProgram,
    config: ExecutorchBackendConfig,
    compile_config: EdgeCompileConfig,
    progress: Progress | None,
) -> ExportedProgram:
    planner = _planner(config, name)
    _say(progress, f"{name}: lowering to ExecuTorch")
    lowered = apply_user_passes(program, config.passes) if config.passes else copy_program(program)
    lowered._verifiers = [ExecutorchProgramVerifier]
    lower_to_executorch(GraphEditor(lowered), config, planner, skip_dim_order=compile_config._skip_dim_order)
    _say(progress, f"{name}: planning memory")
    planner.run(lowered.graph_module, lowered.graph_signature)
    return lowered


def _planner(config: ExecutorchBackendConfig, method: str) -> MemoryPlanningPass:
    planner = config.memory_planning_pass
    if isinstance(planner, dict):
        return planner.get(method) or MemoryPlanningPass()
    return planner


def _check_edge(programs: Mapping[str, ExportedProgram]) -> None:
    findings = [
        finding.model_copy(update={"location": finding.location.model_copy(update={"method": name})})
        for name, program in programs.items()
        for finding in check_edge_program(program)
    ]
    if findings:
        raise ContractError(findings)


def _by_method(programs: Programs) -> dict[str, ExportedProgram]:
    named = {"forward": programs} if isinstance(programs, ExportedProgram) else dict(programs)
    for name, program in named.items():
        if not isinstance(program, ExportedProgram) or not isinstance(name, str):
            raise UsageError(
                Diagnostic(
                    code="EK702",
                    message=f"method {name!r} is a {type(program).__name__}",
                    expected="a torch.export.ExportedProgram",
                    hint="export the module first: torch.export.export(module, example_inputs)",
                )
            )
    return named


def _method(programs: Mapping[str, ExportedProgram], name: str) -> ExportedProgram:
    if name not in programs:
        known = ", ".join(sorted(programs))
        raise UsageError(Diagnostic(code="EK703", message=f"there is no method {name}", notes=(f"methods: {known}",)))
    return programs[name]


def _refuse(value: Any, option: str) -> None:
    if value:
        raise _not_yet(option)


def _not_yet(what: str) -> UsageError:
    return UsageError(Diagnostic(code="EK701", message=f"{what} is not supported yet"))


def _say(progress: Progress | None, line: str) -> None:
    if progress is not None:
        progress(line)


__all__ = [
    "EdgeProgramManager",
    "ExecutorchProgramManager",
    "PassReport",
    "to_edge",
    "to_edge_transform_and_lower",
]
