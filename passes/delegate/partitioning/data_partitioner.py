"""A partitioner that does what a file says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import CompileSpec, GraphEditor, bodies_of
from exirkit.passes.delegate.partitioner import TAG, DelegationSpec, Partitioner, PartitionResult
from exirkit.passes.delegate.state_tags import tag_kept_state
from exirkit.patterns import OperatorTable, ProgramFacts, SourceText, compile_condition

from .call_facts import CallFacts
from .deciding import Decider, Decision
from .limits import FoundPartition, fewest
from .model import Partitioning, WholeOperators
from .reading import CONDITION_NAMES, check_partitioning, load_partitioning


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
                        node.meta[TAG] = tag
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
        ModelError: EK494, it is no YAML that is read here; EK495, EK496, EK210 and following, all that is wrong with
            it.
        OSError: The file cannot be read.
    """
    return DataPartitioner(load_partitioning(path))


def _graphs(program: ExportedProgram) -> Iterator[tuple[str, GraphEditor, ProgramFacts]]:
    """Yield the graphs of a program, with editors that nobody edits with, and facts about them."""
    editor = GraphEditor(program)
    pending: list[tuple[str, GraphEditor, ProgramFacts]] = [("", editor, ProgramFacts(editor))]
    while pending:
        path, editor, facts = pending.pop(0)
        yield path, editor, facts
        pending += [(body.path, body, ProgramFacts(body, outer=facts)) for body in bodies_of(editor)]


def _delegation_spec(partition: FoundPartition) -> DelegationSpec:
    specs = [CompileSpec(key, value.encode()) for key, value in partition.compile_specs]
    return DelegationSpec(partition.backend, specs)


def _operators(whole: WholeOperators) -> list[OpOverload]:
    found = [OperatorTable().find(name) for name in whole.op]
    return [op for op in found if isinstance(op, OpOverload)]


def _agrees(whole: WholeOperators, call: CallFacts) -> bool:
    conditions = [compile_condition(SourceText(text, "keep_whole"), CONDITION_NAMES) for text in whole.where]
    return all(one.holds(call.facts, **{name: call.value_of(name) for name in one.needs}) for one in conditions)
