"""A partitioner that does what a file states, and its report: what was taken, and why every other call was not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import CompileSpec, Diagnostic, GraphEditor, Location, OpOverload, locate, subgraph_editors
from exirkit.passes.delegate.backend import DELEGATION_TAG, DelegationSpec, Partitioner, PartitionResult
from exirkit.passes.delegate.insertion import tag_kept_state
from exirkit.patterns import OperatorTable, ProgramFacts, SourceText, compile_condition

from .deciding import CallFacts, Claim, Decider, Decision, FoundPartition, fewest, nearest_rejections, why_not_delegable
from .model import CONDITION_NAMES, Partitioning, WholeOperators, check_partitioning, load_partitioning

Kind = Literal["no_rule", "rejected", "left", "cycle", "too_small", "too_large", "too_many", "untakable"]
"""Why a call stays: no rule speaks of its operator; those that do ask for something else; a rule says that it stays; a
match was given up since it would wait for itself; the partition is too small, or too large and cannot be cut; there are
too many partitions; no delegate can take such a call."""

_SHOWN = 3


@dataclass(frozen=True)
class TakenPartition:
    """One partition that goes to a backend.

    Attributes:
        tag: Its tag.
        graph: Path of the body of control flow that it is in; empty for the program's own graph.
        backend: Name of the backend.
        nodes: Names of its calls.
        operators: How often it calls each operator, by name.
        rules: Titles of the rules that took its calls.
        inputs: How many values it is handed or keeps.
        results: How many values of it others read.
        elements: Elements that its calls compute or move.
        macs: Multiplications with addition.
        nbytes: Bytes that its calls compute; None if sizes have no bound.
    """

    tag: str
    graph: str
    backend: str
    nodes: tuple[str, ...]
    operators: dict[str, int]
    rules: tuple[str, ...]
    inputs: int
    results: int
    elements: int
    macs: int
    nbytes: int | None


@dataclass(frozen=True)
class WhyNot:
    """Why a call is not taken.

    Attributes:
        node: Name of the call.
        graph: Path of the body of control flow that it is in; empty for the program's own graph.
        operator: Its operator.
        kind: The sort of reason.
        reason: The reason in words.
        rule: Title of the rule that it is about: the one that came nearest, if several speak of the operator.
        others: What the other rules that speak of the operator ask for, the nearest first.
        place: The call, and the line of the model that it comes from.
    """

    node: str
    graph: str
    operator: str
    kind: Kind
    reason: str
    rule: str | None
    others: tuple[str, ...]
    place: Location

    def diagnostic(self) -> Diagnostic:
        """Return all of this as a note that points at the call."""
        about = f" ({self.rule})" if self.rule else ""
        return Diagnostic.of(
            code="EK497",
            severity="note",
            message=f"%{self.node} of {self.operator} stays in the program: {self.reason}{about}",
            location=self.place,
            notes=self.others,
        )


@dataclass(frozen=True)
class PartitionAccount:
    """What a partitioner takes of a program.

    Attributes:
        taken: Partitions, those of the program's own graph first.
        not_taken: Calls that stay, in graph order; what takes a result out of several is not listed.
    """

    taken: tuple[TakenPartition, ...]
    not_taken: tuple[WhyNot, ...]

    @property
    def taken_calls(self) -> int:
        """How many calls are taken."""
        return sum(sum(one.operators.values()) for one in self.taken)


def account_of(program: ExportedProgram, partitioner: DataPartitioner) -> PartitionAccount:
    """Return what a partitioner takes of a program, and why not the rest; the program is not changed.

    Raises:
        ModelError: EK223, a condition has no answer for a call.
    """
    taken: list[TakenPartition] = []
    not_taken: list[WhyNot] = []
    for one in partitioner.decisions(program):
        taken += [
            _taken(partition, one, partitioner) for partition in one.decision.partitions if partition.stays is None
        ]
        not_taken += _not_taken(one, partitioner.decider)
    return PartitionAccount(tuple(taken), tuple(not_taken))


def _taken(partition: FoundPartition, one: GraphDecision, partitioner: DataPartitioner) -> TakenPartition:
    inside = set(partition.nodes)
    operators: dict[str, int] = {}
    for call in partition.calls:
        operators[call.operator] = operators.get(call.operator, 0) + 1
    sources = {source for node in partition.nodes for source in node.all_input_nodes if source not in inside}
    nbytes = partition.size("nbytes")
    return TakenPartition(
        tag=one.tags[partition.nodes[0]],
        graph=one.path,
        backend=partition.backend,
        nodes=tuple(node.name for node in partition.nodes),
        operators=dict(sorted(operators.items(), key=lambda pair: (-pair[1], pair[0]))),
        rules=tuple(map(partitioner.partitioning.title_of, partition.rules)),
        inputs=len(sources),
        results=sum(any(user not in inside for user in node.users) for node in partition.nodes),
        elements=int(partition.size("elements")),
        macs=int(partition.size("macs")),
        nbytes=None if nbytes == float("inf") else int(nbytes),
    )


def _not_taken(one: GraphDecision, decider: Decider) -> Iterator[WhyNot]:
    reasons = _Reasons(one.decision, decider)
    taken = {node for partition in one.decision.partitions if partition.stays is None for node in partition.nodes}
    for node, call in one.decision.calls.items():
        if node not in taken:
            yield WhyNot(node.name, one.path, call.operator, *reasons.of(node), locate(node))


class _Reasons:
    """Finds out why calls of one graph stay."""

    def __init__(self, decision: Decision, decider: Decider) -> None:
        self.decision = decision
        self.decider = decider
        self._staying = {node: one.stays for one in decision.partitions if one.stays for node in one.nodes}
        self._cycles = {node: one for one in decision.cycles for node in one.nodes}

    def of(self, node: Node) -> tuple[Kind, str, str | None, tuple[str, ...]]:
        """Return the sort of reason, the reason, the rule that it is about, and what other rules say."""
        title = self.decider.partitioning.title_of
        claim = self.decision.claims.get(node)
        if claim is not None and node in self._staying:
            kind, text = self._staying[node]
            return cast(Kind, kind), text, title(claim.place), ()
        if claim is not None:
            return "left", "a rule says that it stays", title(claim.place), ()
        if node in self._cycles:
            return "cycle", _cycle(self._cycles[node]), title(self._cycles[node].place), ()
        reason = why_not_delegable(node)
        if reason is not None:
            return "untakable", reason, None, ()
        rejections = nearest_rejections(self.decision, self.decider, node)
        if not rejections:
            return "no_rule", "no rule speaks of its operator", None, ()
        others = tuple(f"{title(other.place)}: {other.reason}" for other in rejections[1 : 1 + _SHOWN])
        return "rejected", rejections[0].reason, title(rejections[0].place), others


def _cycle(claim: Claim) -> str:
    names = [f"%{node.name}" for node in claim.nodes]
    return f"the match of {', '.join(names)} would wait for itself, or for another match that waits for it"


@dataclass(frozen=True)
class GraphDecision:
    """What becomes of one graph of a program.

    Attributes:
        path: Names of attributes that lead from the program to a body of its control flow; empty for its own graph.
        decision: What becomes of the calls.
        tags: Tags of the partitions that are taken: the tag of each first call.
    """

    path: str
    decision: Decision
    tags: dict[Node, str]


class DataPartitioner(Partitioner):
    """Takes what a partitioning says.

    Args:
        partitioning: The partitioning.

    Raises:
        ModelError: EK496, EK210 and following, it names what does not exist.
    """

    def __init__(self, partitioning: Partitioning) -> None:
        super().__init__()
        check_partitioning(partitioning)
        self.partitioning = partitioning
        self._decider = Decider(partitioning)

    @property
    def decider(self) -> Decider:
        """What decides."""
        return self._decider

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag what the partitioning takes.

        Raises:
            ModelError: EK223, a condition has no answer for a call.
        """
        specs: dict[str, DelegationSpec] = {}
        for one in self.decisions(exported_program):
            for partition in one.decision.partitions:
                if partition.stays is None:
                    tag = one.tags[partition.nodes[0]]
                    specs[tag] = _delegation_spec(partition)
                    for node in partition.nodes:
                        node.meta[DELEGATION_TAG] = tag
        said = self.partitioning
        tag_kept_state(exported_program, specs, constants=said.state == "keep", mutable=said.mutable_state == "keep")
        return PartitionResult(exported_program, specs)

    def decisions(self, exported_program: ExportedProgram) -> Iterator[GraphDecision]:
        """Yield what becomes of each graph of a program, its own first; nothing is changed."""
        found = [(path, self._decider.decide(editor.graph, facts)) for path, editor, facts in _graphs(exported_program)]
        # How many partitions there are is known of all graphs together.
        limited = iter(
            fewest([one for _, each in found for one in each.partitions], self.partitioning.maximum.partitions)
        )
        used = 0
        for path, decision in found:
            decision.partitions = [next(limited) for _ in decision.partitions]
            taken = [one for one in decision.partitions if one.stays is None]
            tags = {one.nodes[0]: f"{one.backend}_{used + number}" for number, one in enumerate(taken)}
            used += len(tags)
            yield GraphDecision(path, decision, tags)

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """Return the operators under `keep_whole`, and which of their calls."""
        wanted = [(whole, _operators(whole)) for whole in self.partitioning.keep_whole]
        facts = ProgramFacts(GraphEditor(ep)) if wanted else None

        def is_wanted(node: Node) -> bool:
            assert facts is not None, "there are operators to ask about"
            call = CallFacts(node, facts)
            return any(node.target in operators and _agrees(whole, call) for whole, operators in wanted)

        return list(dict.fromkeys(op for _, operators in wanted for op in operators)), is_wanted


def load_partitioner(path: str | Path) -> DataPartitioner:
    """Return a partitioner that does what a YAML file says.

    Raises:
        ModelError: EK494, it is not YAML that is read here; EK495, EK496, EK210 and following, all that is wrong with
            it.
        OSError: The file cannot be read.
    """
    return DataPartitioner(load_partitioning(path))


def _graphs(program: ExportedProgram) -> Iterator[tuple[str, GraphEditor, ProgramFacts]]:
    """Yield the graphs of a program, with editors that nothing edits with, and facts about them."""
    editor = GraphEditor(program)
    pending: list[tuple[str, GraphEditor, ProgramFacts]] = [("", editor, ProgramFacts(editor))]
    while pending:
        path, editor, facts = pending.pop(0)
        yield path, editor, facts
        pending += [(body.path, body, ProgramFacts(body, outer=facts)) for body in subgraph_editors(editor)]


def _delegation_spec(partition: FoundPartition) -> DelegationSpec:
    specs = [CompileSpec(key, value.encode()) for key, value in partition.compile_specs]
    return DelegationSpec(partition.backend, specs)


def _operators(whole: WholeOperators) -> list[OpOverload]:
    found = [OperatorTable().find(name) for name in whole.op]
    return [op for op in found if isinstance(op, OpOverload)]


def _agrees(whole: WholeOperators, call: CallFacts) -> bool:
    conditions = [compile_condition(SourceText(text, "keep_whole"), CONDITION_NAMES) for text in whole.where]
    return all(one.holds(call.facts, **{name: call.value_of(name) for name in one.needs}) for one in conditions)
