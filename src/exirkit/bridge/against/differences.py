"""In what a pass of the official package and rules differ on a program, and which of them is wrong."""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch.export import ExportedProgram

from exirkit.bridge.official_edge import officially_lowered
from exirkit.fuzz import Found, GraphFailedError, GraphSession, Program
from exirkit.ir import DiagnosticError, called_graphs, copy_program, operator_name, operator_named, view_of_copy

from .comparisons import Comparison, SideResult, comparisons_of
from .leeway import Leeway
from .subjects import GeneratedSubject, Subject

Oracle: TypeAlias = Literal["their-results", "our-results", "operators"]
ORACLES: tuple[Oracle, ...] = ("their-results", "our-results", "operators")
"""What is compared: results of the pass with eager PyTorch, results of the rules with it, and the operators of both."""

# Of many operators, so many are named.
_MOST_NAMED = 6
_SAME_VIEW = {"aten.reshape.default": "aten.view.default", "aten._unsafe_view.default": "aten.view.default"}
# Books define operators there that the official package has registered; see `beside_other_libraries`.
_OWN_NAMESPACE = re.compile(r"_[0-9a-f]{10}::")


@dataclass
class Outcome:
    """What came of a program.

    Attributes:
        found: What is wrong, and how pass and rules differ.
        unsupported: Why nothing could be compared: symptom and text.
        not_run: Oracles that could not be asked, and why.
        theirs_changed: The pass changed the program.
        fired: How often each rule was applied.
        compared: How many results were compared.
    """

    found: list[Found] = field(default_factory=list)
    unsupported: tuple[str, str] | None = None
    not_run: dict[str, str] = field(default_factory=dict)
    theirs_changed: bool = False
    fired: Counter[str] = field(default_factory=Counter)
    compared: int = 0


@dataclass(frozen=True)
class _Side:
    """What one side made of a method.

    Attributes:
        program: The result; None if the side raised.
        wrong: Symptom and text of what is wrong with it.
        not_run: Why it could not be run.
    """

    program: ExportedProgram | None
    wrong: tuple[str, str] | None = None
    not_run: str | None = None


def differences(subject: Subject, comparison: Comparison, oracles: Sequence[str] = ORACLES) -> Outcome:
    """Run passes and rules on a program, and compare what they make.

    A side that gives other results than eager PyTorch, or raises, is wrong; results behind rules that state a
    tolerance may be as far away as that can bring them. If both are right, their operators are compared: calls that
    only one of them replaces are sites that the other one leaves.

    Args:
        subject: The program.
        comparison: What is compared.
        oracles: Which of `ORACLES` to ask.
    """
    outcome = Outcome()
    try:
        with torch.no_grad():
            programs = dict(subject.exported)
            before = officially_lowered(programs, comparison.keeps) if comparison.is_on_edge else programs
    except Exception as error:
        outcome.unsupported = (f"to_edge raises {type(error).__name__}", _first_line(error))
        return outcome
    for method, program in before.items():
        if method in subject.inputs:
            _compare_method(_Method(subject, comparison, method, program), outcome, oracles)
    return outcome


def compared_with_original(
    program: Program, against: Sequence[str], *, rules: Sequence[str] = (), pipelines: Sequence[str] = ()
) -> list[Found]:
    """Return how passes of the official package and rules differ on a program; for scripts and tests.

    Args:
        program: A generated program.
        against: `MODULE:CLASS` of each pass, run one after the other.
        rules: Books; those that the tables of backends name for the class if there is neither book nor pipeline.
        pipelines: Files of pipelines, or names of backends' books.

    Raises:
        ModelError: EK863, there is no such pass.
        UsageError: EK766, a pass cannot be made.
    """
    comparisons, _ = comparisons_of(against, rules, pipelines)
    return [found for one in comparisons for found in differences(GeneratedSubject(program), one).found]


@dataclass(frozen=True)
class _Method:
    subject: Subject
    comparison: Comparison
    name: str
    program: ExportedProgram

    def side(self, stage: str, make: Callable[[ExportedProgram], SideResult]) -> _Side:
        """Return what a side makes of the method, and whether that is right."""
        try:
            with torch.no_grad():
                made = make(self.program)
        except NotImplementedError as error:
            return _Side(None, not_run=_first_line(error))
        except Exception as error:
            text = f"{stage} raises {type(error).__name__}: {_first_line(error)}"
            return _Side(None, (f"raises {_kind_of(error)}", text))
        return self.judged(stage, made.program, made.leeway)

    def judged(self, stage: str, made: ExportedProgram, leeway: Leeway | None = None) -> _Side:
        """Return whether a program gives the results of eager PyTorch, as closely as rules promise that made it."""
        session = GraphSession(self.comparison.meant(made))
        try:
            results = [session.run(one) for one in self.subject.inputs[self.name]]
        except GraphFailedError as error:
            cause = error.__cause__ or error
            # Kernels of some targets' operators are in tools that are not installed.
            if isinstance(cause, NotImplementedError | ModuleNotFoundError):
                return _Side(made, not_run=f"no kernel for {error.node.target}")
            return _Side(made, (f"its program raises {type(cause).__name__}", f"{stage}: {_first_line(error)}"))
        except (KeyError, ValueError) as error:
            # The graph does not fit its signature any more.
            return _Side(made, ("its program has other inputs or outputs", f"{stage}: {_first_line(error)}"))
        failure = next(self.subject.failures(stage, self.name, results), None)
        if failure is not None and leeway is not None:
            near = leeway.used(results, self.subject.inputs[self.name])
            failure = next(self.subject.failures(stage, self.name, near), None)
        return _Side(made, None if failure is None else (failure.symptom, failure.message))


def _compare_method(method: _Method, outcome: Outcome, oracles: Sequence[str]) -> None:
    comparison = method.comparison
    plain = method.judged("the official Edge program", method.program)
    if plain.wrong is not None or plain.not_run is not None:
        # What `to_edge` gets wrong is not a matter of any pass.
        outcome.unsupported = ("to_edge is wrong", plain.not_run or (plain.wrong or ("", ""))[1])
        return
    outcome.compared += len(method.subject.inputs[method.name])
    theirs = method.side(comparison.name, lambda program: SideResult(comparison.theirs(program)))
    name = comparison.name
    before = operators_of(method.program)
    after = before if theirs.program is None else operators_of(theirs.program)
    outcome.theirs_changed |= after != before or _text(theirs.program) != _text(method.program)
    if theirs.not_run is not None:
        outcome.not_run["their-results"] = theirs.not_run
    if theirs.wrong is not None and "their-results" in oracles:
        outcome.found.append(_found("theirs is wrong", name, *theirs.wrong))
    if not comparison.has_ours:
        return

    def apply(program: ExportedProgram) -> SideResult:
        made = comparison.ours(program)
        outcome.fired.update(made.fired)
        return made

    ours = method.side("the rules", apply)
    if ours.not_run is not None:
        outcome.not_run["our-results"] = ours.not_run
    if ours.wrong is not None and "our-results" in oracles:
        outcome.found.append(_found("ours is wrong", name, *ours.wrong))
    comparable: Callable[[Counter[str]], Counter[str]] = Counter if comparison.is_on_edge else _as_views
    are_right = theirs.wrong is None and ours.wrong is None
    if are_right and ours.program is not None and "operators" in oracles:
        found = _differing_operators(*map(comparable, (before, after, operators_of(ours.program))))
        outcome.found += [] if found is None else [_found(found[0], name, "operators", found[1])]


def operators_of(program: ExportedProgram) -> Counter[str]:
    """Return how often each operator is called whose result is used, in bodies of control flow as well."""
    found: Counter[str] = Counter()
    mine = copy_program(program)
    for module in called_graphs(mine.graph_module):
        module.graph.eliminate_dead_code()
        for node in module.graph.nodes:
            schema = getattr(node.target, "_schema", None)
            if node.op == "call_function" and schema is not None:
                name = _OWN_NAMESPACE.sub("::", schema.name)
                found[f"{name.replace('::', '.')}.{schema.overload_name or 'default'}"] += 1
    return found


def _as_views(operators: Counter[str]) -> Counter[str]:
    """Return operators with views and copies of views as one: on what exporters return, either may be written."""
    found: Counter[str] = Counter()
    for name, count in operators.items():
        # Exporters note what a cast was given.
        if name != "aten._assert_tensor_metadata.default":
            found[_SAME_VIEW.get(name) or _view_named(name)] += count
    return found


@cache
def _view_named(name: str) -> str:
    view = view_of_copy(operator_named(name)) if name.startswith("aten.") and "_copy." in name else None
    return name if view is None else operator_name(view)


def _differing_operators(before: Counter[str], theirs: Counter[str], ours: Counter[str]) -> tuple[str, str] | None:
    """Return which side leaves a site, if any does, and the operators of both sides."""
    if theirs == ours:
        return None
    gone_there, gone_here = before - theirs, before - ours
    text = f"theirs: {_change(before, theirs)}; ours: {_change(before, ours)}"
    if theirs != before and (ours == before or (gone_here <= gone_there and gone_here != gone_there)):
        return "ours leaves a site", text
    if ours != before and (theirs == before or (gone_there <= gone_here and gone_here != gone_there)):
        return "theirs leaves a site", text
    return "operators differ", text


def _change(before: Counter[str], after: Counter[str]) -> str:
    if before == after:
        return "no change"
    gone, new = before - after, after - before
    return f"{_listed(gone) or 'nothing'} -> {_listed(new) or 'nothing'}"


def _listed(operators: Mapping[str, int]) -> str:
    named = [name if count == 1 else f"{count} {name}" for name, count in sorted(operators.items())]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return ", ".join(named[:_MOST_NAMED]) + more


def _found(kind: str, name: str, symptom: str, message: str) -> Found:
    oracle = {"theirs is wrong": "their-results", "ours is wrong": "our-results"}.get(kind, "operators")
    parts = (kind, name) if symptom == "operators" else (kind, name, symptom)
    return Found(oracle=oracle, symptom=symptom, message=message, stage=name, bucket=" | ".join(parts))


def _text(program: ExportedProgram | None) -> Any:
    """Return what a program calls, with its arguments: a pass may exchange arguments only."""
    if program is None:
        return None
    return [(str(node.target), str(node.args), str(node.kwargs)) for node in program.graph.nodes if node.users]


def _kind_of(error: BaseException) -> str:
    """Return type and place of an exception: the function of the pass, without line."""
    if isinstance(error, DiagnosticError):
        return error.code
    cause = error.__cause__ if error.__cause__ is not None and type(error) is Exception else error
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [one for one in frames if "executorch" in Path(one.filename).parts and "pass_base" not in one.filename]
    place = f" at {Path(theirs[-1].filename).stem}:{theirs[-1].name}" if theirs else ""
    return f"{type(cause).__name__}{place}"


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[0][:600] if lines else type(error).__name__
