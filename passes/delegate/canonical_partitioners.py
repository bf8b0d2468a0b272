"""The partitioners that the ExecuTorch documentation offers, thin over `grown_partitions`.

They propose partitions of one graph, in the form that torch gives them; a partitioner of the user's tags them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence

from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.infra.partitioner import Partition as ProposedPartition
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

from exirkit.ir import CompileSpec, UsageError, locate, qualified_name, underlying
from exirkit.passes.config.policies import operator_names

from .backend import DELEGATION_TAG, DelegationSpec, Partitioner, PartitionResult
from .growing import cycles_among, grown_partitions


class CapabilityBasedPartitioner:
    """Proposes the largest subgraphs of calls that a backend supports.

    Args:
        graph_module: The graph.
        operator_support: Says of each call whether it is supported.
        allows_single_node_partition: Whether a partition may be one call.
        non_compute_ops: Names of operators that do not count for that, besides taking a result out of several:
            `torch.ops.aten.view.default`, or `aten.view.default`.
        allowed_single_node_partition_ops: Names of operators that may be a partition of their own in any case.
        skip_horizontal_fusion: Whether calls stay apart of which none needs the other.

    Source: the class of the same name in torch; the partitions are those of `grown_partitions`.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = frozenset(non_compute_ops or ())
        self.allowed_single_node_partition_ops = frozenset(allowed_single_node_partition_ops or ())
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def propose_partitions(self) -> list[ProposedPartition]:
        """Return partitions that can all be called, none of which waits for itself."""
        found = grown_partitions(
            self.graph_module.graph,
            dict.fromkeys(self._supported(), True),
            self._together(),
            joins="touching" if self.skip_horizontal_fusion else "all",
        )
        kept = [nodes for nodes in found if self.allows_single_node_partition or self._weight(nodes) > 1]
        return [ProposedPartition(id=number, nodes=nodes) for number, nodes in enumerate(kept)]

    def _supported(self) -> list[Node]:
        modules = dict(self.graph_module.named_modules())
        return [
            node
            for node in self.graph_module.graph.nodes
            if node.op == "call_function" and self.operator_support.is_node_supported(modules, node)
        ]

    def _together(self) -> list[list[Node]]:
        return []

    def _weight(self, nodes: Iterable[Node]) -> int:
        """Return how many calls count, where one that may be alone counts as two."""
        counted = [_names(node) for node in nodes if node.target is not operator.getitem]
        return sum(
            1 + (not names.isdisjoint(self.allowed_single_node_partition_ops))
            for names in counted
            if names.isdisjoint(self.non_compute_ops)
        )


class GroupBasedPartitioner(CapabilityBasedPartitioner):
    """Proposes partitions in which given groups of calls are together.

    Groups that cannot be together, since they would wait for themselves or for each other, are decomposed, the last
    ones first.

    Args:
        graph_module: As for `CapabilityBasedPartitioner`.
        operator_support: As for `CapabilityBasedPartitioner`.
        allows_single_node_partition: As for `CapabilityBasedPartitioner`.
        non_compute_ops: As for `CapabilityBasedPartitioner`.
        allowed_single_node_partition_ops: As for `CapabilityBasedPartitioner`.
        node_groups: The groups; what is not supported in them is left out.

    Raises:
        UsageError: EK499, a node is in two groups.

    Source: the class of the same name of the ExecuTorch package.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        node_groups: Sequence[Sequence[Node]] | None = None,
    ) -> None:
        super().__init__(
            graph_module,
            operator_support,
            allows_single_node_partition,
            non_compute_ops,
            allowed_single_node_partition_ops,
        )
        self.node_groups = [list(dict.fromkeys(group)) for group in node_groups or ()]
        seen: set[Node] = set()
        for node in (node for group in self.node_groups for node in group):
            if node in seen:
                raise UsageError(
                    code="EK499",
                    message=f"%{node.name} is in two groups",
                    location=locate(node),
                    expected="groups without a common node: each goes to one partition",
                )
            seen.add(node)

    def _together(self) -> list[list[Node]]:
        supported = set(self._supported())
        groups = [[node for node in group if node in supported] for group in self.node_groups]
        groups = [group for group in groups if group]
        while cycles := cycles_among(self.graph_module.graph, groups):
            given_up = {cycle[-1] for cycle in cycles}
            groups = [group for number, group in enumerate(groups) if number not in given_up]
        return groups


class AllNodePartitioner(Partitioner):
    """Takes everything, whatever the backend makes of it; parameters, buffers and constants as well.

    Args:
        backend_id: Name of the backend.
        compile_specs: What to compile for.

    Source: `AllNodePartitioner` of the ExecuTorch package.
    """

    def __init__(self, backend_id: str, compile_specs: Sequence[CompileSpec]) -> None:
        super().__init__()
        self.delegation_spec = DelegationSpec(backend_id, list(compile_specs))

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag every call and every stored tensor that something reads."""
        tag = self.delegation_spec.backend_id
        inputs = set(exported_program.graph_signature.user_inputs)
        tags: dict[str, DelegationSpec] = {}
        for node in exported_program.graph.nodes:
            if node.op == "call_function":
                tags[tag] = self.delegation_spec
                node.meta[DELEGATION_TAG] = tag
            elif node.op == "placeholder" and node.name not in inputs and any(_calls(node.users)):
                node.meta[DELEGATION_TAG] = tag
        return PartitionResult(exported_program, tags)


def generate_partitions_from_list_of_nodes(
    graph_module: GraphModule,
    pattern_list: Sequence[Sequence[Node]] | None = None,
    op_support: OperatorSupportBase | None = None,
) -> list[ProposedPartition]:
    """Return the largest partitions of listed calls, and of what else is supported.

    Raises:
        UsageError: EK499, nothing says which calls are meant.
    """
    return CapabilityBasedPartitioner(
        graph_module, _support(pattern_list, op_support), allows_single_node_partition=True
    ).propose_partitions()


def generate_grouped_partitions_from_list_of_nodes(
    graph_module: GraphModule,
    pattern_list: Sequence[Sequence[Node]] | None = None,
    op_support: OperatorSupportBase | None = None,
) -> list[ProposedPartition]:
    """Return the largest partitions of listed calls, each list in one, and of what else is supported.

    Placeholders in a list go to the partition of its calls: a partitioner that tags all nodes of a partition lets the
    delegate keep the weights among them.

    Raises:
        UsageError: EK499, nothing says which calls are meant, or a node is in two lists.
    """
    partitions = GroupBasedPartitioner(
        graph_module, _support(pattern_list, op_support), allows_single_node_partition=True, node_groups=pattern_list
    ).propose_partitions()
    home = {node: partition for partition in partitions for node in partition.nodes}
    for group in pattern_list or ():
        taken = next((home[node] for node in group if node in home), None)
        for node in group:
            if taken is not None and node.op == "placeholder":
                taken.add_node(node)
    return partitions


def generate_pattern_op_partitions(
    graph_module: GraphModule,
    patterns: Sequence[Graph] | None = None,
    partitions_list: Sequence[Sequence[Node]] | None = None,
    op_support: OperatorSupportBase | None = None,
    ignore_literals: bool = False,
) -> list[ProposedPartition]:
    """Return the largest partitions of calls in matches of patterns, of listed calls, and of what else is supported.

    Args:
        graph_module: The graph.
        patterns: Graphs, best of `to_edge`; their placeholders stand for anything.
        partitions_list: Lists of calls.
        op_support: Says of each call whether it is supported.
        ignore_literals: Whether numbers in patterns may differ from those in the graph.

    Raises:
        UsageError: EK499, nothing says which calls are meant.
    """
    found = [
        [node for pattern_node, node in match.nodes_map.items() if "placeholder" not in (pattern_node.op, node.op)]
        for pattern in patterns or ()
        for match in SubgraphMatcher(pattern, ignore_literals=ignore_literals).match(graph_module.graph)
    ]
    listed = [*found, *(partitions_list or ())]
    is_said = patterns is not None or partitions_list is not None
    return generate_partitions_from_list_of_nodes(graph_module, listed if is_said else None, op_support)


class _Listed(OperatorSupportBase):
    def __init__(self, lists: Iterable[Iterable[Node]], other: OperatorSupportBase | None) -> None:
        self._nodes = {node for one in lists for node in one}
        self._other = other

    def is_node_supported(self, submodules: Mapping[str, object], node: Node) -> bool:
        return node in self._nodes or (
            self._other is not None and self._other.is_node_supported(submodules, node)  # type: ignore[arg-type]
        )


def _support(lists: Sequence[Sequence[Node]] | None, other: OperatorSupportBase | None) -> OperatorSupportBase:
    if lists is None and other is None:
        raise UsageError(
            code="EK499",
            message="nothing says which calls are to be partitioned",
            expected="lists of calls, patterns, or an OperatorSupportBase",
        )
    return _Listed(lists or (), other)


def _names(node: Node) -> set[str]:
    """Return the names of a call: as torch qualifies them, and as rule books write them."""
    target = underlying(node.target)
    return {*operator_names(node), qualified_name(target) if callable(target) else str(target)}


def _calls(nodes: Iterable[Node]) -> Iterable[Node]:
    return (node for node in nodes if node.op == "call_function")
