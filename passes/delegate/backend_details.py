"""What a backend implements: from programs to bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch.export import ExportedProgram

from exirkit.ir import CompileSpec, copy_program

DebugHandleMap = Mapping[int, tuple[int, ...]] | Mapping[str, tuple[int, ...]]


@dataclass
class PreprocessResult:
    """What a backend made of a program.

    Attributes:
        processed_bytes: What its runtime is given.
        debug_handle_map: Debug handles of the operators behind each identifier of the backend; see
            `DelegateMappingBuilder`.
        data_store_output: Named data that the delegate reads at run time: bytes by name.
        external_data: Named data that is to lie in data files beside the program: bytes by name, by the name of the
            file without its suffix `.ptd`.
    """

    processed_bytes: bytes = b""
    debug_handle_map: DebugHandleMap | None = None
    data_store_output: Mapping[str, bytes] | None = field(default=None)
    external_data: Mapping[str, Mapping[str, bytes]] | None = None


class BackendDetails:
    """A backend. Subclasses are known by the name of their class, as soon as they are defined.

    Source: `BackendDetails` of the ExecuTorch documentation.
    """

    defined: ClassVar[dict[str, type[BackendDetails]]] = {}
    """Backends by name; the latest definition of a name counts."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        BackendDetails.defined[cls.__name__] = cls

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Compile a program of the Edge dialect.

        Args:
            edge_program: The program; weights that the partitioner tagged are among its state, others are its inputs.
            compile_specs: What to compile for.
        """
        raise NotImplementedError("a backend implements `preprocess`, or `preprocess_multimethod`")

    @classmethod
    def preprocess_multimethod(
        cls, edge_programs: dict[str, list[ExportedProgram]], compile_specs: dict[str, list[list[CompileSpec]]]
    ) -> dict[str, list[PreprocessResult]]:
        """Compile all programs of all methods at once, so that they may share; one after the other unless overridden.

        Args:
            edge_programs: Programs by method.
            compile_specs: What to compile each for.

        Returns:
            Results by method, in the order of the programs.
        """
        return {
            method: [
                cls.preprocess(program, specs) for program, specs in zip(programs, compile_specs[method], strict=True)
            ]
            for method, programs in edge_programs.items()
        }

    @staticmethod
    def copy_exported_program_for_preprocess(exported_program: ExportedProgram) -> ExportedProgram:
        """Return what `preprocess` is given: graphs are copied, weights are shared."""
        return copy_program(exported_program)
