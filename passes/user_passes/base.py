"""The classes that user passes derive from, as in the official package, and diagnostics that blame the pass."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassBase as TorchPassBase
from torch.fx.passes.infra.pass_base import PassResult as PassResult

from exirkit.ir import (
    ContractError,
    Diagnostic,
    DiagnosticError,
    Location,
    ModelError,
    RawEdit,
    UsageError,
    give_foreign_handles,
    is_users_file,
    line_of_definition,
    line_that_raised,
    locate,
    take_foreign_handles,
)
from exirkit.passes.export_pass.snapshot import remembering
from exirkit.passes.export_pass.values import brief

PassType: TypeAlias = Callable[[GraphModule], PassResult | GraphModule | None]
"""What a `PassManager` takes: a function or object that is called with a graph module."""


def as_pass_result(result: object, graph_module: GraphModule, name: str) -> PassResult:
    """Understand what a pass returned.

    Args:
        result: A `PassResult`; a graph module, which counts as modified; or None, which stands for an edit in place.
        graph_module: The module that the pass was given.
        name: Name of the pass.

    Raises:
        ContractError: EK412, it is something else.
    """
    if result is None:
        return PassResult(graph_module, True)
    if isinstance(result, GraphModule):
        return PassResult(result, True)
    if isinstance(result, PassResult) and isinstance(result.graph_module, GraphModule):
        return PassResult(result.graph_module, bool(result.modified))
    raise ContractError(
        code="EK412",
        message=f"pass {name} returned {type(result).__name__}",
        expected="a PassResult(graph_module, modified), a GraphModule, or None after an edit in place",
    )


class PassBase(TorchPassBase):
    """A pass over a graph module: `requires`, then `call`, then `ensures`.

    Subclasses implement `call`; it may edit the module in place or return another one.
    """

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Run the pass between its two checks.

        Returns:
            What `call` returned. None stands for an edit in place.
        """
        self.requires(graph_module)
        result = self.call(graph_module)
        # The postcondition is about what comes out; torch's own base class hands in what went in.
        self.ensures(graph_module if result is None else result.graph_module)
        return result


@dataclass(frozen=True)
class ExportedProgramPassResult:
    """What a pass over a program returns.

    Attributes:
        exported_program: The program after the pass.
        modified: Whether it differs from the program before.
    """

    exported_program: ExportedProgram
    modified: bool


class ExportedProgramPassBase(ABC):
    """A pass over a whole program, for edits that need its parameters or its signature.

    Subclasses implement `call`; `requires` and `ensures` are optional checks that raise.
    """

    def __call__(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Check the program, run the pass, and check the program that came out.

        Raises:
            ContractError: EK412, `call` returned something other than an `ExportedProgramPassResult`.
        """
        self.requires(exported_program)
        result = self.call(exported_program)
        if not isinstance(result, ExportedProgramPassResult):
            raise ContractError(
                code="EK412",
                message=f"pass {type(self).__name__} returned {type(result).__name__}",
                expected="an ExportedProgramPassResult(exported_program, modified)",
            )
        self.ensures(result.exported_program)
        return result

    @abstractmethod
    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Do the work of the pass."""

    def requires(self, exported_program: ExportedProgram) -> None:  # noqa: B027
        """Raise if the program is not one that the pass can take."""

    def ensures(self, exported_program: ExportedProgram) -> None:  # noqa: B027
        """Raise if the program that the pass made is not what it promises."""


Check: TypeAlias = Callable[[GraphModule], object]


class PassManager:
    """Runs passes in order, as often as asked or until they change nothing more.

    A pass is called with a graph module. It returns a `PassResult`, a graph module (which counts as modified), or None
    (an edit in place, which counts as modified).

    Attributes:
        passes: The passes, nested lists flattened.
        steps: How often the whole list is run at most.
        run_checks_after_each_pass: Whether `check` runs after every pass, not only at the end. At the end it runs if
            checks were added.
        suppress_check_failures: Whether a failed check warns instead of raising.
    """

    def __init__(
        self,
        passes: Iterable[Any] | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
        steps: int = 1,
    ) -> None:
        if steps < 1:
            raise _misuse(f"steps is {steps!r}", "a whole number of at least 1")
        self.passes: list[PassType] = []
        self.steps = steps
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures
        self._checks: list[Check] = []
        for one in _flattened(passes or ()):
            self.add_pass(one)

    def add_pass(self, pass_: Any) -> None:
        """Append a pass.

        Raises:
            UsageError: EK410, it cannot be called with a graph module.
        """
        if isinstance(pass_, ExportedProgramPassBase):
            raise _misuse(
                f"pass {name_of_pass(pass_)} works on exported programs",
                "passes over graph modules",
                "give it to `transform`",
            )
        if not callable(pass_) or isinstance(pass_, type):
            raise _misuse(f"{pass_!r} is not a pass", "an object or function that is called with a graph module")
        self.passes.append(pass_)

    def add_checks(self, check: Any) -> None:
        """Append a check, a function of one graph module that raises if something is wrong with it.

        Raises:
            UsageError: EK410, it does not take exactly one argument.
        """
        if not callable(check) or len(inspect.signature(check).parameters) != 1:
            raise _misuse(f"check {check!r} does not take exactly one argument", "a function of one graph module")
        self._checks.append(check)

    def check(self, module: GraphModule) -> None:
        """Raise if the graph is malformed, calls methods, or fails one of the added checks."""
        _lint(module)
        for check in self._checks:
            check(module)

    def __call__(self, graph_module: torch.nn.Module) -> PassResult:
        """Run the passes.

        Returns:
            The last module, and whether any pass modified it.

        Raises:
            UsageError: EK410, it was not called with a graph module.
            ModelError: EK414, the graph was malformed before the first pass (only with checks after each pass).
            ContractError: EK411 a pass raised, EK412 a pass returned no result, EK413 a check failed after a pass.
        """
        if not isinstance(graph_module, GraphModule):
            raise _misuse(
                f"a pass manager was called with a {type(graph_module).__name__}",
                "a torch.fx.GraphModule",
                "give programs to `transform`",
            )
        self.check_input(graph_module)
        module, is_modified = graph_module, False
        with remembering(graph_module):
            for _ in range(self.steps):
                module, changed = self._run_step(module)
                is_modified = is_modified or changed
                if not changed:
                    break
        self.check_result(module)
        return PassResult(module, is_modified)

    def _run_step(self, module: GraphModule) -> tuple[GraphModule, bool]:
        is_modified = False
        for position, one in enumerate(self.passes):
            result = run_graph_pass(one, module, self._names()[:position])
            module, is_modified = result.graph_module, is_modified or result.modified
            self.check_after(position, module)
        return module, is_modified

    def _names(self) -> list[str]:
        return [name_of_pass(one) for one in self.passes]

    def check_input(self, module: GraphModule) -> None:
        """Examine a graph before the first pass, if checks run after each pass.

        Raises:
            ModelError: EK414, the graph is malformed.
        """
        if not self.run_checks_after_each_pass:
            return
        # Added checks are about what passes leave behind; the input only has to be a graph.
        try:
            _lint(module)
        except Exception as error:
            raise ModelError(
                code="EK414",
                message=f"the graph is malformed before the first pass: {brief(error)}",
            ) from error

    def check_after(self, position: int, module: GraphModule) -> None:
        """Examine what a pass left behind, if checks run after each pass.

        Args:
            position: Of the pass, from 0.
            module: What it left behind.

        Raises:
            ContractError: EK413, a check failed.
        """
        if self.run_checks_after_each_pass:
            names = self._names()
            self._run_checks(module, f"pass {names[position]}", names[:position])

    def check_result(self, module: GraphModule) -> None:
        """Examine what the last pass left behind, if there are checks that have not just examined it.

        Raises:
            ContractError: EK413, a check failed.
        """
        if self._checks and not self.run_checks_after_each_pass:
            self._run_checks(module, "the last pass", self._names())

    def _run_checks(self, module: GraphModule, author: str, before: list[str]) -> None:
        try:
            self.check(module)
        except Exception as error:
            finding = Diagnostic.of(
                code="EK413",
                severity="warning" if self.suppress_check_failures else "error",
                message=f"a check failed after {author}: {brief(error)}",
                notes=(history(before),),
            )
            if not self.suppress_check_failures:
                raise ContractError(finding) from error
            warnings.warn(finding.render(), stacklevel=4)


def run_graph_pass(pass_: PassType, module: GraphModule, before: list[str]) -> PassResult:
    """Run a pass on a graph module.

    Args:
        pass_: The pass.
        module: What it is given.
        before: Names of the passes that ran before it, for messages.

    Raises:
        ContractError: EK411, it raised; EK412, it returned no result.
    """
    name = name_of_pass(pass_)
    try:
        result = as_pass_result(run_official(pass_, module) if is_official(pass_) else pass_(module), module, name)
        if result.modified:
            # Passes that edit in place often leave the generated code behind. For re-traced modules this is free.
            result.graph_module.recompile()
    except DiagnosticError as error:
        error.add_note(f"raised while pass {name} ran, {history(before)}")
        raise
    except Exception as error:
        hint = "the traceback of the original exception shows the way there"
        raise raised(pass_, error, "EK411", (history(before),), hint) from error
    return result


def history(before: list[str]) -> str:
    """Return which passes ran before, for a note."""
    return f"after {', '.join(before)}" if before else "as the first pass"


def _lint(module: GraphModule) -> None:
    module.graph.lint()
    for node in module.graph.nodes:
        if node.op == "call_method":
            raise ModelError(code="EK415", message=f"%{node.name} calls method {node.target!r}")


def _flattened(passes: Iterable[Any]) -> Iterator[Any]:
    for one in passes:
        if isinstance(one, list | tuple):
            yield from _flattened(one)
        else:
            yield one


def _misuse(message: str, expected: str, hint: str | None = None) -> UsageError:
    return UsageError(code="EK410", message=message, expected=expected, hint=hint)


_SHOWN = 3


def name_of_pass(one: Any) -> str:
    """Return how messages name a pass of any kind."""
    if isinstance(one, functools.partial):
        return name_of_pass(one.func)
    name = getattr(one, "name", None)
    return name if isinstance(name, str) else str(getattr(one, "__name__", type(one).__name__))


def code_of_pass(one: Any) -> Location:
    """Return where the work of a pass is defined: the method, the function, or else the class."""
    if isinstance(one, functools.partial):
        return code_of_pass(one.func)
    if hasattr(one, "__code__") or hasattr(one, "__func__"):
        return line_of_definition(one)
    for method in ("edit", "call", "__call__"):
        found = getattr(type(one), method, None)
        code = getattr(found, "__code__", None)
        if found is not None and code is not None and is_users_file(code.co_filename):
            return line_of_definition(found)
    return line_of_definition(type(one))


def place_of(location: Location) -> str | None:
    """Return a place in a file in one word, `passes.py:12`."""
    return None if location.file is None else f"{location.file}:{location.line}"


def nameless(one: Any) -> UsageError:
    """Describe a pass without a name."""
    kind = type(one).__name__
    return UsageError(
        code="EK444",
        message=f"the pass {kind} has no name",
        location=line_of_definition(type(one)),
        hint=f'write `name = "{_kebab(kind)}"` in the class',
    )


def _kebab(name: str) -> str:
    return "".join(f"-{each.lower()}" if each.isupper() and at else each.lower() for at, each in enumerate(name))


def raised(
    one: Any, error: Exception, code: str, notes: tuple[str, ...] = (), hint: str | None = None
) -> ContractError:
    """Describe a pass that raised something other than a diagnostic.

    Args:
        one: The pass.
        error: What it raised.
        code: Code of the finding.
        notes: What the caller knows.
        hint: What to do, if there is anything to say.
    """
    location = line_that_raised(error)
    if location.file is None:
        location = code_of_pass(one)
    # What follows the first line is often a report of torch about the graph; the cause has all of it.
    message = f"pass {name_of_pass(one)} failed: {brief(error)}"
    return ContractError(code=code, message=message, location=location, notes=notes, hint=hint)


def blame(one: Any, error: DiagnosticError) -> None:
    """Add to the findings of an edit which pass made it, and where."""
    place = place_of(line_that_raised(error)) or place_of(code_of_pass(one))
    error.annotate(f"raised in pass {name_of_pass(one)}" + (f", {place}" if place else ""))


def check_edits(one: Any, found: Sequence[RawEdit]) -> None:
    """Raise if a pass edited the program itself instead of telling the editor.

    Raises:
        ContractError: EK445.
    """
    if not found:
        return
    shown = "; ".join(edit.what for edit in found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    node = next((edit.node for edit in found if edit.node is not None and not edit.node._erased), None)
    place = code_of_pass(one)
    location = place if node is None else locate(node).model_copy(update={"file": place.file, "line": place.line})
    methods = ", ".join(dict.fromkeys(f"`{method}`" for edit in found for method in edit.methods))
    raise ContractError(
        code="EK445",
        message=f"pass {name_of_pass(one)} edited the program without its editor: {shown}{more}",
        location=location,
        expected=f"edits by methods of the editor; here: {methods}",
        notes=("the editor cannot undo, report or check other edits",),
        hint="a pass that edits a graph module is a function of the module, a PassBase or an ExportPass",
    )


_LIBRARY = "executorch"


def is_official(one: Any) -> bool:
    """Return whether a pass is made for official handles.

    That is an object of a class that is derived from one of the official package, or a function that is defined in it
    or names something of it, such as `lambda module: OfficialPass()(module)`.
    """
    if isinstance(one, FunctionType):
        return _is_in_library(one.__module__) or any(map(_is_of_library, _named_by(one)))
    if isinstance(one, MethodType):
        return is_official(one.__self__) or is_official(one.__func__)
    if isinstance(one, partial):
        return is_official(one.func) or any(map(_is_of_library, (*one.args, *one.keywords.values())))
    return any(_is_in_library(kind.__module__) for kind in type(one).__mro__)


def _is_of_library(value: Any) -> bool:
    if isinstance(value, ModuleType):
        return _is_in_library(value.__name__)
    if isinstance(value, type):
        return any(_is_in_library(kind.__module__) for kind in value.__mro__)
    if isinstance(value, FunctionType):
        return _is_in_library(value.__module__)
    return any(_is_in_library(kind.__module__) for kind in type(value).__mro__)


def _is_in_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] == _LIBRARY


def _named_by(function: FunctionType) -> Iterator[Any]:
    """Yield the values that a function refers to: defaults, variables of enclosing functions, globals and imports."""
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        # A cell is empty while the enclosing function has not assigned it.
        with suppress(ValueError):
            yield cell.cell_contents
    for name in _names_in(function.__code__):
        if name in function.__globals__:
            yield function.__globals__[name]
        elif _is_in_library(name) and name in sys.modules:
            yield sys.modules[name]


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


@contextmanager
def official_handles(module: GraphModule) -> Iterator[None]:
    """Let a graph name operators by the official handles inside of the block."""
    give_foreign_handles(module, _LIBRARY)
    try:
        yield
    finally:
        take_foreign_handles(module)


def run_official(one: Any, module: GraphModule) -> Any:
    """Call an official pass with a graph module of ours; what it returns has our handles.

    Args:
        one: A pass over graph modules.
        module: The graph, which has our handles again in the end.
    """
    with official_handles(module):
        result = one(module)
        made = getattr(result, "graph_module", result)
        if isinstance(made, GraphModule):
            take_foreign_handles(made)
    return result
