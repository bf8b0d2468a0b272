"""A metamorphic relation: a compiler makes the same file of the same programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch.export import ExportedProgram

from exirkit.fuzz.compilers import LoweringTrace
from exirkit.fuzz.examination import Examination, Failure, failure_of_error
from exirkit.fuzz.oracles.oracle import Oracle

_ONE_OF = 4


class LoweredAgain(Oracle):
    """Lowering the same exported programs once more, and exporting once more and lowering that, makes the same bytes.

    It lowers twice: it is asked when it is named, and by every fourth seed.
    """

    name = "lowered-again"
    title = "the same programs give the same file"
    cost = 135
    is_default = False
    needs = ("file",)
    suspects = ("stage",)

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what another lowering makes of the same programs."""
        if examination.seed % _ONE_OF != 0:
            return
        first = examination.lowering.data
        ways: dict[str, Callable[[], Mapping[str, ExportedProgram]]] = {
            "lowered once more": lambda: examination.exported,
            "exported once more": examination.build,
        }
        for title, make in ways.items():
            trace = LoweringTrace(has_state=examination.trace.has_state)
            try:
                data = examination.compiler.lower(make(), trace).data
            except Exception as error:  # whatever the chain raises is a finding: it did not the first time
                yield failure_of_error(error, self.name, trace.current)
                return
            if data != first:
                at = next((at for at, pair in enumerate(zip(data, first, strict=False)) if pair[0] != pair[1]), -1)
                message = f"{title}, the file has {len(data)} bytes, not {len(first)}, and differs from byte {at} on"
                yield Failure(self.name, f"other bytes {title}", message, trace.current or "compiler")
                return
