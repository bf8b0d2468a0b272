"""The runtime as users see it, with the names and arguments of `executorch.runtime`."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import torch

from exirkit.emit import (
    DataFile,
    ExecutionPlan,
    PteFile,
    Tensor,
    open_data_file,
    open_program,
    read_data_file,
    read_program,
)
from exirkit.ir import Diagnostic, Location, UsageError
from exirkit.runtime_ref.checks.calls import PlanFacts, missing_data, operator_name
from exirkit.runtime_ref.interpreter.values import Arenas
from exirkit.runtime_ref.kernels.registry import OperatorRegistry, default_registry
from exirkit.runtime_ref.limits import Findings

from .backends import BackendRegistry
from .checks.program import check_delegate_calls, check_plan, check_program
from .interpreter.interpreter import Interpreter
from .interpreter.substitution import Substitution
from .limits import Limits
from .metadata import MethodMetadata
from .sanitizer.interpreter import SanitizedInterpreter
from .sanitizer.memory import ShadowMemory
from .tracing import Tracer

# Comparing names is slow, and a malformed file has any number of wrong ones.
UNKNOWN_KERNEL_HINT = (
    "import the library that registers it before loading; of an operator that a rule book defines, load the book: "
    "`--rules BOOK`, or `load_book`"
)
_MAX_SUGGESTIONS = 3

ProgramSource: TypeAlias = bytes | bytearray | memoryview | BinaryIO | Path | str | PteFile
DataSource: TypeAlias = bytes | bytearray | memoryview | Path | str | DataFile


class UnknownMethodError(UsageError, KeyError):
    """The program has no method or tensor of that name (EK646)."""

    __str__ = Exception.__str__


class Verification(Enum):
    """How much of a program is checked when it is loaded.

    Attributes:
        Minimal: The file is well formed; each method is checked when it is loaded.
        InternalConsistency: All methods are checked at once.
    """

    Minimal = "minimal"
    InternalConsistency = "internal-consistency"


class Method:
    """A loaded method: it has memory of its own, and its mutable buffers keep their state from run to run."""

    def __init__(self, interpreter: Interpreter, tracer: Tracer | None = None) -> None:
        self._interpreter = interpreter
        self._tracer = tracer

    def execute(
        self, inputs: Sequence[Any], *, numbers_vary: bool = False, substitution: Substitution | None = None
    ) -> list[Any]:
        """Run the method once.

        Args:
            inputs: One entry per input: tensors of the declared dtype and shape (any shape within the bound where
                it is dynamic), and the numbers, texts and None with which the program was made.
            numbers_vary: Whether numbers may be others of the same kind: for backends whose delegates are programs,
                since these are handed sizes that vary.
            substitution: Values that take the place of those that kernels compute in this run.

        Returns:
            One entry per output: new tensors, numbers, texts, None, or lists of these.

        Raises:
            UsageError: EK640 to EK645 if the inputs do not fit.
            ModelError: EK650 to EK655 if an instruction fails, with the instruction and what it was given; EK660 to
                EK666 if the memory sanitizer finds a wrong access.
        """
        return self._interpreter.run(inputs, numbers_vary=numbers_vary, substitution=substitution, tracer=self._tracer)

    @property
    def metadata(self) -> MethodMetadata:
        """Facts about inputs, outputs and memory."""
        return MethodMetadata(self._interpreter.plan)

    @property
    def allocated_nbytes(self) -> int:
        """Bytes that tensors without a largest size have now: what was not freed, such as outputs."""
        return self._interpreter.heap.nbytes

    @property
    def peak_allocated_nbytes(self) -> int:
        """Most bytes that tensors without a largest size have had at once, since the method was loaded."""
        return self._interpreter.heap.peak_nbytes

    def manual_seed(self, seed: int) -> None:
        """Restart the random numbers of this method; a method that is just loaded has seed 0."""
        self._interpreter.seed(seed)

    def get_attribute(self, name: str) -> torch.Tensor:
        """Return a copy of the tensor with that fully qualified name, such as a mutable buffer.

        Raises:
            UnknownMethodError: EK646 if the program kept no such name.
        """
        names: dict[str, int] = {}
        for index, entry in enumerate(self._interpreter.plan.values):
            extra = entry.val.extra_tensor_info if isinstance(entry.val, Tensor) else None
            if extra is not None and extra.fully_qualified_name is not None:
                names.setdefault(extra.fully_qualified_name, index)
        if name not in names:
            raise _unknown("tensor", name, sorted(names))
        return self._interpreter.tensor(names[name])


class Program:
    """A program in memory or mapped from a file, from which methods are loaded."""

    def __init__(
        self,
        file: PteFile,
        registry: OperatorRegistry,
        limits: Limits,
        *,
        backends: BackendRegistry | None = None,
        share_arenas: bool = False,
        sanitize: bool = False,
        views: Mapping[str, Mapping[int, int]] | None = None,
        in_place: bool = False,
        tracer: Tracer | None = None,
    ) -> None:
        self._file = file
        self._tracer = tracer
        self._backends = backends or BackendRegistry()
        self._registry = registry
        self._limits = limits
        self._share_arenas = share_arenas
        self._sanitize = sanitize
        self._views = views or {}
        self._in_place = in_place
        self._shared: Arenas | None = None
        self._shared_memory: ShadowMemory | None = None
        self._plans = {plan.name: plan for plan in file.program.execution_plan}
        self._methods: dict[str, Method] = {}
        self._facts: dict[str, PlanFacts] = {}

    def verify(self) -> None:
        """Check all methods.

        Raises:
            ProgramVerifyError: EK601 to EK629. That data of another file is absent is found when a method is loaded.
        """
        facts = check_program(self._file, self._registry, self._limits, needs_data=False)
        self._facts = {name: each for name, each in facts.items() if not missing_data(self._file, self._plans[name])}

    @property
    def method_names(self) -> set[str]:
        """Names of all methods."""
        return set(self._plans)

    def metadata(self, method_name: str) -> MethodMetadata:
        """Return facts about a method without loading it.

        Raises:
            UnknownMethodError: EK646 if there is no such method.
        """
        return MethodMetadata(self._plan(method_name))

    def load_method(self, name: str) -> Method:
        """Return the method of that name, loaded at the first call and the same object afterwards.

        Raises:
            UnknownMethodError: EK646 if there is no such method.
            ProgramVerifyError: EK601 to EK629 if the method is wrong; EK620 with one finding for each operator that
                is not registered, EK621 with one for each delegate whose backend is not registered.
        """
        plan = self._plan(name)
        if name not in self._methods:
            started = time.perf_counter_ns()
            facts = self._checked(plan)
            self._methods[name] = Method(self._interpreter(plan, facts), self._tracer)
            if self._tracer is not None:
                self._tracer.loaded(started, time.perf_counter_ns())
        return self._methods[name]

    def _plan(self, name: str) -> ExecutionPlan:
        if name not in self._plans:
            raise _unknown("method", name, sorted(self._plans))
        return self._plans[name]

    def _checked(self, plan: ExecutionPlan) -> PlanFacts:
        findings = Findings()
        facts = self._facts.pop(plan.name, None)
        if facts is None or None in facts.kernels:
            # Libraries that were imported since the program was verified may have brought the missing kernels.
            facts = check_plan(self._file, plan, findings, registry=self._registry, limits=self._limits)
            findings.raise_if_any()
        assert facts is not None, "a plan without findings has facts"
        findings.method = plan.name
        for index, kernel in enumerate(facts.kernels):
            if kernel is None and not findings.full:
                name = operator_name(plan, index)
                near = self._registry.suggest(name) if len(findings.diagnostics) < _MAX_SUGGESTIONS else None
                hint = f"did you mean {near}?" if near else UNKNOWN_KERNEL_HINT
                findings.add("EK620", f"no kernel is called {name}", at=f"operator {index}", hint=hint)
        findings.raise_if_any()
        facts.delegates = self._backends.load(self._file, plan, findings)
        findings.raise_if_any()
        check_delegate_calls(plan, facts, findings)
        findings.raise_if_any()
        return facts

    def _interpreter(self, plan: ExecutionPlan, facts: PlanFacts) -> Interpreter:
        if not self._sanitize:
            return Interpreter(self._file, plan, facts, self._arenas(plan), self._limits)
        views = self._views.get(plan.name)
        memory = self._memory(plan)
        return SanitizedInterpreter(self._file, plan, facts, memory, self._limits, views=views, in_place=self._in_place)

    def _arenas(self, plan: ExecutionPlan) -> Arenas:
        if not self._share_arenas:
            return Arenas.allocate(plan.non_const_buffer_sizes, method=plan.name)
        if self._shared is None:
            self._shared = Arenas.allocate(self._shared_sizes(), method=plan.name)
        return self._shared

    def _memory(self, plan: ExecutionPlan) -> ShadowMemory:
        if not self._share_arenas:
            return ShadowMemory(plan.non_const_buffer_sizes, method=plan.name)
        if self._shared_memory is None:
            self._shared_memory = ShadowMemory(self._shared_sizes(), method=plan.name)
        return self._shared_memory

    def _shared_sizes(self) -> list[int]:
        plans = self._plans.values()
        count = max(len(one.non_const_buffer_sizes) for one in plans)
        sizes = [0] * count
        for one in plans:
            for number, size in enumerate(one.non_const_buffer_sizes):
                sizes[number] = max(sizes[number], size)
        return sizes


def _unknown(what: str, name: str, known: list[str]) -> UnknownMethodError:
    expected = ", ".join(known) or f"no {what} at all"
    return UnknownMethodError(Diagnostic.of("EK646", f"there is no {what} {name!r}", expected=expected))


class Runtime:
    """The reference runtime: runs programs in Python, on torch's own kernels, exactly as planned.

    Args:
        operator_registry: The operators that programs may call; all that are known if absent.

    Attributes:
        operator_registry: The operators that programs may call.
        backend_registry: The backends that run delegates.
    """

    def __init__(self, operator_registry: OperatorRegistry | None = None) -> None:
        self.operator_registry = operator_registry or default_registry()
        self.backend_registry = BackendRegistry()

    @staticmethod
    @cache
    def get() -> Runtime:
        """Return the one runtime of this process."""
        return Runtime()

    def load_program(
        self,
        data: ProgramSource,
        *,
        verification: Verification = Verification.InternalConsistency,
        share_arenas: bool = False,
        limits: Limits | None = None,
        sanitize: bool = False,
        views: Mapping[str, Mapping[int, int]] | None = None,
        in_place: bool = False,
        data_path: DataSource | Sequence[DataSource] | None = None,
        tracer: Tracer | None = None,
        knowing: bool | None = None,
    ) -> Program:
        """Load a program.

        Args:
            data: Path of a `.pte` file, which is mapped into memory; its bytes; an open binary file; or a file that
                has been read. Constants are not copied from any of them, so bytes must not change afterwards.
            verification: How much is checked now.
            share_arenas: Whether all methods use the same arenas. Methods that were planned to share a mutable
                buffer need that; others overwrite each other's buffers.
            limits: How much the program may ask for.
            sanitize: Whether methods run under the memory sanitizer: a read of bytes that are not the last that were
                written to their tensor, a write over what is still to be read, and a write beyond a tensor fail with
                EK660 to EK666, whatever the numbers are. Results are the same; runs take two to three times as long,
                and memory five times as much.
            views: For a sanitized run, by method: the value whose memory each view without instruction shows. The file
                does not tell; without it bases are guessed from places, which is wrong only where a view and several
                tensors before it have one place, dtype and size.
            in_place: For a sanitized run of a program planned with `in_place`: a result may overwrite exactly an
                argument that nothing reads after the instruction, where its operator is declared to allow that.
            data_path: Data file (`.ptd`), or several, in which tensors that are not in the program are found by their
                names: path, bytes, or a file that has been read. Without one, loading a method that needs data fails.
            tracer: Records every run: times, sizes and, if it keeps them, values.
            knowing: Deprecated name of `sanitize`.

        Raises:
            ProgramFormatError: A file is damaged, of another version, or not what it should be.
            ProgramVerifyError: EK601 to EK629, the program cannot run.
            UsageError: EK648 if `data` is none of these, or no such file exists; EK534 if two files have data under one
                key.
        """
        if knowing is not None:
            warnings.warn("load_program(knowing=) is deprecated: use sanitize=", DeprecationWarning, stacklevel=2)
            sanitize = knowing
        file = _read(data)
        if data_path is not None:
            file.attach(_data_files(data_path))
        program = Program(
            file,
            self.operator_registry,
            limits or Limits(),
            backends=self.backend_registry,
            share_arenas=share_arenas,
            sanitize=sanitize,
            views=views,
            in_place=in_place,
            tracer=tracer,
        )
        if verification is Verification.InternalConsistency:
            program.verify()
        return program


def _data_files(sources: object) -> list[DataFile]:
    if isinstance(sources, list | tuple):
        return [_read_data(one) for one in sources]
    return [_read_data(sources)]


def _read_data(source: object) -> DataFile:
    if isinstance(source, DataFile):
        return source
    if not isinstance(source, str | os.PathLike):
        return read_data_file(source)
    try:
        return open_data_file(source)
    except OSError as error:
        message = f"the data file cannot be opened: {error.strerror or error}"
        raise UsageError(Diagnostic.of("EK648", message, location=Location(file=str(source)))) from None


def _read(data: ProgramSource) -> PteFile:
    if isinstance(data, PteFile):
        return data
    if isinstance(data, (str, os.PathLike)):
        return _open(data)
    if isinstance(data, (bytes, bytearray, memoryview)):
        return read_program(data)
    content: object = data.read() if hasattr(data, "read") else None
    if not isinstance(content, bytes):
        message = f"a program cannot be loaded from a {type(data).__name__}"
        raise UsageError(Diagnostic.of("EK648", message, expected="a path, bytes, or an open binary file"))
    return read_program(content)


def _open(path: str | os.PathLike[str]) -> PteFile:
    try:
        return open_program(path)
    except OSError as error:
        message = f"the program file cannot be opened: {error.strerror or error}"
        raise UsageError(Diagnostic.of("EK648", message, location=Location(file=str(path)))) from None
