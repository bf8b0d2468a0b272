"""The manager of lowered programs: the emitted program, and the file it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from torch.export import ExportedProgram

from exirkit.emit import EmitterOutput, Program, PteImage, data_file, emit_program, lay_out, print_program, write_file
from exirkit.ir import Diagnostic, UsageError
from exirkit.passes import ExecutorchBackendConfig

from .arguments import method_of, not_yet


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
        return method_of(self._programs, method_name)

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
        """For each method, how many results its instructions have, by index."""
        return self._output.instruction_id_to_num_outs_map

    @property
    def view_bases(self) -> dict[str, dict[int, int]]:
        """For each method, the value whose memory a view shows that needs no instruction, by the view's value.

        The file does not say it; `Runtime.load_program(..., sanitize=True, views=...)` takes it.
        """
        return self._output.view_bases

    @property
    def buffer(self) -> bytes:
        """The file as bytes: one copy of everything. To write a file, `write_to_file` needs no copy."""
        return self._laid_out().to_bytes()

    def write_to_file(self, open_file: BinaryIO) -> None:
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

    @property
    def tensor_data(self) -> dict[str, bytes]:
        """Data files that delegates need beside the program: their bytes by name, without the suffix `.ptd`."""
        alignment = self._config.segment_alignment
        return {
            name: data_file(entries, segment_alignment=alignment)
            for name, entries in self._output.external_data.items()
        }

    def write_tensor_data_to_file(self, outdir: str | PathLike[str]) -> None:
        """Write the data files that delegates need beside the program: `NAME.ptd` for each.

        Args:
            outdir: Folder, which must exist.

        Raises:
            OSError: A file cannot be written.
        """
        for name, data in self.tensor_data.items():
            Path(outdir, f"{name}.ptd").write_bytes(data)

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
        raise not_yet("get_etrecord")

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
