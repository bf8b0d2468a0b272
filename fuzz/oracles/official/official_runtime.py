"""The official C++ runtime on the file."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

from exirkit.emit import JumpFalseCall, read_program
from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.examination import Examination, Failure, NotRunError, ResultComparison
from exirkit.fuzz.official import Failure as OfficialFailure
from exirkit.fuzz.official import OfficialRuntime
from exirkit.fuzz.oracles.oracle import Oracle
from exirkit.ir import Diagnostic
from exirkit.patterns import read_target
from exirkit.program import kernels_of
from exirkit.runtime_ref import OperatorRegistry, check_plan_kernels

TIMEOUT_S = 20.0

_BLAMED = re.compile(r"KernelCall failed at instruction \d+:(\d+) in operator (\S+): (0x[0-9a-f]+)")


@functools.cache
def official_runtime() -> OfficialRuntime:
    """One warm worker for the whole process; it ends with it."""
    return OfficialRuntime()


class OfficialRuntimeRun(Oracle):
    """The official C++ runtime takes our file and gives what eager torch gives."""

    name = "official-runtime"
    title = "the official runtime on the file"
    cost = 125
    is_default = False
    needs = ("official wheel", "file")
    suspects = ("earlier oracles", "allocation", "stage")
    former_name = "O11"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what differs, or what is accepted that we reject."""
        data = examination.lowering.data
        expected = findings_of_kernels(data)
        # Files of other compilers have to run, even where we would have rejected the program.
        is_ours = isinstance(examination.compiler, ExirkitCompiler)
        if is_ours and any(one.code == "EK359" for one in expected):
            raise NotRunError(f"the official runtime does not claim to: {expected[0].message}"[:200])
        comparison = ResultComparison(examination, self.name, "official-runtime", is_signed_zero_free=True)
        for method in examination.methods:
            calls = [list(inputs) for inputs in examination.inputs[method]]
            answer = official_runtime().run(data, calls, method=method, timeout_s=TIMEOUT_S)
            rejected = [one for one in expected if one.location.method == method and is_ours]
            wrong = _compared(self.name, method, answer.failure, rejected, _has_jumps(data, method))
            if wrong is not None:
                yield wrong
                return
            for index, outputs in enumerate(answer.outputs):
                expectation = examination.lowered_expectations[method]
                yield from comparison.failures(method, index, outputs, {}, expectation)


def findings_of_kernels(data: bytes) -> list[Diagnostic]:
    """Return what our description of the official runtime says of a file: EK359 and EK360."""
    table = kernels_of(read_target("official_host"))
    assert table is not None
    registry = OperatorRegistry()
    plans = read_program(data).program.execution_plan
    return [finding for plan in plans for finding in check_plan_kernels(plan, registry, table)]


def _compared(
    oracle: str, method: str, failure: OfficialFailure | None, rejected: Sequence[Diagnostic], has_jumps: bool
) -> Failure | None:
    """Return what is wrong with what the runtime says of a method, beside what we say of it.

    Raises:
        NotRunError: It rejects the method, as we said.
    """
    if failure is None:
        # What a call in a branch breaks shows only if the branch is taken.
        return _runs_all_the_same(oracle, rejected[0]) if rejected and not has_jumps else None
    if rejected:
        raise NotRunError(f"the official runtime does not claim to: {rejected[0].message}"[:200])
    return _not_run(oracle, method, failure)


def _has_jumps(data: bytes, method: str) -> bool:
    plans = read_program(data).program.execution_plan
    chains = [chain for plan in plans if plan.name == method for chain in plan.chains]
    return any(isinstance(step.instr_args, JumpFalseCall) for chain in chains for step in chain.instructions)


def _runs_all_the_same(oracle: str, finding: Diagnostic) -> Failure:
    """Return the failure of a condition that a call breaks, and that the kernel does not ask for."""
    return Failure(
        oracle,
        "the description of the target rejects what runs",
        f"the official runtime takes a call of which we say: {finding.render()}"[:4000],
        "target-description",
        finding.location.node,
        {"condition": finding.expected or ""},
    )


def _not_run(oracle: str, method: str, failure: OfficialFailure) -> Failure:
    """Return the failure of a file that was lowered, without a known violation, that does not run."""
    blamed = _BLAMED.search(failure.text)
    symptom = f"official runtime {failure.kind} {brief(failure)}"
    details = {"code": blamed[3], "operator": blamed[2]} if blamed else {}
    return Failure(
        oracle,
        f"lowered but does not run: {blamed[2]} {blamed[3]}" if blamed else symptom,
        f"{method}: {failure.text}"[:4000],
        "official-runtime",
        f"instruction {blamed[1]}" if blamed else None,
        details,
    )


def brief(failure: OfficialFailure) -> str:
    """Return the one line of a failure that says what it is, without numbers and places."""
    lines = [line for line in failure.text.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("E ", "F "))] or lines[:1]
    text = re.sub(r"^[EF] \d+:[\d:.]+ \S+:\d+\] ?", "", telling[0] if telling else "")
    text = re.sub(r"0x[0-9a-f]+|\d+", "#", text)
    return re.sub(r"\s+", " ", text).strip()[:100]
