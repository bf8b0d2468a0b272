"""Calls of delegates: parts of a program that a backend compiles, and that the runtime hands to it as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch._higher_order_ops.executorch_call_delegate import executorch_call_delegate
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

CALL_DELEGATE = executorch_call_delegate
"""The operator that calls a delegate: its first argument is the attribute that holds it, the others are its inputs."""


@dataclass(frozen=True)
class CompileSpec:
    """A value that a backend compiles for, or finds again at run time.

    Attributes:
        key: What it is.
        value: Its bytes; what they mean is between the partitioner and the backend.

    Source: `CompileSpec` of the ExecuTorch documentation.
    """

    key: str
    value: bytes


@runtime_checkable
class Delegate(Protocol):
    """What is known of a delegate in a program."""

    @property
    def backend_id(self) -> str:
        """Name of the backend that runs it."""
        ...

    @property
    def processed_bytes(self) -> bytes:
        """What the backend made of the program."""
        ...

    @property
    def compile_specs(self) -> Sequence[CompileSpec]:
        """What it was compiled for, for the backend's eyes."""
        ...

    @property
    def original_module(self) -> ExportedProgram:
        """The program that was compiled."""
        ...

    @property
    def named_data(self) -> Mapping[str, bytes]:
        """Data that it reads at run time, by name."""
        ...

    @property
    def external_data(self) -> Mapping[str, Mapping[str, bytes]]:
        """The same, in data files beside the program: bytes by name, by the name of the file."""
        ...


def delegate_of(node: Node) -> Delegate | None:
    """Return the delegate that a node calls, or None if it calls something else."""
    if node.op != "call_function" or node.target is not CALL_DELEGATE or not node.args:
        return None
    source = node.args[0]
    if not isinstance(source, Node) or source.op != "get_attr":
        return None
    return delegate_attribute(source)


def delegate_attribute(node: Node) -> Delegate | None:
    """Return the delegate that a `get_attr` node reads, or None if it reads something else."""
    module: Any = node.graph.owning_module
    for name in str(node.target).split("."):
        module = getattr(module, name, None)
    return module if isinstance(module, Delegate) and not isinstance(module, GraphModule) else None
