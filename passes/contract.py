"""The contract of exirkit's own passes, and what a pipeline knows of a pass: its name, options, needs and results."""

from __future__ import annotations

import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar, get_type_hints, overload

import pydantic
import torch
from pydantic import BaseModel, ConfigDict, create_model
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import GraphModule, Node

from exirkit.ir import (
    ContractError,
    Diagnostic,
    DiagnosticError,
    GraphEditor,
    Location,
    RawEdit,
    UsageError,
    copy_program,
    find_plugins,
    load_plugin,
    locate,
    module_of_program,
    program_of_module,
    show_value,
    statically_known_true,
    subgraph_editors,
)

from .user_passes.base import (
    ExportedProgramPassResult,
    PassResult,
    blame,
    check_edits,
    code_of_pass,
    name_of_pass,
    nameless,
    raised,
)

Outputs = Mapping[str, tuple[Any, Node | None]]
"""Recorded value of every output that has one, and the node behind it, by the name that messages give the output."""


def is_shipped(one: Any) -> bool:
    """Return whether a pass is one of exirkit's own, for whose edits the tests vouch."""
    return type(one).__module__.partition(".")[0] == "exirkit"


def official_program_pass() -> Any:
    """Return the class of official passes over programs; None if the package is not imported or has no such class.

    The official pass manager calls its objects with the exported program, in which stored tensors are known, and all
    others with its graph module.
    """
    return getattr(sys.modules.get("executorch.exir.pass_base"), "ExportedProgramPassBase", None)


def outputs_of(program: ExportedProgram) -> Outputs:
    """Return what a program returns and leaves in its inputs and buffers.

    An output keeps its name when others that are not of its kind come or go.
    """
    results: Any = program.graph_module.graph.output_node().args[0]
    if isinstance(results, Node) or not isinstance(results, list | tuple):
        results = (results,)
    found: dict[str, tuple[Any, Node | None]] = {}
    returned = 0
    # Whether there are as many results as specs is checked elsewhere.
    for spec, result in zip(program._graph_signature.output_specs, results, strict=False):
        if spec.kind is OutputKind.USER_OUTPUT:
            name, returned = f"output {returned}", returned + 1
        else:
            name = f"the new value of `{spec.target}`"
        if not isinstance(result, Node):
            found[name] = (result, None)
        elif "val" in result.meta:
            found[name] = (result.meta["val"], result)
    return found


def check_outputs(one: Any, before: Outputs, program: ExportedProgram) -> None:
    """Raise if a pass has changed the dtype or the shape of an output and does not declare that.

    Raises:
        ContractError: EK446.
    """
    if getattr(one, "changes_outputs", False):
        return
    now = outputs_of(program)
    findings = []
    for name, (old, _) in before.items():
        new, node = now.get(name, (old, None))
        if new is not old and not _is_alike(old, new):
            findings.append(_finding(one, name, old, new, node))
    if findings:
        raise ContractError(findings)


def _finding(one: Any, name: str, old: Any, new: Any, node: Node | None) -> Diagnostic:
    place = code_of_pass(one)
    location = Location() if node is None else locate(node)
    return Diagnostic.of(
        code="EK446",
        message=f"pass {name_of_pass(one)} changed {name} from {show_value(old)} to {show_value(new)}",
        location=location.model_copy(update={"file": place.file, "line": place.line}),
        expected="outputs with the dtypes and shapes that they had: callers of the program rely on them",
        hint="set `changes_outputs = True` on the pass if this is what it is for",
    )


def _is_alike(old: Any, new: Any) -> bool:
    """Return whether two values have one dtype and shape, as far as that is known."""
    if isinstance(old, torch.Tensor) or isinstance(new, torch.Tensor):
        return (
            isinstance(old, torch.Tensor)
            and isinstance(new, torch.Tensor)
            and old.dtype == new.dtype
            and len(old.shape) == len(new.shape)
            and all(map(_is_same_size, old.shape, new.shape))
        )
    return _kind(old) is _kind(new)


def _is_same_size(old: Any, new: Any) -> bool:
    if type(old) is int and type(new) is int:
        return old == new
    sizes = [size.node.expr if isinstance(size, torch.SymInt) else size for size in (old, new)]
    if sizes[0] == sizes[1]:
        return True
    symbols = {symbol for size in sizes for symbol in getattr(size, "free_symbols", ())}
    # Sizes that data decides have new symbols when their operator is another one.
    if any(str(symbol).startswith(("u", "zuf")) for symbol in symbols):
        return True
    # The environment of the sizes learns from earlier lowerings of the program, such as by what a size can be divided.
    return bool((sizes[0] - sizes[1]).expand() == 0) or bool(statically_known_true(old == new))


def _kind(value: Any) -> type:
    for kind, types in ((bool, torch.SymBool), (int, torch.SymInt), (float, torch.SymFloat)):
        if isinstance(value, kind | types):
            return kind
    return type(value)


Report = TypeVar("Report")


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one run of one pass did.

    Attributes:
        name: Name of the pass in kebab case.
        modified: Whether the program differs from before.
        created: How many nodes are new.
        erased: How many nodes are gone.
        changed: How many nodes that were there before and are still there differ.
        seconds: Wall time.
    """

    name: str
    modified: bool
    created: int
    erased: int
    changed: int
    seconds: float


# What edits of values can break: passes that do not state what they break, and rules, are taken to break all of these.
BROKEN_BY_EDITS = frozenset(
    {
        "core-operators",
        "outputs-separate",
        "body-results-separate",
        "dim-orders-agree",
        "specs",
        "bounded-shapes",
        "out-variants-known",
    }
)


class Pass(ABC):
    """An edit of a program.

    A pass visits every node at most a few times, changes what it has to through the editor, and never runs the graph.
    A pass with options is a dataclass whose fields they are: constructors, pipelines and checks of both follow from the
    fields. Objects carry options only: one object can be used for any number of programs.

    Attributes:
        name: Name of the pass in kebab case.
        enters_subgraphs: Whether the subgraphs of control flow are edited too, each after the graph that calls it.
        changes_outputs: Whether the pass may change the dtype or shape of what the program returns.
        requires: Invariants that must hold before, by the names that pipelines use for them.
        ensures: Invariants that hold afterwards.
        invalidates: Invariants that need not hold any more; by default all that an edit of values can break.
        after: Names of passes that come before this one, where a pipeline has them at all.
        before: Names of passes that come after this one, where a pipeline has them at all.
    """

    name: ClassVar[str]
    enters_subgraphs: ClassVar[bool] = False
    changes_outputs: ClassVar[bool] = False
    requires: ClassVar[Collection[str]] = ()
    ensures: ClassVar[Collection[str]] = ()
    invalidates: ClassVar[Collection[str]] = BROKEN_BY_EDITS
    after: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Let a class still set `enters_bodies`, as `enters_subgraphs` was called."""
        super().__init_subclass__(**options)
        if "enters_bodies" in cls.__dict__:
            message = f"`enters_bodies` of {cls.__name__} is deprecated: set `enters_subgraphs`"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            cls.enters_subgraphs = cls.__dict__["enters_bodies"]

    def __new__(cls, *args: object, **options: object) -> Self:
        """Make a pass that the official pass manager, if it is there, gives whole programs to."""
        base = official_program_pass()
        if base is not None and not issubclass(Pass, base):
            base.register(Pass)
        return super().__new__(cls)

    @abstractmethod
    def edit(self, editor: GraphEditor) -> None:
        """Make the edits; the caller has opened a transaction and rolls it back if this raises."""

    def run(self, editor: GraphEditor) -> PassReport:
        """Edit within one transaction and report.

        Edits that the pass makes without the editor are looked for unless the pass is one of exirkit's own.

        Raises:
            DiagnosticError: What the pass found wrong with the program; nothing was changed.
            ContractError: EK421, the pass failed in another way; EK446, it changed the dtype or shape of an output;
                nothing was changed. EK445, it edited the program without the editor, whose program is spoilt.
            UsageError: EK444, the pass has no name.
        """
        start = time.perf_counter()
        if not isinstance(getattr(self, "name", None), str):
            raise nameless(self)
        watch = None if is_shipped(self) else editor.watch()
        found: list[RawEdit] = []
        try:
            with editor.transaction(self.name) as transaction:
                outputs = outputs_of(editor.program)
                self.edit(editor)
                if self.enters_subgraphs:
                    self._edit_subgraphs(editor)
                if watch is not None:
                    found = watch.findings()
                    check_edits(self, found)
                editor.propagate()
                check_outputs(self, outputs, editor.program)
        except Exception as error:
            # What was edited behind the editor's back may not let it undo the rest, which then is not the point.
            check_edits(self, found)
            self._fail(error)
        finally:
            if watch is not None:
                editor.unwatch()
        effect = transaction.effect
        return PassReport(
            name=self.name,
            modified=transaction.modified,
            created=len(effect.created),
            erased=len(effect.erased),
            changed=len(effect.changed),
            seconds=time.perf_counter() - start,
        )

    def _fail(self, error: Exception) -> NoReturn:
        """Say of an error which pass and which line it comes from, and raise it."""
        if not isinstance(error, DiagnosticError):
            notes = ("the program is as it was before the pass",)
            hint = "report this with the program" if is_shipped(self) else None
            raise raised(self, error, "EK421", notes, hint) from error
        if not is_shipped(self) and error.code not in ("EK445", "EK446"):
            blame(self, error)
        raise error

    def _edit_subgraphs(self, editor: GraphEditor) -> None:
        for inner in subgraph_editors(editor):
            with inner.transaction(self.name, records_effect=False):
                self.edit(inner)
            self._edit_subgraphs(inner)

    def apply(self, program: ExportedProgram) -> tuple[ExportedProgram, PassReport]:
        """Run on a copy of a program.

        Returns:
            The copy (the program itself if nothing was modified), and the report.
        """
        copied = copy_program(program)
        report = self.run(GraphEditor(copied))
        return (copied if report.modified else program), report

    @overload
    def __call__(self, program: GraphModule) -> PassResult: ...

    @overload
    def __call__(self, program: ExportedProgram) -> ExportedProgramPassResult: ...

    def __call__(self, program: GraphModule | ExportedProgram) -> PassResult | ExportedProgramPassResult:
        """Run on a copy of a program, or of a graph module on its own, as pass managers of all kinds do.

        A graph module does not say what its inputs stand for: only tensors that hang on it (`get_attr`) are constants,
        and new constants hang on the module that is returned.

        Returns:
            The copy (what was given, if nothing was modified), and whether it was modified.

        Raises:
            UsageError: EK424, it is neither.
            DiagnosticError: As `run`.
        """
        if isinstance(program, ExportedProgram):
            changed, report = self.apply(program)
            return ExportedProgramPassResult(changed, report.modified)
        if not isinstance(program, GraphModule):
            raise UsageError(
                code="EK424",
                message=f"pass {self.name} was called with a {type(program).__name__}",
                expected="a torch.fx.GraphModule or a torch.export.ExportedProgram",
            )
        copied = program_of_module(program)
        if not self.run(GraphEditor(copied)).modified:
            return PassResult(program, False)
        return PassResult(module_of_program(copied, program), True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@dataclass(eq=False)
class ReportingPass(Pass, Generic[Report]):
    """A pass that keeps a report of every run.

    Attributes:
        reports: What every run did, one for each program.
    """

    reports: list[Report] = field(default_factory=list, init=False, repr=False)

    @property
    def report(self) -> Report | None:
        """What the last run did."""
        return self.reports[-1] if self.reports else None


def run_passes(editor: GraphEditor, passes: Sequence[Pass]) -> list[PassReport]:
    """Run passes one after another on the editor's program and return their reports."""
    return [one.run(editor) for one in passes]


PASS_PLUGINS = "exirkit.passes"
BOOK_PLUGINS = "exirkit.rulebooks"

_FOLDERS = ("to_aten", "to_edge", "legalize", "optimize", "to_executorch", "user_passes")
# They take rules, which are stages of their own.
_OF_RULES = ("apply-rules", "unfuse-operators")


class PassOptions(BaseModel):
    """Options of a pass; a subclass has a field for each."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


@dataclass(frozen=True)
class RegisteredPass:
    """A pass that pipelines can name.

    Attributes:
        name: Name in kebab case.
        build: Makes the pass from its options: a `Pass`, or anything else that `transform` takes.
        options: Model of the options.
        requires: Invariants that must hold before.
        ensures: Invariants that hold afterwards.
        invalidates: Invariants that need not hold any more.
        after: Passes that come before this one, where they are there at all.
        before: Passes that come after this one, where they are there at all.
    """

    name: str
    build: Callable[[Any], Any]
    options: type[PassOptions] = PassOptions
    requires: frozenset[str] = frozenset()
    ensures: frozenset[str] = frozenset()
    invalidates: frozenset[str] = frozenset()
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()


@cache
def registered(
    cls: type[Any],
    name: str | None = None,
    *,
    ensures: Collection[str] = (),
    invalidates: Collection[str] = BROKEN_BY_EDITS,
) -> RegisteredPass:
    """Describe a class of passes by its attributes.

    Its options are the fields of the dataclass, or the fields of the model that the class has under `Options`.

    Args:
        cls: The class.
        name: Name in kebab case; that of the class when absent.
        ensures: Invariants that hold afterwards, if the class does not derive from `Pass`.
        invalidates: Invariants that need not hold any more, if it does not.
    """
    if issubclass(cls, Pass):
        ensures, invalidates = cls.ensures, cls.invalidates
    own = cls if issubclass(cls, Pass) else Pass
    return RegisteredPass(
        name or cls.name,
        lambda given: cls(**dict(given)),
        _options_of(cls),
        frozenset(own.requires),
        frozenset(ensures),
        frozenset(invalidates),
        own.after,
        own.before,
    )


def _options_of(cls: type[Any]) -> type[PassOptions]:
    """Return the model of the options of a class of passes."""
    if hasattr(cls, "Options") or not is_dataclass(cls):
        found: type[PassOptions] = getattr(cls, "Options", PassOptions)
        return found
    options = [one for one in fields(cls) if one.init]
    if not options:
        return PassOptions
    types = get_type_hints(cls, include_extras=True)
    made: dict[str, Any] = {one.name: (types[one.name], _default(one)) for one in options}
    return create_model(f"{cls.__name__}Options", __base__=PassOptions, **made)


def _default(one: Field[Any]) -> Any:
    if one.default_factory is not MISSING:
        return pydantic.Field(default_factory=one.default_factory)
    return ... if one.default is MISSING else one.default


def described(name: str, value: Any) -> RegisteredPass:
    """Describe what a plug-in or caller offers under a name.

    Args:
        name: Name in kebab case.
        value: A `RegisteredPass`; or a class of passes, see `registered`; or a pass, which is taken to invalidate what
            edits of values can break.
    """
    if isinstance(value, RegisteredPass):
        return value
    if isinstance(value, type):
        return registered(value, name)
    return RegisteredPass(name, lambda given: value, invalidates=BROKEN_BY_EDITS)


@cache
def shipped_passes() -> Mapping[str, type[Pass] | RegisteredPass]:
    """Return the passes of exirkit by name: every public class of passes in the folders of passes.

    A module whose pass does not derive from `Pass` describes it as `REGISTERED`.
    """
    found: dict[str, type[Pass] | RegisteredPass] = {}
    for folder in _FOLDERS:
        package = import_module(f"exirkit.passes.{folder}")
        for name in sorted(each.name for each in iter_modules(package.__path__)):
            module = import_module(f"{package.__name__}.{name}")
            for one in vars(module).values():
                if isinstance(one, RegisteredPass) or _is_defined_in(one, module.__name__):
                    found[one.name] = one
    return {name: one for name, one in found.items() if name not in _OF_RULES}


def _is_defined_in(one: Any, module: str) -> bool:
    """Return whether a value is a public class of passes that a module defines."""
    is_pass = isinstance(one, type) and issubclass(one, Pass) and one.__module__ == module
    return is_pass and not one.__name__.startswith("_") and not isabstract(one)


class PassRegistry:
    """Finds passes by name: those of exirkit, those that a caller brings, and those of installed plug-ins.

    Args:
        brought: What a caller offers by name; see `described`.
    """

    def __init__(self, brought: Mapping[str, Any] | None = None) -> None:
        self._known: dict[str, Any] = {**shipped_passes(), **(brought or {})}

    def find(self, name: str) -> RegisteredPass | None:
        """Return a pass, or None if there is none of that name. Plug-ins are examined only for names unknown so far.

        Raises:
            UsageError: EK118 or EK119, the plug-in of that name cannot be used.
        """
        if name not in self._known and name in find_plugins(PASS_PLUGINS):
            self._known[name] = load_plugin(PASS_PLUGINS, name)
        return described(name, self._known[name]) if name in self._known else None

    def names(self) -> list[str]:
        """Return all names, those of plug-ins included."""
        return sorted({*self._known, *find_plugins(PASS_PLUGINS)})


def plugin_error(error: UsageError) -> tuple[str, tuple[str, ...]]:
    """Return what is wrong with a plug-in as a message and notes for another place."""
    first = error.diagnostics[0]
    return first.message, tuple(one for one in (*first.notes, first.hint) if one)
