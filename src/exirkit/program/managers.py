"""The managers of Edge and of ExecuTorch programs, and the way from one to the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from torch.export import ExportedProgram

from exirkit.devtools import ETRecord
from exirkit.emit import (
    EmitterOutput,
    FileImage,
    Program,
    PteImage,
    data_file,
    emit_program,
    lay_out,
    print_program,
    write_files,
)
from exirkit.ir import (
    ATTRIBUTE_KEYS,
    ContractError,
    Diagnostic,
    DiagnosticError,
    ModelError,
    UsageError,
    locate,
    seldom_collected,
)
from exirkit.passes import (
    EdgeCompileConfig,
    ExecutorchBackendConfig,
    FuseQuantizedEmbeddings,
    MemoryPlanningPass,
    Partitioner,
    Pipeline,
    UseQuantizedKernels,
    apply_user_passes,
    edge_settings,
    executorch_settings,
    finalize_methods,
    has_library_operators,
    has_quantized_blocks,
    has_quantized_embeddings,
    reject_readers_of_shared_buffers,
)
from exirkit.verifiers import KernelTable, check_edge_program, check_kernels, check_quantization

from .delegation import delegated_methods
from .external_constants import file_of_constant, has_external_constants, mark_external_constants
from .in_place import in_place_settings
from .one_method import MethodLowering, Progress, check_optimization, kernels_of, target_of

Programs = ExportedProgram | Mapping[str, ExportedProgram]


def by_method(programs: Programs) -> dict[str, ExportedProgram]:
    """Return programs by method name; one program alone is `forward` (raises EK702 for anything else)."""
    named = dict(programs) if isinstance(programs, Mapping) else {"forward": programs}
    for name, program in named.items():
        if not isinstance(program, ExportedProgram) or not isinstance(name, str):
            raise UsageError(
                Diagnostic.of(
                    "EK702",
                    f"method {name!r} is a {type(program).__name__}",
                    expected="a torch.export.ExportedProgram",
                    hint="export the module first: torch.export.export(module, example_inputs)",
                )
            )
    return named


def method_of(programs: Mapping[str, ExportedProgram], name: str) -> ExportedProgram:
    """Return the program of a method (raises EK703 if there is none)."""
    if name not in programs:
        known = ", ".join(sorted(programs))
        raise UsageError(Diagnostic.of("EK703", f"there is no method {name}", notes=(f"methods: {known}",)))
    return programs[name]


def pipeline_between(given: Pipeline | None, usual: str) -> Pipeline:
    """Return a pipeline for a step of the chain.

    Args:
        given: What the caller wants; the one that comes with exirkit when absent.
        usual: Name of that.

    Raises:
        UsageError: EK705, it takes or makes another dialect than the step.
    """
    shipped = Pipeline.shipped(usual)
    if given is None:
        return shipped
    if given.model.dialect != shipped.model.dialect:
        here, wanted = given.model.dialect, shipped.model.dialect
        raise UsageError(
            Diagnostic.of(
                "EK705",
                f"pipeline {given.name} leads from {here.from_} to {here.to}",
                expected=f"one from {wanted.from_} to {wanted.to} for {usual}",
            )
        )
    return given


class _Methods:
    """Programs, and values of constant methods, by method name."""

    _programs: dict[str, ExportedProgram]
    _config_methods: dict[str, Any]

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


class ExecutorchProgramManager(_Methods):
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
            file_of_constant=file_of_constant(self._config),
        )
        self._image: PteImage | None = None
        self._buffer: bytes | None = None
        self._recorded: dict[str, ExportedProgram] | None = None

    @property
    def executorch_program(self) -> Program:
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
        """For each method, how many results its calls of delegates have, by index of the instruction."""
        return self._output.instruction_id_to_num_outs_map

    @property
    def view_bases(self) -> dict[str, dict[int, int]]:
        """For each method, the value whose memory a view shows that needs no instruction, by the view's value.

        The file does not say it; `Runtime.load_program(..., sanitize=True, views=...)` takes it.
        """
        return self._output.view_bases

    @property
    def buffer(self) -> bytes:
        """The file as bytes: one copy of everything, which is kept. To write a file, `write_to_file` needs no copy.

        Runtimes read a program where it lies: `Runtime.get().load_program(manager.buffer)` of the official package does
        not keep the bytes alive.
        """
        if self._buffer is None:
            self._buffer = self._laid_out().to_bytes()
        return self._buffer

    def write_to_file(self, open_file: BinaryIO) -> None:
        """Stream the file into an open binary file; weights go there directly."""
        self._laid_out().write_to(open_file)

    def save(
        self, path: str | PathLike[str], *, data_files: bool = False, progress: Progress | None = None
    ) -> list[Path]:
        """Write the file; after a failure there is no half file.

        Args:
            path: The file.
            data_files: Whether to write the data files too that the program needs, into the same folder; after a
                failure there is none of them, and no program.
            progress: Called with a line of text before each gigabyte.

        Returns:
            The data files that were written.

        Raises:
            UsageError: EK704, the path does not end in `.pte`.
            OSError: A file cannot be written.
        """
        path = Path(path)
        if path.suffix != ".pte":
            raise UsageError(Diagnostic.of("EK704", f"{path} does not end in .pte", hint=f"save to {path.stem}.pte"))
        images = self._images_in(path.parent) if data_files else {}
        write_files({path: self._laid_out(), **images}, progress)
        return list(images)

    @property
    def tensor_data(self) -> dict[str, bytes]:
        """The data files that the program needs beside it: their bytes by name, without the suffix `.ptd`.

        To write the files, `write_tensor_data_to_file` needs no copy.
        """
        return {name: image.to_bytes() for name, image in self._data_files()}

    def write_tensor_data_to_file(self, outdir: str | PathLike[str]) -> list[Path]:
        """Write the data files that the program needs beside it: `NAME.ptd` for each, or nothing if it needs none.

        After a failure there is none of them. `save(data_files=True)` writes program and data files together.

        Args:
            outdir: Folder, which must exist. A file of the same name is replaced.

        Returns:
            The files.

        Raises:
            OSError: A file cannot be written.
        """
        images = self._images_in(outdir)
        write_files(images)
        return list(images)

    def _images_in(self, folder: str | PathLike[str]) -> dict[Path, FileImage]:
        return {Path(folder, f"{name}.ptd"): image for name, image in self._data_files()}

    def dump_executorch_program(self, verbose: bool = False, out: Any = None) -> None:
        """Print the emitted program.

        Args:
            verbose: Print every field of the schema instead of a listing.
            out: Text stream; standard output when absent.
        """
        print_program(self._output.program, verbose=verbose, out=out)

    def get_etrecord(self) -> ETRecord:
        """Return the record of the lowering: which nodes of the Edge programs are behind each instruction.

        Raises:
            UsageError: EK746, `to_edge` was not told to keep what that needs.
        """
        if self._recorded is None:
            raise UsageError(Diagnostic.of("EK746", "nothing was recorded while this program was lowered"))
        return ETRecord(
            self._recorded,
            debug_handle_map=self.debug_handle_map,
            delegate_map=self.delegate_map,
            instruction_id_to_num_outs_map=self.instruction_id_to_num_outs_map,
        )

    def _data_files(self) -> Iterator[tuple[str, FileImage]]:
        for name, entries in sorted(self._output.external_data.items()):
            yield name, data_file(entries, segment_alignment=self._config.segment_alignment)

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


class EdgeProgramManager(_Methods):
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
        self._recorded: dict[str, ExportedProgram] | None = None
        clash = set(self._programs) & set(self._config_methods)
        if clash:
            raise UsageError(Diagnostic.of("EK702", f"{sorted(clash)[0]} names both a program and a constant method"))
        if self.compile_config._check_ir_validity:
            _check_edge(self._programs)

    @seldom_collected()
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
        # A program with delegates is not recorded: the one before has the calls that they hide.
        is_delegated = self._recorded is not None and self._recorded is not self._programs
        made = EdgeProgramManager(
            changed, self._config_methods, config, self._core_aten_ops_exception_list, self._preserve_ops
        )
        made._recorded = self._recorded if is_delegated or self._recorded is None else made._programs
        return made

    @seldom_collected()
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
        delegated = EdgeProgramManager(
            made, self._config_methods, config, self._core_aten_ops_exception_list, self._preserve_ops
        )
        delegated._recorded = self._recorded
        return delegated

    def recording(self) -> EdgeProgramManager:
        """Return this manager, which from here on keeps what `get_etrecord` needs after lowering."""
        self._recorded = self._programs
        return self

    @seldom_collected()
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
            ModelError: A program cannot be lowered: unbounded sizes, operators without out variant, parameters of
                quantized values that cannot be right (EK362 to EK370), calls that no kernel of the target takes (EK359,
                EK360), ... What can be known of all methods before work begins is listed at once.
            ContractError: A pass or a planner broke its word.
            UsageError: EK705, the pipeline does not lead from Edge to ExecuTorch; EK769, `external_constants` returns
                something else than the name of a file; EK763, `reinplace_extra_ops` has an operator that cannot write
                in place.
        """
        config = config or ExecutorchBackendConfig()
        check_optimization(config)
        kernels = kernels_of(target_of(config))
        pipeline = pipeline_between(pipeline, "to_executorch")
        programs = {
            name: apply_user_passes(program, config.passes) if config.passes else program
            for name, program in self._programs.items()
        }
        if has_external_constants(config):
            programs = mark_external_constants(programs, config)
        planners = {name: _planner(config, name) for name in programs}
        in_place = in_place_settings(config, kernels)
        settings = {
            name: {**edge_settings(self.compile_config), **executorch_settings(config, planner), **in_place}
            for name, planner in planners.items()
        }
        if config.do_quant_fusion_and_const_prop:
            fusion = Pipeline.shipped("quant_fusion")
            programs = {name: fusion.run(one, settings=settings[name]).program for name, one in programs.items()}
        if config.optimization_level:
            packs = config.optimization_level == 2 and config.optimize_for == "size"
            programs = {
                name: _with_quantized_kernels(one, kernels, packs_weights=packs) for name, one in programs.items()
            }
        programs = {name: _without_library_operators(one, settings[name]) for name, one in programs.items()}
        for planner, names in _by_planner(planners).items():
            if planner.share_mutable_buffers:
                reject_readers_of_shared_buffers({name: programs[name] for name in names})
        quantization = {name: check_quantization(program) for name, program in programs.items()}
        _raise_all(
            ModelError,
            {name: [*_attributes(programs[name]), *_errors(found)] for name, found in quantization.items()},
        )
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
        made = ExecutorchProgramManager(lowered, self._config_methods, config)
        made._recorded = self._recorded
        return made


def _attributes(program: ExportedProgram) -> list[Diagnostic]:
    """Return a finding for each call with attributes: kernels do not know of them."""
    return [
        Diagnostic.of("EK726", f"%{node.name} has the attribute {', '.join(keys)}", location=locate(node))
        for node in program.graph.nodes
        if (keys := node.meta.get(ATTRIBUTE_KEYS))
    ]


def _errors(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    return [one for one in findings if one.severity == "error"]


def _with_quantized_kernels(
    program: ExportedProgram, kernels: KernelTable | None, *, packs_weights: bool
) -> ExportedProgram:
    """Return a program whose quantized tables and blocks are read by the kernels for that, if the target has them."""
    if kernels is None or not kernels.has("quantized_decomposed::embedding_byte.out"):
        return program
    found = has_quantized_embeddings(program, packs_weights=packs_weights)
    passes = [FuseQuantizedEmbeddings(packs_weights=packs_weights)] if found else []
    if not has_quantized_blocks(program):
        return apply_user_passes(program, passes) if passes else program
    return apply_user_passes(program, [*passes, UseQuantizedKernels()])


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
