"""Apply an analysis of the whole graph that is declared as data: layouts, and whatever else a file says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import ContractError, GraphEditor, SubgraphEditor
from exirkit.passes.analysis import StoredValues
from exirkit.passes.contract import ReportingPass
from exirkit.passes.optimize.fold_constants import is_small
from exirkit.patterns import (
    Analysis,
    Constant,
    Demands,
    Inference,
    InferredValues,
    NeededRanges,
    Notes,
    Propagation,
    Solver,
    apply_shorter,
    apply_solution,
    load_analysis,
    load_propagation,
    problem_of,
    shipped_propagations,
    solve,
    write_notes,
)


@dataclass(frozen=True, slots=True)
class PropagationReport:
    """What a propagation did to one program, the bodies of its control flow included.

    Attributes:
        propagation: Name of the propagation.
        converted_calls: Calls whose row has another value than the first; calls that were replaced by shorter ones, or
            on which something was noted.
        conversions: Conversions that were inserted.
        cost: What they cost: for layouts, the elements that they move.
        stored: Stored tensors that were converted, or made, while the program was lowered.
        around_every_call: Conversions, and their cost, if they were made around every call instead.
    """

    propagation: str
    converted_calls: int = 0
    conversions: int = 0
    cost: int = 0
    stored: int = 0
    around_every_call: tuple[int, int] = (0, 0)

    def plus(self, other: PropagationReport) -> PropagationReport:
        """Return what both did."""
        ours, theirs = self.around_every_call, other.around_every_call
        return PropagationReport(
            self.propagation,
            self.converted_calls + other.converted_calls,
            self.conversions + other.conversions,
            self.cost + other.cost,
            self.stored + other.stored,
            (ours[0] + theirs[0], ours[1] + theirs[1]),
        )


_COUNTED: ContextVar[dict[str, PropagationReport] | None] = ContextVar("_COUNTED", default=None)


@contextmanager
def counted_propagations() -> Iterator[Mapping[str, PropagationReport]]:
    """Count what all propagations do that run inside, in pipelines or on their own, by their names."""
    counted: dict[str, PropagationReport] = {}
    token = _COUNTED.set(counted)
    try:
        yield counted
    finally:
        _COUNTED.reset(token)


@dataclass(eq=False)
class PropagationPass(ReportingPass[PropagationReport]):
    """Choose a value for every tensor as a propagation says, and convert where values meet that differ.

    What is declared is tried before the first program: wrong rows are rejected. Subgraphs
    of control flow are solved on their own; what enters and leaves them is as it was. One that demands replaces calls
    of whose results not all is needed, and one that notes writes attributes.

    Args:
        propagation: A YAML file, or the name of a propagation that comes with exirkit.
        solver: How values are chosen, instead of what the file says: `cut`, `forward`, `backward` or `local`.
        tries: Whether its rows are tried first; by default those of files are, and those that come with exirkit, which
            its tests have tried, are not.

    Before: `%y = convolution(%x, ...)`; `%z = relu(%y)`
    After: `%a = _to_dim_order_copy(%x, dim_order=[0, 2, 3, 1])`; `%y = convolution(%a, ...)`; `%z = relu(%y)`; and a
    copy back where the program returns `%z`

    Raises:
        ModelError: EK290 to EK296, the propagation is wrong.
        ContractError: EK297, a tensor did not come out as its value says; the program is as it was.
    """

    name = "propagate"
    enters_subgraphs = True

    propagation: str | Path
    solver: Solver | None = None
    tries: bool | None = None

    @cached_property
    def _made(self) -> Analysis:
        made = load_analysis(self.propagation).require_valid()
        if isinstance(made, Inference) and made.model.values != "constants":
            # The error of an analysis that has nothing to put into a program.
            load_propagation(self.propagation)
        is_shipped = str(self.propagation) in shipped_propagations()
        if self.tries or (self.tries is None and not is_shipped):
            from exirkit.patterns import check_propagation

            verdict = check_propagation(made)
            if not verdict.is_accepted:
                raise ContractError(verdict.found)
        return made

    def edit(self, editor: GraphEditor) -> None:
        """Solve the graph, and put the solution into it."""
        is_body = isinstance(editor, SubgraphEditor)
        stored = {} if is_body else convertible_inputs(editor.program)
        if isinstance(self._made, Inference):
            report = _folded(editor, self._made, stored)
        elif isinstance(self._made, Demands):
            count = apply_shorter(editor, NeededRanges(self._made, editor.graph))
            report = PropagationReport(self._made.model.id, count)
        elif isinstance(self._made, Notes):
            report = PropagationReport(self._made.model.id, self._note(editor, self._made, stored))
        else:
            report = _chosen(editor, self._made, stored, self.solver)
        counted = _COUNTED.get()
        if counted is not None:
            known = counted.get(report.propagation)
            counted[report.propagation] = report if known is None else known.plus(report)
        if is_body and self.reports:
            self.reports[-1] = self.reports[-1].plus(report)
        else:
            self.reports.append(report)

    @staticmethod
    def _note(editor: GraphEditor, made: Notes, stored: Mapping[Node, torch.Tensor]) -> int:
        assert made.uses is not None
        return write_notes(editor, made, InferredValues(made.uses, stored=stored.get))


def _chosen(
    editor: GraphEditor, made: Propagation, stored: Mapping[Node, torch.Tensor], solver: Solver | None
) -> PropagationReport:
    """Choose values, and put them into a graph."""
    problem = problem_of(made, editor.graph, stored)
    solution, around = solve(problem, solver), solve(problem, "local")
    folded = apply_solution(editor, solution, stored)
    return PropagationReport(
        made.model.id,
        sum(not solution.leaves(node) for node in problem.rows),
        len(solution.paid),
        sum(one.cost for one in solution.paid),
        folded,
        (len(around.paid), sum(one.cost for one in around.paid)),
    )


def _folded(editor: GraphEditor, made: Inference, stored: Mapping[Node, torch.Tensor]) -> PropagationReport:
    """Store what is known and used by what is not; calls that nothing uses any more go."""
    values = InferredValues(made, stored=stored.get)
    calls = [node for node in editor.graph.nodes if node.op == "call_function"]
    known = {node: fact for node in calls if isinstance(fact := values.of(node), Constant)}
    # Only numbers that are read from memory are worth storing: a tensor of one number is made faster than it is read.
    wanted = [node for node in known if node.all_input_nodes and any(user not in known for user in node.users)]
    for node in wanted:
        constant = editor.add_constant(known[node].tensor.clone(), name=f"{node.name}_known", origins=node)
        editor.replace(node, constant)
    before = len(editor.graph.nodes)
    for node in reversed(list(known)):
        if not node._erased and not node.users:
            editor.erase_unused(node)
    editor.remove_inputs([node for node in stored if not node._erased and not node.users])
    return PropagationReport(made.model.id, before - len(editor.graph.nodes), 0, 0, len(wanted))


def convertible_inputs(program: ExportedProgram) -> Mapping[Node, torch.Tensor]:
    """Return the stored tensors of a program that can be converted while it is lowered, by their inputs."""
    values = StoredValues(program)
    found = ((node, values.tensor(node)) for node in program.graph.find_nodes(op="placeholder"))
    return {node: tensor for node, tensor in found if tensor is not None and is_small(tensor)}
