"""The bytes of the file, read and written again."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.emit import lay_out, read_program, restore, restore_mutable_data, restore_named_data
from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.examination import Examination, Failure, failure_of_error
from exirkit.fuzz.oracles.oracle import Oracle
from exirkit.ir import DiagnosticError
from exirkit.program import ExecutorchProgramManager


class ByteRoundTrip(Oracle):
    """The file, read and written again, and the program, emitted again, are the same bytes."""

    name = "byte-round-trip"
    title = "bytes read and written again"
    cost = 100
    needs = ("own file",)
    suspects = ("earlier oracles", "allocation", "emitter")
    former_name = "O10"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield the first byte that differs."""
        lowering = examination.lowering
        assert isinstance(examination.compiler, ExirkitCompiler)
        config = examination.compiler.config(has_names=examination.trace.has_state)
        try:
            file = read_program(lowering.data)
            again = lay_out(
                restore(file),
                mutable_data=restore_mutable_data(file),
                named_data=restore_named_data(file),
                segment_alignment=config.segment_alignment,
                constant_tensor_alignment=config.constant_tensor_alignment,
            ).to_bytes()
        except DiagnosticError as error:
            yield failure_of_error(error, self.name, "emitter")
            return
        emitted = ExecutorchProgramManager(lowering.planned, backend_config=config).buffer
        for what, made in (("file read again", again), ("program emitted again", emitted)):
            if made != lowering.data:
                yield Failure(self.name, f"bytes of the {what}", _first_byte(made, lowering.data), "emitter")


def _first_byte(got: bytes, wanted: bytes) -> str:
    place = next((at for at, (one, other) in enumerate(zip(got, wanted, strict=False)) if one != other), None)
    if place is None:
        return f"{len(got)} bytes instead of {len(wanted)}"
    return f"byte {place} is {got[place]:#04x} instead of {wanted[place]:#04x}"
