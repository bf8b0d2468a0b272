"""Running the passes that users bring: exirkit passes, `ExportPass`, `PassBase`, functions, and lists of these."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule

from exirkit.ir import (
    ContractError,
    DiagnosticError,
    GraphEditor,
    UsageError,
    called_graphs,
    copy_program,
    misordered,
    results_of_graph,
    take_foreign_handles,
)
from exirkit.passes.contract import Pass, check_outputs, official_program_pass, outputs_of
from exirkit.passes.stage_events import Moment, StageEvent, Watcher, current_watch, next_run
from exirkit.passes.to_edge.edge_operators import LiftConstants

from .base import (
    ExportedProgramPassBase,
    PassManager,
    code_of_pass,
    is_official,
    name_of_pass,
    official_handles,
    raised,
    run_official,
)

_HINT = "a pass that adds or removes stored tensors edits the program: derive it from exirkit.Pass"

_OFFICIAL_NOTES = (
    "it is a pass of the official package; calls had the handles of the official package while it ran",
    "it cannot know operators that exirkit alone has, nor delegates of exirkit",
)
_OFFICIAL_HINT = (
    "derive it from `exirkit.ExportPass`, which has the same hooks; or run it before `to_backend`; or run it in the "
    "official chain, whose programs `exirkit.bridge.edge_from_official` takes over"
)


class CompleteMetadata(Pass):
    """Infer the value of every node that a graph-level pass made without one."""

    name = "complete-metadata"
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Infer what is missing, in graph order."""
        for node in editor.graph.nodes:
            if node.op == "call_function" and "val" not in node.meta:
                editor.refresh(node)


def apply_user_passes(program: ExportedProgram, passes: Any) -> ExportedProgram:
    """Run passes in order on a copy of a program.

    Args:
        program: The program; it is not changed.
        passes: A pass, or any nesting of lists, tuples and pass managers. A pass is an exirkit `Pass`, an
            `ExportedProgramPassBase`, or a callable that takes a graph module and returns a `PassResult`, a graph
            module, or None if it worked in place.

    Returns:
        The new program; its signature agrees with its graph, and every node has a recorded value.

    Raises:
        UsageError: EK424, something in `passes` is not a pass.
        ContractError: EK425, a pass failed, returned something else, changed the number of inputs or outputs, or left
            nodes in front of their arguments; EK446, it changed the dtype or shape of an output without declaring it;
            EK413, a check of a pass manager failed. Those of `Pass.run` too.
    """
    watch = current_watch()
    run = None if watch.watcher is None or not watch.sees_passes else _WatchedRun(watch.watcher)
    if run is not None:
        run.tell("start", program)
    # A watcher may run passes of its own in the middle of a run that is watched.
    token = _RUN.set(run)
    try:
        changed = run_user_pass(copy_program(program), passes)[0]
    finally:
        _RUN.reset(token)
    if run is not None:
        run.tell("end", changed)
    return changed


class _WatchedRun:
    """One call of `apply_user_passes` that is watched.

    Attributes:
        position: How many passes have worked.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._number = next_run()
        self.position = 0

    def tell(self, moment: Moment, program: ExportedProgram, edit: Any = None, modified: bool = False) -> None:
        """Notify the watcher."""
        number, name = ("", "") if edit is None else (str(self.position + (moment == "before")), name_of_pass(edit))
        self._watcher(StageEvent(moment, self._number, "", self.position, number, name, program, modified, edit))


_RUN: ContextVar[_WatchedRun | None] = ContextVar("exirkit_watched_passes", default=None)


def run_user_pass(program: ExportedProgram, passes: Any) -> tuple[ExportedProgram, bool]:
    """Run one pass, or a list or pass manager, on a program that the caller owns.

    Returns:
        The program, which is another one where a pass over programs made one, and whether it differs.

    Raises:
        UsageError: EK424, it is not a pass.
        ContractError: EK425, as for `apply_user_passes`; EK413, a check of a pass manager failed.
    """
    if isinstance(passes, PassManager):
        return _run_manager(program, passes)
    if isinstance(passes, Iterable):
        is_modified = False
        for one in passes:
            program, changed = run_user_pass(program, one)
            is_modified = is_modified or changed
        return program, is_modified
    if isinstance(passes, type):
        raise UsageError(
            code="EK424",
            message=f"{passes.__name__} is a class, not a pass",
            expected="an instance of it",
            hint=f"write `{passes.__name__}()`",
        )
    if callable(passes) or isinstance(passes, Pass):
        return _run(program, passes)
    raise UsageError(
        code="EK424",
        message=f"{type(passes).__name__} is not a pass",
        expected="a Pass, an ExportPass, a function of a graph module, or a list of these",
    )


def _run_manager(program: ExportedProgram, manager: PassManager) -> tuple[ExportedProgram, bool]:
    """Do what a pass manager does, with the program kept in order after every pass and not only at the end."""
    manager.check_input(program.graph_module)
    is_modified = False
    for _ in range(manager.steps):
        has_changed = False
        for position, one in enumerate(manager.passes):
            program, changed = run_user_pass(program, one)
            has_changed = has_changed or changed
            manager.check_after(position, program.graph_module)
        is_modified = is_modified or has_changed
        if not has_changed:
            break
    manager.check_result(program.graph_module)
    return program, is_modified


def _run(program: ExportedProgram, one: Any) -> tuple[ExportedProgram, bool]:
    run = _RUN.get()
    if run is None:
        return _run_one(program, one)
    run.tell("before", program, one)
    # What the pass runs in turn is its own affair.
    token = _RUN.set(None)
    try:
        program, is_modified = _run_one(program, one)
    finally:
        _RUN.reset(token)
    run.position += 1
    run.tell("after", program, one, is_modified)
    return program, is_modified


def _run_one(program: ExportedProgram, one: Any) -> tuple[ExportedProgram, bool]:
    if isinstance(one, Pass):
        return program, one.run(GraphEditor(program)).modified
    outputs = outputs_of(program)
    try:
        if isinstance(one, ExportedProgramPassBase) or _takes_programs(one):
            program, is_modified = _run_on_program(one, program)
            _check_order(one, program.graph_module)
            check_outputs(one, outputs, program)
            return program, is_modified
        result = run_official(one, program.graph_module) if is_official(one) else one(program.graph_module)
    except DiagnosticError:
        raise
    except Exception as error:
        if is_official(one):
            raise raised(one, error, "EK447", _OFFICIAL_NOTES, _OFFICIAL_HINT) from error
        raise raised(one, error, "EK425") from error
    module = _graph_module_of(result, program.graph_module, one)
    _check_arity(program, module, one)
    _check_order(one, module)
    program._graph_module = module
    editor = GraphEditor(program)
    for repair in (CompleteMetadata(), LiftConstants()):
        repair.run(editor)
    check_outputs(one, outputs, program)
    return program, bool(getattr(result, "modified", True))


def _run_on_program(one: Any, program: ExportedProgram) -> tuple[ExportedProgram, bool]:
    if not is_official(one):
        changed = one(program)
        return changed.exported_program, changed.modified
    with official_handles(program.graph_module):
        changed = one(program)
        take_foreign_handles(changed.exported_program.graph_module)
    return changed.exported_program, bool(changed.modified)


def _graph_module_of(result: Any, given: GraphModule, one: Any) -> GraphModule:
    if result is None:
        return given
    module = getattr(result, "graph_module", result)
    if not isinstance(module, GraphModule):
        raise _broken(one, f"returned {type(result).__name__}")
    return module


def _check_order(one: Any, module: GraphModule) -> None:
    for each in called_graphs(module):
        found = misordered(each.graph)
        if found is not None:
            user, argument = found
            gone = "is not in the graph" if argument._erased or argument.graph is not each.graph else "stands behind it"
            message = f"left %{user.name} with the argument %{argument.name}, which {gone}"
            raise _broken(one, message, "make new nodes inside of `graph.inserting_before(user)`")


def _check_arity(program: ExportedProgram, module: GraphModule, one: Any) -> None:
    signature = program.graph_signature
    inputs = len(module.graph.find_nodes(op="placeholder"))
    outputs = len(results_of_graph(module))
    for what, found, wanted in (
        ("inputs", inputs, len(signature.input_specs)),
        ("outputs", outputs, len(signature.output_specs)),
    ):
        if found != wanted:
            raise _broken(one, f"changed the number of {what} from {wanted} to {found}")


def _broken(one: Any, what: str, hint: str = _HINT) -> ContractError:
    return ContractError(
        code="EK425",
        message=f"pass {name_of_pass(one)} {what}",
        location=code_of_pass(one),
        expected="a PassResult or graph module with the inputs and outputs of the one it was given, in order",
        hint=hint,
    )


def _takes_programs(one: Any) -> bool:
    """Return whether a pass of the official package works on exported programs, not on graph modules."""
    base = official_program_pass()
    return base is not None and is_official(one) and isinstance(one, base)
