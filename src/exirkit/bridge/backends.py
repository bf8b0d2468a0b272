"""Backends of the official package as backends of ours."""

from __future__ import annotations

from typing import Any

from executorch.exir.backend.backend_details import BackendDetails as OfficialBackendDetails
from executorch.exir.backend.compile_spec_schema import CompileSpec as OfficialCompileSpec
from torch.export import ExportedProgram

from exirkit.ir import CompileSpec, Diagnostic, UsageError
from exirkit.passes import BackendDetails, PreprocessResult, stored_data
from exirkit.program import cheap_tracing

from .chains import XNNPACK_CHAIN, chain_of, replacing_passes, run_chain
from .known_defects import check_known_defects, is_laid_out_wrong
from .operators import official_program
from .xnnpack_linears import forget_linears_of_several_calls, with_float_weights


def official_backend(backend_id: str) -> type[BackendDetails]:
    """Return a backend of the official package as one of ours; from then on it is registered under its name.

    Raises:
        UsageError: EK751, the module that defines it has not been imported.
    """
    known = BackendDetails.defined.get(backend_id)
    if known is not None:
        return known
    imported = _imported_backends()
    theirs = imported.get(backend_id)
    if theirs is None:
        raise UsageError(
            Diagnostic.of(
                "EK751", f"the official package knows no backend {backend_id!r}", expected=", ".join(sorted(imported))
            )
        )

    def preprocess_multimethod(
        cls: type[BackendDetails],
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        del cls
        given = {
            name: [[OfficialCompileSpec(spec.key, spec.value) for spec in specs] for specs in lists]
            for name, lists in compile_specs.items()
        }
        for program in (one for programs in edge_programs.values() for one in programs):
            check_known_defects(backend_id, program)
            if backend_id == "XnnpackBackend":
                forget_linears_of_several_calls(program)
        with cheap_tracing(), replacing_passes(backend_id):
            made = theirs.preprocess_multimethod(edge_programs, given)
        return {name: [_result(one) for one in results] for name, results in made.items()}

    def copy_exported_program_for_preprocess(exported_program: ExportedProgram) -> ExportedProgram:
        chain = chain_of(exported_program)
        if backend_id == "XnnpackBackend":
            exported_program = with_float_weights(exported_program)
            if chain is None and is_laid_out_wrong(exported_program):
                chain = XNNPACK_CHAIN
        return official_program(exported_program if chain is None else run_chain(exported_program, chain))

    return type(
        backend_id,
        (BackendDetails,),
        {
            "preprocess_multimethod": classmethod(preprocess_multimethod),
            "copy_exported_program_for_preprocess": staticmethod(copy_exported_program_for_preprocess),
        },
    )


def _imported_backends() -> dict[str, type[Any]]:
    """Return the official backends by name, as far as their modules are imported; they cannot be derived from."""
    return {one.__name__: one for one in OfficialBackendDetails.__subclasses__()}


def _result(made: Any) -> PreprocessResult:
    named, external = stored_data(made.data_store_output)
    return PreprocessResult(bytes(made.processed_bytes), made.debug_handle_map, named, external)
