"""What oracles share: a program is exported, lowered and run once, when the first of them asks for it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from torch.export import ExportedProgram

from exirkit.emit import read_program
from exirkit.fuzz.compilers.compilers import Compiler, ExirkitCompiler, Lowering
from exirkit.fuzz.compilers.lowering_trace import LoweringTrace
from exirkit.fuzz.compilers.official_compiler import OfficialCompiler
from exirkit.fuzz.programs import Program, Run, RunResult, build, inputs_of, run_eagerly, run_shaken, varied
from exirkit.ir import Diagnostic, DiagnosticError, called_graphs
from exirkit.patterns import name_of

from .comparing import Budget
from .emission import silent_views
from .expectations import Expectation, expectations_of, leaves_signs_of_zeros_open
from .file_runs import FileResult, run_file, run_function
from .graph_runs import mutated_buffers
from .symptoms import failure_of_error, part_at_work
from .unsupported import UNSUPPORTED
from .verdict import Comparisons, Failure

Result = TypeVar("Result")


_OPERATOR = re.compile(r"\b\w+::(\w+)")
SANITIZER_CODES = frozenset({"EK660", "EK661", "EK662", "EK663", "EK664", "EK665", "EK666"})
"""What the memory sanitizer finds."""


class FailedError(Exception):
    """Something that oracles share could not be made."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


class RejectedError(Exception):
    """The compiler rejected the program with a diagnostic that states what it does not support.

    Attributes:
        code: Of the diagnostic.
        stage: The pass or part that raised it.
    """

    def __init__(self, code: str, text: str, stage: str | None = None) -> None:
        self.code = code
        self.stage = stage
        super().__init__(text)


class NotRunError(Exception):
    """An oracle cannot be asked; the text states why."""


class Examination:
    """One program, one compiler, and everything that is known of them so far.

    Args:
        program: The program.
        compiler: What lowers it.
        seed: Decides where oracles choose.

    Attributes:
        seconds: Time by phase.
        comparisons: How values were compared.
        listener: Makes what listens to the lowering.
    """

    def __init__(self, program: Program, compiler: Compiler, seed: int = 0) -> None:
        self.program = program
        self.compiler = compiler
        self.seed = seed
        self.seconds: dict[str, float] = {}
        self.comparisons = Comparisons()
        self.listener: type[LoweringTrace] = LoweringTrace
        self._failed: dict[str, Exception] = {}
        self._made: dict[str, Any] = {}

    def share(self, other: Examination) -> None:
        """Take over what another examination of the same program, or of one with more methods, has made."""
        self.__dict__["trace"] = other.trace
        for phase in ("eager", "eager64", "build", "lower"):
            if phase in other._made:
                self._made[phase] = other._made[phase]

    def take_file(self, data: bytes) -> None:
        """Go on with another file instead of the one that the compiler made."""
        self._made["lower"] = replace(self.lowering, data=data, manager=None)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time of a block to a phase, without that of phases inside of it."""
        start, inside = time.perf_counter(), sum(self.seconds.values())
        try:
            yield
        finally:
            spent = time.perf_counter() - start - (sum(self.seconds.values()) - inside)
            self.seconds[phase] = self.seconds.get(phase, 0.0) + spent

    @property
    def methods(self) -> list[str]:
        """Names of the methods that are run."""
        called = {run.method for run in self.program.runs}
        return [method.name for method in self.program.methods if method.name in called]

    def runs_of(self, method: str) -> list[Run]:
        """Return the runs of a method, in order."""
        return [run for run in self.program.runs if run.method == method]

    @cached_property
    def inputs(self) -> Mapping[str, list[tuple[Any, ...]]]:
        """Inputs of all runs, by method."""
        with self.timed("inputs"):
            return {name: [tuple(inputs_of(self.program, run)) for run in self.runs_of(name)] for name in self.methods}

    @cached_property
    def reference(self) -> Mapping[str, list[RunResult]]:
        """What eager torch makes of the runs of each method; a loaded method has a state of its own."""
        return self.once("eager", lambda: self._eager(is_double=False))

    @cached_property
    def precise(self) -> Mapping[str, list[RunResult]]:
        """Likewise in float64."""
        return self.once("eager64", lambda: self._eager(is_double=True))

    @cached_property
    def shaken(self) -> Mapping[str, list[list[RunResult]]]:
        """Likewise from inputs and stored tensors that differ by rounding, a few times."""
        return self.once("shaken", lambda: {name: run_shaken(self._with_runs_of(name)) for name in self.methods})

    def budget_of_output(self, method: str, index: int, place: int) -> Budget:
        """Return what a result of a run is compared with within a budget."""
        return self._budget(method, index, lambda run: run.outputs[place])

    def budget_of_state(self, method: str, index: int, name: str) -> Budget:
        """Likewise of a buffer or an input after a run."""
        return self._budget(method, index, lambda run: {**run.buffers, **run.inputs}[name])

    def _budget(self, method: str, index: int, pick: Callable[[RunResult], Any]) -> Budget:
        return pick(self.precise[method][index]), lambda: [pick(runs[index]) for runs in self.shaken[method]]

    @cached_property
    def expectations(self) -> Mapping[str, Expectation]:
        """How the results of each method are compared, if the compiler promises exactness."""
        return expectations_of(self.program, is_exact=True)

    @cached_property
    def lowered_expectations(self) -> Mapping[str, Expectation]:
        """How the results of each method are compared after lowering."""
        try:
            is_exact = self.lowering.is_exact
        except (FailedError, RejectedError):
            is_exact = not self.trace.relaxing_rules
        return expectations_of(self.program, is_exact=is_exact)

    @cached_property
    def leaves_signs_open(self) -> bool:
        """Whether 0.0 may as well be -0.0."""
        return leaves_signs_of_zeros_open(self.program)

    @property
    def exported(self) -> Mapping[str, ExportedProgram]:
        """The programs before lowering (raises `FailedError`)."""
        return self.once("build", self.build, oracle="eager-run", stage="export")

    @cached_property
    def trace(self) -> LoweringTrace:
        """What is known of the lowering."""
        return self.listener(has_state=any(mutated_buffers(one) for one in self.exported.values()))

    @property
    def tested(self) -> tuple[Mapping[str, int], Mapping[str, bool], frozenset[str]]:
        """Rules under test by how often they were applied, parts by whether they changed it, and shipped passes."""
        trace: LoweringTrace | None = self.__dict__.get("trace")
        if trace is None:
            return {}, {}, frozenset()
        return dict(trace.fired), dict(trace.changed), frozenset(trace.worked)

    @property
    def lowering(self) -> Lowering:
        """What the compiler makes (raises `FailedError`, `RejectedError`)."""
        return self.once("lower", self._lower, oracle="lowering", stage=None)

    @property
    def results(self) -> Mapping[str, list[FileResult]]:
        """What our interpreter makes of the runs of each method, under the memory sanitizer."""
        return self.once("interpret", self._interpret, oracle="poisoned-run", stage="interpreter")

    def _eager(self, *, is_double: bool) -> dict[str, list[RunResult]]:
        return {name: run_eagerly(self._with_runs_of(name), in_float64=is_double) for name in self.methods}

    def _with_runs_of(self, method: str) -> Program:
        return replace(self.program, runs=tuple(self.runs_of(method)))

    def build(self) -> Mapping[str, ExportedProgram]:
        """Export the program once more."""
        programs = build(self.program)
        seed = self.compiler.variation if isinstance(self.compiler, ExirkitCompiler) else None
        return programs if seed is None else {name: varied(one, seed) for name, one in programs.items()}

    def _lower(self) -> Lowering:
        if isinstance(self.compiler, OfficialCompiler):
            return self.compiler.lower_program(self.program, self.trace)
        return self.compiler.lower(self.exported, self.trace)

    def _interpret(self) -> dict[str, list[FileResult]]:
        if self.lowering.functions:
            return {name: run_function(self.lowering.functions[name], self.inputs[name]) for name in self.methods}
        file = read_program(self.lowering.data)
        planned = self.lowering.planned
        views = {name: silent_views(planned[name], file, name) for name in self.methods if name in planned}
        own = self.compiler if isinstance(self.compiler, ExirkitCompiler) else None
        return {
            name: run_file(
                file,
                name,
                self.inputs[name],
                self.buffers_of(name),
                views=views.get(name),
                in_place=own is not None and own.in_place,
                is_for_official=self.is_for_official,
            )
            for name in self.methods
        }

    @property
    def is_for_official(self) -> bool:
        """Whether programs are lowered for the kernels of the official runtime."""
        return isinstance(self.compiler, ExirkitCompiler) and self.compiler.kernels == "official"

    def buffers_of(self, method: str) -> list[str]:
        """Return the names of the buffers that a method writes to, if they can be examined."""
        return [] if self.compiler.is_black_box else mutated_buffers(self.exported[method])

    def once(
        self, phase: str, make: Callable[[], Result], *, oracle: str = "eager-run", stage: str | None = "eager"
    ) -> Result:
        """Make something once; a failure is remembered too."""
        if phase in self._failed:
            raise self._failed[phase]
        if phase not in self._made:
            try:
                with self.timed(phase):
                    self._made[phase] = make()
            except (FailedError, RejectedError, NotRunError):
                raise
            except Exception as error:
                self._failed[phase] = self._judged(error, oracle, stage)
                raise self._failed[phase] from error
        result: Result = self._made[phase]
        return result

    def _is_own_call(self, finding: Diagnostic) -> bool:
        """Whether a finding is about a call without kernel, of an operator that the Edge programs do not call.

        Such a call was made by the chain, which promises to make none: the program is not to blame.
        """
        if finding.code not in ("EK359", "EK360"):
            return False
        named = _OPERATOR.search(finding.message)
        called = {
            name_of(node.target).split(".")[1]
            for program in self.trace.edge.values()
            for module in called_graphs(program.graph_module)
            for node in module.graph.nodes
            if hasattr(node.target, "_schema")
        }
        return named is not None and named[1] not in called

    def _judged(self, error: Exception, oracle: str, stage: str | None) -> Exception:
        if oracle == "lowering" and isinstance(error, DiagnosticError) and error.code in UNSUPPORTED:
            made = [one for one in error.diagnostics if self._is_own_call(one)]
            if not made:
                return RejectedError(error.code, error.diagnostics[0].headline(), self.trace.current)
            return FailedError(
                Failure(
                    oracle, f"made a call that no kernel takes {error.code}", made[0].render()[:4000], "legalization"
                )
            )
        if oracle == "poisoned-run" and isinstance(error, DiagnosticError) and error.code in SANITIZER_CODES:
            oracle = "memory-sanitizer"
        where = stage if stage is not None else part_at_work(error, self.trace.current)
        return FailedError(failure_of_error(error, oracle, where))
