"""What of a lowered program delegates compute: counts by operator, and lists of nodes."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from torch.fx import Graph, GraphModule, Node

from exirkit.ir import CALL_DELEGATE, delegate_attribute, delegate_of
from exirkit.passes.config.policies import operator_names


@dataclass
class DelegationBreakdown:
    """How often an operator is called.

    Attributes:
        op_type: The operator, as rule books write it.
        delegated: Calls inside delegates.
        non_delegated: Calls of the program.
    """

    op_type: str = ""
    delegated: int = 0
    non_delegated: int = 0


@dataclass
class DelegationInfo:
    """What of a graph delegates compute.

    Attributes:
        num_delegated_subgraphs: How many calls of delegates there are.
        num_delegated_nodes: Calls inside delegates.
        num_non_delegated_nodes: Calls of the program, without those of delegates and what takes their results.
        delegation_by_operator: By operator.

    Source: `DelegationInfo` of the ExecuTorch package; operators have their names instead of those of nodes.
    """

    num_delegated_subgraphs: int
    num_delegated_nodes: int
    num_non_delegated_nodes: int
    delegation_by_operator: dict[str, DelegationBreakdown]

    def get_summary(self) -> str:
        """Return the counts as three lines."""
        return (
            f"Total delegated subgraphs: {self.num_delegated_subgraphs}\n"
            f"Number of delegated nodes: {self.num_delegated_nodes}\n"
            f"Number of non-delegated nodes: {self.num_non_delegated_nodes}\n"
        )

    def get_operator_delegation_dataframe(self) -> Any:
        """Return counts by operator as a pandas table, with a last row `Total`; needs pandas."""
        import pandas

        return pandas.DataFrame(self._rows())

    def get_operator_delegation_table(self) -> str:
        """Return the same as text."""
        rows = self._rows()
        lines = [list(rows[0]), *([str(cell) for cell in row.values()] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                f"{cell:>{width}}" if place else f"{cell:<{width}}"
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def _rows(self) -> list[dict[str, Any]]:
        counts = sorted(self.delegation_by_operator.values(), key=lambda one: one.op_type)
        total = DelegationBreakdown("Total", self.num_delegated_nodes, self.num_non_delegated_nodes)
        return [
            {
                "op_type": row["op_type"],
                "occurrences_in_delegated_graphs": row["delegated"],
                "occurrences_in_non_delegated_graphs": row["non_delegated"],
            }
            for row in map(asdict, [*counts, total])
        ]


def get_delegation_info(graph_module: GraphModule) -> DelegationInfo:
    """Return what of a graph delegates compute.

    Args:
        graph_module: Of an Edge program after `to_backend`.
    """
    counts: dict[str, DelegationBreakdown] = {}

    def count(node: Node, *, delegated: bool) -> None:
        name = next(iter(operator_names(node)), str(node.target))
        one = counts.setdefault(name, DelegationBreakdown(name))
        one.delegated += delegated
        one.non_delegated += not delegated

    subgraphs = 0
    for node in graph_module.graph.nodes:
        delegate = delegate_of(node)
        if delegate is not None:
            subgraphs += 1
            for inner in _calls(delegate.original_module.graph):
                count(inner, delegated=True)
    for node in get_non_lowered_nodes(graph_module.graph):
        if node.target is not operator.getitem:
            count(node, delegated=False)
    delegated = sum(one.delegated for one in counts.values())
    return DelegationInfo(subgraphs, delegated, sum(one.non_delegated for one in counts.values()), counts)


def print_delegation_info(graph_module: GraphModule) -> None:
    """Print the summary and the table of `get_delegation_info`."""
    info = get_delegation_info(graph_module)
    print(info.get_summary())  # noqa: T201 - it is what the function is for
    print(info.get_operator_delegation_table())  # noqa: T201


def get_non_lowered_nodes(graph: Graph) -> list[Node]:
    """Return the calls that no delegate computes, without those of delegates and what takes their results."""
    return [
        node
        for node in graph.nodes
        if node.op == "call_function" and node.target is not CALL_DELEGATE and not _is_result_of_delegate(node)
    ]


def get_delegates(graph: Graph) -> list[Node]:
    """Return the nodes that name delegates."""
    return [node for node in graph.find_nodes(op="get_attr") if delegate_attribute(node) is not None]


def format_delegated_graph(graph_module: GraphModule) -> str:
    """Return a graph as text, with the graph of each delegate behind the node that names it."""
    lines: list[str] = []
    by_name = {f"%{node.name} ": node for node in get_delegates(graph_module.graph)}
    for line in str(graph_module.graph).splitlines():
        lines.append(line)
        node = next((one for start, one in by_name.items() if line.lstrip().startswith(start)), None)
        delegate = None if node is None else delegate_attribute(node)
        if delegate is not None:
            lines.append(f"        backend_id: {delegate.backend_id}")
            inner = format_delegated_graph(delegate.original_module.graph_module)
            lines += [f"        {'lowered ' * (not number)}{text}" for number, text in enumerate(inner.splitlines())
                      if text.strip()]  # fmt: skip
    return "\n".join(lines)


def print_delegated_graph(graph_module: GraphModule) -> None:
    """Print what `format_delegated_graph` returns."""
    print(format_delegated_graph(graph_module))  # noqa: T201 - it is what the function is for


def _calls(graph: Graph) -> Iterator[Node]:
    return (node for node in graph.nodes if node.op == "call_function" and node.target is not operator.getitem)


def _is_result_of_delegate(node: Node) -> bool:
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, Node) and source.target is CALL_DELEGATE
