"""Where a lowering goes wrong: the first pass, the application of a rule, and the first node that differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.fuzz.compilers import Snapshot
from exirkit.fuzz.examination import GraphFailedError, GraphResult, GraphSession
from exirkit.ir import DiagnosticError, locate, pytree
from exirkit.passes import ApplyRules
from exirkit.patterns import Application, bisect_rewrites
from exirkit.verifiers import check_metadata

from .value_gaps import Tolerances, ValueGap, gap_of

Calls = Sequence[Sequence[Any]]
"""Flat inputs of every run."""


@dataclass(frozen=True)
class NodePlace:
    """A node, and where in the user's model it comes from.

    Attributes:
        name: Of the node.
        call: The call as text.
        source: Line of the model.
        module: Path of the module, such as `features.3.conv`.
    """

    name: str
    call: str
    source: str | None = None
    module: str | None = None


@dataclass(frozen=True)
class WrongNode:
    """The first node after a step whose value is not what it was before.

    Attributes:
        place: The node.
        gap: How far its value is off.
        run: In which run, from 0.
        before: The node of the program before the step to which it was compared.
    """

    place: NodePlace
    gap: ValueGap
    run: int
    before: NodePlace


@dataclass(frozen=True)
class WrongStep:
    """The first step of a lowering after which a method computes something else.

    Attributes:
        method: The method.
        stage: Name of the pass.
        pipeline: File of the pipeline that it is in; empty for a pass that was given by itself.
        after: The pass before.
        gap: How far the results are off; None if the program cannot be run.
        result: Which result is off, such as `output 0`.
        failure: Why the program cannot be run.
        application: The application of a rule that does it, if the pass applies rules.
        rule_place: File and line of that rule.
        node: The first node whose value differs, if one can be compared.
        made: Nodes that the application, or the pass, has made.
        removed: Nodes that the pass has removed or left without users; for an application see there.
    """

    method: str
    stage: str
    pipeline: str
    after: str
    gap: ValueGap | None
    result: str
    failure: str | None = None
    application: Application | None = None
    rule_place: str | None = None
    node: WrongNode | None = None
    made: tuple[NodePlace, ...] = ()
    removed: tuple[NodePlace, ...] = ()


class MethodJudge:
    """Runs programs of one method on torch and compares their results with those of eager torch.

    Args:
        expected: Results of every run, as `results_of` gives them for the exported program.
        calls: Flat inputs of every run.
        tolerances: What is near enough.
    """

    def __init__(self, expected: Sequence[GraphResult], calls: Calls, tolerances: Tolerances) -> None:
        self.expected = expected
        self.calls = calls
        self.tolerances = tolerances

    def worst(self, program: ExportedProgram) -> tuple[str, ValueGap]:
        """Return the result that is off the most, and how far.

        Raises:
            GraphFailedError: Torch does not run the program.
        """
        gaps = list(self._gaps(results_of(program, self.calls)))
        return max(gaps, key=lambda one: (one[1].is_bad, one[1].relative), default=("no output", ValueGap("equal")))

    def is_wrong(self, program: ExportedProgram) -> bool:
        """Whether a program has other results; one that torch does not run says nothing."""
        try:
            return self.worst(program)[1].is_bad
        except GraphFailedError:
            return False

    def _gaps(self, results: Sequence[GraphResult]) -> Iterator[tuple[str, ValueGap]]:
        for run, (got, wanted) in enumerate(zip(results, self.expected, strict=True)):
            suffix = f" of run {run + 1}" if len(self.expected) > 1 else ""
            if len(got.outputs) != len(wanted.outputs):
                text = f"{len(got.outputs)} outputs instead of {len(wanted.outputs)}"
                yield f"the outputs{suffix}", ValueGap("type", text=text)
                continue
            for index, (one, other) in enumerate(zip(got.outputs, wanted.outputs, strict=True)):
                yield f"output {index}{suffix}", gap_of(one, other, self.tolerances)
            for name, value in wanted.state.items():
                if name in got.state:
                    yield f"buffer {name}{suffix}", gap_of(got.state[name], value, self.tolerances)


def results_of(program: ExportedProgram, calls: Calls) -> list[GraphResult]:
    """Run a program of any dialect on torch; state stays from run to run.

    Raises:
        GraphFailedError: An operator raised.
    """
    session = GraphSession(program)
    return [session.run(inputs) for inputs in calls]


def first_wrong_step(path: Sequence[Snapshot], judge: MethodJudge) -> WrongStep | None:
    """Return the first step after which a program computes something else, or None.

    All snapshots are examined in their order, so that it does not matter if a later pass hides what an earlier one has
    done.

    Args:
        path: Programs after every pass, the exported one first.
        judge: Compares them with eager torch.
    """
    at = next((index for index, one in enumerate(path) if index and judge.is_wrong(one.program)), None)
    if at is None:
        return None
    step, before = path[at], path[at - 1]
    good, bad, application = before.program, step.program, None
    if isinstance(step.edit, ApplyRules):
        found = _bisected(good, step.edit, judge)
        if found is not None:
            good, bad, application = found
    result, gap = judge.worst(bad)
    made = _made_by(application, good, bad)
    return WrongStep(
        step.method, step.stage, step.pipeline, before.stage, gap, result, application=application,
        rule_place=_place_of_rule(step.edit, application), node=first_wrong_node(good, bad, judge), made=made,
        removed=() if application is not None else _removed(good, bad),
    )  # fmt: skip


def first_false_step(path: Sequence[Snapshot]) -> WrongStep | None:
    """Return the first step that records a dtype, shape or layout which torch does not compute.

    Later passes may fail because of it.
    """
    for at, step in enumerate(path):
        found = check_metadata(step.program, layouts=True) if at else []
        if found:
            return WrongStep(step.method, step.stage, step.pipeline, path[at - 1].stage, None, "",
                             failure=found[0].headline())  # fmt: skip
    return None


def first_wrong_node(good: ExportedProgram, bad: ExportedProgram, judge: MethodJudge) -> WrongNode | None:
    """Return the first node of a program whose value is not that of the node which it stands for.

    Nodes stand for each other if they have the same name, or are the same argument of nodes that do.
    """
    pairs = _paired(good, bad)
    good_session, bad_session = GraphSession(good), GraphSession(bad)
    wanted = set(pairs.values())
    for run, inputs in enumerate(judge.calls):
        kept: dict[Node, Any] = {}

        def keep(node: Node, value: Any, kept: dict[Node, Any] = kept) -> None:
            if node in wanted:
                kept[node] = pytree.tree_map_only(torch.Tensor, _copy, value)

        found: list[tuple[Node, ValueGap]] = []

        def compare(
            node: Node, value: Any, kept: dict[Node, Any] = kept, found: list[tuple[Node, ValueGap]] = found
        ) -> None:
            if not found and node.op == "call_function" and pairs.get(node) in kept:
                gap = gap_of(value, kept[pairs[node]], judge.tolerances)
                # A pass that moves dims keeps names, and then nothing is said by a comparison.
                if gap.is_bad and gap.kind != "type":
                    found.append((node, gap))

        try:
            good_session.run(inputs, keep)
            bad_session.run(inputs, compare)
        except GraphFailedError:
            return None
        if found:
            node, gap = found[0]
            return WrongNode(place_of(node), gap, run, place_of(pairs[node]))
    return None


def place_of(node: Node) -> NodePlace:
    """Return where a node comes from."""
    place = locate(node)
    return NodePlace(node.name, (place.text or node.name).removeprefix(f"%{node.name} = "), place.source,
                     place.module)  # fmt: skip


def _copy(value: torch.Tensor) -> torch.Tensor:
    return value.detach().clone()


def _bisected(
    good: ExportedProgram, edit: ApplyRules, judge: MethodJudge
) -> tuple[ExportedProgram, ExportedProgram, Application] | None:
    try:
        found = bisect_rewrites(good, edit.engine.rules, lambda one: not judge.is_wrong(one), edit.options)
    except DiagnosticError:
        return None
    if found.culprit is None or found.bad is None:
        return None
    return found.good, found.bad, found.culprit


def _place_of_rule(edit: Any, application: Application | None) -> str | None:
    if application is None:
        return None
    rule = next(one for one in edit.engine.rules if one.id == application.rule)
    place = rule.texts.match.location()
    return f"{place.file}:{place.line}" if place.file and place.line else place.file


def _made_by(application: Application | None, good: ExportedProgram, bad: ExportedProgram) -> tuple[NodePlace, ...]:
    if application is None:
        names = {node.name for node in good.graph.nodes}
        return tuple(place_of(node) for node in _calls(bad) if node.name not in names)
    return tuple(place_of(node) for node in bad.graph.nodes if node.name in application.after)


def _removed(good: ExportedProgram, bad: ExportedProgram) -> tuple[NodePlace, ...]:
    kept = {node.name: node for node in bad.graph.nodes}
    return tuple(
        place_of(node) for node in _calls(good) if node.name not in kept or (node.users and not kept[node.name].users)
    )


def _calls(program: ExportedProgram) -> Iterator[Node]:
    return (node for node in program.graph.nodes if node.op == "call_function")


def _paired(good: ExportedProgram, bad: ExportedProgram) -> dict[Node, Node]:
    """Return for nodes of the bad program those of the good one that they stand for."""
    named = {node.name: node for node in good.graph.nodes}
    pairs = {node: named[node.name] for node in bad.graph.nodes if node.name in named}
    taken = set(pairs.values())
    # Users come before what they use, so that chains of other nodes are followed from their end.
    for node in reversed(list(bad.graph.nodes)):
        other = pairs.get(node)
        if other is None:
            continue
        mine, theirs = node.all_input_nodes, other.all_input_nodes
        for one, another in zip(mine, theirs, strict=False) if len(mine) == len(theirs) else ():
            if one not in pairs and another not in taken:
                pairs[one] = another
                taken.add(another)
    return pairs
