"""For partitioners: reasons why calls are not taken, configurations of operators, and calls to leave."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.passes.infra.partitioner import Partition
from torch.fx.passes.operator_support import OperatorSupportBase

from exirkit.ir import ContractError, OpOverload, UsageError, is_param_node, operator_name
from exirkit.passes import (
    DELEGATION_TAG,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    generate_grouped_partitions_from_list_of_nodes,
)


class WhyNoPartition:
    """Writes to a log why a node is not taken.

    Args:
        logger: The log; what is written has the level of debugging.

    Attributes:
        node: The node that was written of last.
        reason: Why it is not taken.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger
        self.node: Node | None = None
        self.reason = ""

    def __call__(self, node: Node, reason: str) -> None:
        """Write why a node is not taken."""
        self.node, self.reason = node, reason
        self.logger.debug("%s", self)

    def __str__(self) -> str:
        return f"%{self.node} is not taken: {self.reason}"


class WhyNoPartitionReporter:
    """Collects why nodes are not taken, the first reason of each."""

    def __init__(self) -> None:
        self._reasons: dict[Node, str] = {}

    def report_reject(self, node: Node, reason: str) -> None:
        """Note why a node is not taken."""
        self._reasons.setdefault(node, reason)

    def wrap_check(self, operator_support: OperatorSupportBase, message: str) -> OperatorSupportBase:
        """Return a check that answers like the given one, and notes the message for each node that it rejects."""
        return _ReportingCheck(operator_support, self, message)

    def get_table_report(self) -> str:
        """Return a table of the nodes with operators, the functions of the model, and reasons."""
        rows = [
            (node.name, operator_name(node.target), str(node.meta.get("torch_fn", "-")), reason)
            for node, reason in self._reasons.items()
            if node.op not in ("placeholder", "output")
        ]
        return _table(("Node name", "Target", "Torch func", "Reason"), rows) if rows else "No nodes rejected."


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([text[0], "  ".join("-" * width for width in widths), *text[1:]])


class _ReportingCheck(OperatorSupportBase):
    def __init__(self, inner: OperatorSupportBase, reporter: WhyNoPartitionReporter, message: str) -> None:
        self._inner, self._reporter, self._message = inner, reporter, message

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        supported = bool(self._inner.is_node_supported(submodules, node))
        if not supported:
            self._reporter.report_reject(node, self._message)
        return supported


def format_target_name(target_name: str) -> str:
    """Return the name of an operator without its library: `aten.add.Tensor` is `add.Tensor`."""
    parts = target_name.split(".")
    return ".".join(parts[1:] if len(parts) > 2 else parts)


class PartitionerConfig(ABC):
    """Says of one operator which of its calls a backend takes, and what goes with them.

    Attributes:
        target_name: Name of the operator without its library, such as `add.Tensor`.
    """

    target_name: str

    @abstractmethod
    def check_constraints(self, node: Node, ep: ExportedProgram) -> bool:
        """Return whether the backend takes a call."""

    @abstractmethod
    def get_original_aten(self) -> OpOverload | None:
        """Return the operator that is to stay whole on the way to Edge, or None."""

    @abstractmethod
    def get_partition(self, node: Node, ep: ExportedProgram) -> list[Node]:
        """Return the nodes that go with a call, with the call itself; none if it is not taken."""


class ConfigerationBasedPartitioner(Partitioner):
    """Takes what configurations take; what shares calls becomes one partition.

    Args:
        delegation_spec: Where partitions go.
        partitioner_configs: The configurations, one for an operator.

    Raises:
        UsageError: EK760, two are for the same operator.
    """

    def __init__(self, delegation_spec: DelegationSpec, partitioner_configs: Iterable[PartitionerConfig]) -> None:
        super().__init__()
        self.delegation_spec = delegation_spec
        self.target_partitioner_configs: dict[str, PartitionerConfig] = {}
        for config in partitioner_configs:
            first = self.target_partitioner_configs.setdefault(config.target_name, config)
            if first is not config:
                names = f"{type(first).__name__} and {type(config).__name__}"
                raise UsageError(code="EK760", message=f"{names} are both for the operator {config.target_name}")

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """Return the operators that configurations want whole, and which of their calls: those they take."""

        def is_taken(node: Node) -> bool:
            config = self._config(node)
            return config is not None and config.get_original_aten() is not None and config.check_constraints(node, ep)

        wanted = (config.get_original_aten() for config in self.target_partitioner_configs.values())
        return [op for op in wanted if op is not None], is_taken

    def get_matched_nodes_from_configs(self, ep: ExportedProgram) -> list[list[Node]]:
        """Return groups of nodes that configurations take, such as share no node."""
        groups = _Groups()
        for node in ep.graph.nodes:
            config = self._config(node)
            if config is None or not config.check_constraints(node, ep):
                continue
            # A weight may be copied into each partition that reads it, so it holds no two of them together.
            members = [one for one in config.get_partition(node, ep) if one not in groups or not is_param_node(ep, one)]
            groups.add(members)
        return groups.listed()

    def generate_partitions(self, ep: ExportedProgram) -> list[Partition]:
        """Return the partitions."""
        return generate_grouped_partitions_from_list_of_nodes(ep.graph_module, self.get_matched_nodes_from_configs(ep))

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the nodes of the partitions.

        Raises:
            ContractError: EK760, a node is in two partitions.
        """
        specs: dict[str, DelegationSpec] = {}
        for partition in self.generate_partitions(exported_program):
            tag = f"tag{partition.id}"
            for node in partition.nodes:
                if DELEGATION_TAG in node.meta:
                    other = node.meta[DELEGATION_TAG]
                    raise ContractError(code="EK760", message=f"%{node.name} is in the partitions {other} and {tag}")
                node.meta[DELEGATION_TAG] = tag
                specs[tag] = self.delegation_spec
        return PartitionResult(exported_program, specs)

    def _config(self, node: Node) -> PartitionerConfig | None:
        if node.op != "call_function":
            return None
        return self.target_partitioner_configs.get(format_target_name(str(getattr(node.target, "__name__", ""))))


class _Groups:
    """Groups of nodes that grow together where they share one."""

    def __init__(self) -> None:
        self._groups: dict[Node, list[Node]] = {}

    def __contains__(self, node: Node) -> bool:
        return node in self._groups

    def add(self, nodes: list[Node]) -> None:
        joined: list[Node] = []
        for node in nodes:
            group = self._groups.get(node)
            if group is None:
                joined.append(node)
                self._groups[node] = joined
            elif group is not joined:
                joined += group
                self._groups.update(dict.fromkeys(group, joined))

    def listed(self) -> list[list[Node]]:
        return list({id(group): group for group in self._groups.values()}.values())


class _Leaving(OperatorSupportBase):
    """A check that supports all but certain nodes, which it remembers."""

    def __init__(self) -> None:
        self._rejected: list[Node] = []

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        """Return whether the node may be taken."""
        del submodules
        if self._is_meant(node):
            self.reject_node(node)
            return False
        return True

    def reject_node(self, node: Node) -> None:
        """Note that a node is left."""
        self._rejected.append(node)

    def rejected_nodes(self) -> list[Node]:
        """Return the nodes that were left."""
        return self._rejected

    def has_rejected_node(self) -> bool:
        """Return whether any node was left."""
        return bool(self._rejected)

    def num_rejected(self) -> int:
        """Return how many were left."""
        return len(self._rejected)

    def _is_meant(self, node: Node) -> bool:
        raise NotImplementedError


class DontPartition(_Leaving):
    """Leaves calls of certain operators.

    Args:
        targets: Handles, overloads, or names such as `aten.add.Tensor`; names are those of the operators of the model.
        exact: Whether names are whole names, or parts of them.
    """

    def __init__(self, *targets: Any, exact: bool = True) -> None:
        super().__init__()
        self.targets, self.exact = targets, exact

    def _is_meant(self, node: Node) -> bool:
        if node.target in self.targets:
            return True
        original = node.meta.get("original_aten")
        return original is not None and any(_names(self.exact, str(one), str(original)) for one in self.targets)


class DontPartitionName(_Leaving):
    """Leaves nodes of certain names.

    Args:
        targets: Names of nodes.
        exact: Whether these are whole names, or parts of them.
    """

    def __init__(self, *targets: str, exact: bool = True) -> None:
        super().__init__()
        self.targets, self.exact = targets, exact

    def _is_meant(self, node: Node) -> bool:
        return any(_names(self.exact, one, node.name) for one in self.targets)


class DontPartitionModule(_Leaving):
    """Leaves what comes from certain modules of the model.

    Args:
        module_name: Class of the module, with or without the Python module that defines it.
        instance_name: Path of the module in the model.
        exact: Whether these are whole names, or parts of them.
    """

    def __init__(self, *, module_name: str | None = None, instance_name: str | None = None, exact: bool = True) -> None:
        super().__init__()
        self.module_name, self.instance_name, self.exact = module_name, instance_name, exact

    def _is_meant(self, node: Node) -> bool:
        whole = self.module_name is None or "." in self.module_name
        for path, kind in node.meta.get("nn_module_stack", {}).values():
            name = str(getattr(kind, "__qualname__", kind))
            if _names(self.exact, self.instance_name, path):
                return True
            if _names(self.exact, self.module_name, name if whole else name.rpartition(".")[2]):
                return True
        return False


def _names(exact: bool, wanted: str | None, name: str) -> bool:
    return bool(wanted) and (wanted == name if exact else str(wanted) in name)


def disable_validation() -> None:
    """Do nothing: what the official package checks behind each backend is checked by transactions here."""


@contextmanager
def validation_disabled() -> Iterator[None]:
    """Do nothing in a block, as `disable_validation` does."""
    yield
