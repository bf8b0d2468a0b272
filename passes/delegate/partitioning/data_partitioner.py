"""A partitioner that does what a file says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from exirkit.ir import CompileSpec, GraphEditor, bodies_of
from exirkit.passes.delegate.partitioner import TAG, DelegationSpec, Partitioner, PartitionResult
from exirkit.patterns import OperatorTable, ProgramFacts, SourceText, compile_condition

from .call_facts import CallFacts
from .deciding import Decider, Decision, FoundPartition
from .model import Partitioning, WholeOperators
from .reading import CONDITION_NAMES, check_partitioning, load_partitioning

_STORED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


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
                if partition.too_small is None:
                    tag = one.tags[partition.nodes[0]]
                    specs[tag] = _delegation_spec(partition)
                    for node in partition.nodes:
                        node.meta[TAG] = tag
        self._tag_state(exported_program, specs)
        return PartitionResult(exported_program, specs)

    def decisions(self, exported_program: ExportedProgram) -> Iterator[GraphDecision]:
        """Yield what becomes of each graph of a program, its own first; nothing is changed."""
        used = 0
        for path, editor, facts in _graphs(exported_program):
            decision = self._decider.decide(editor.graph, facts)
            taken = [one for one in decision.partitions if one.too_small is None]
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

    def _tag_state(self, program: ExportedProgram, specs: dict[str, DelegationSpec]) -> None:
        """Tag stored tensors that delegates keep."""
        stored = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.kind in _STORED}
        writes = _writes(program)
        for node in program.graph.find_nodes(op="placeholder"):
            if node.name not in stored or not node.users:
                continue
            written = writes.get(str(stored[node.name]))
            tags = {user.meta.get(TAG) if user.op == "call_function" else None for user in node.users}
            if written is None:
                keeps = self.partitioning.state == "keep" and None not in tags
                keeps = keeps and len({specs[tag].backend_id for tag in tags if tag}) == 1
            else:
                keeps = self.partitioning.mutable_state == "keep" and None not in tags and len(tags) == 1
                keeps = keeps and written.op == "call_function" and written.meta.get(TAG) in tags
            if keeps:
                # The first reader's; whoever else reads it keeps it as well.
                node.meta[TAG] = next(iter(node.users)).meta[TAG]


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


def _writes(program: ExportedProgram) -> dict[str, Node]:
    """Return what is written back to stored tensors, by target."""
    results = program.graph.output_node().args[0]
    assert isinstance(results, list | tuple), "a program returns a sequence"
    return {
        str(spec.target): value
        for value, spec in zip(results, program.graph_signature.output_specs, strict=True)
        if spec.target is not None and isinstance(value, Node)
    }


def _operators(whole: WholeOperators) -> list[OpOverload]:
    found = [OperatorTable().find(name) for name in whole.op]
    return [op for op in found if isinstance(op, OpOverload)]


def _agrees(whole: WholeOperators, call: CallFacts) -> bool:
    conditions = [compile_condition(SourceText(text, "keep_whole"), CONDITION_NAMES) for text in whole.where]
    return all(one.holds(call.facts, **{name: call.value_of(name) for name in one.needs}) for one in conditions)
