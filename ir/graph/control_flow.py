"""Calls that run graphs: control flow, decomposed into graphs, inputs and operands, and delegates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch._higher_order_ops.executorch_call_delegate import executorch_call_delegate
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir.analysis.interface import graph_argument
from exirkit.ir.graph.metadata import attribute_of

COND = "cond"
MAP = "map_impl"
SCAN = "scan"
WHILE = "while_loop"

# Options of the operators that say what the graphs say as well: which operands are written to.
IGNORED_OPTIONS = frozenset({"mutated_arg_indices"})


@dataclass(frozen=True, slots=True)
class ControlFlowCall:
    """One call of `cond`, `map`, `scan` or `while_loop`.

    The inputs of every graph are, in this order: what is carried, a row of each sliced tensor, and what is shared.

    Attributes:
        node: The call.
        kind: Name of the operator: `cond`, `map_impl`, `scan` or `while_loop`.
        bodies: Its graphs, in order of the arguments; for `while_loop` the first one computes the condition.
        predicate: What decides between the branches of `cond`; None for the others.
        carried: What the first round begins with; each further round begins with what the one before returned.
        sliced: Tensors of which each round gets one row.
        shared: What every graph gets as it is.
    """

    node: Node
    kind: str
    bodies: tuple[GraphModule, ...]
    predicate: Any = None
    carried: tuple[Any, ...] = ()
    sliced: tuple[Any, ...] = ()
    shared: tuple[Any, ...] = ()

    @property
    def body(self) -> GraphModule:
        """The graph that a loop repeats; the first branch of `cond`."""
        return self.bodies[-1 if self.kind == WHILE else 0]


@dataclass(frozen=True)
class CallLayout:
    """Where a call of a higher-order operator has its graphs and their operands.

    Attributes:
        bodies: Positions of the graphs.
        operands: Positions of the lists of operands, in the order of the placeholders; all following arguments are one
            list if the last position is negative.
        roles: What each list of operands is: `carried`, `sliced` or `shared`; empty for operators that only wrap.
        last_is_optional: The last list may be missing.
        is_isolated: Its graphs may not return what shares memory with an operand or another result.
    """

    bodies: tuple[int, ...]
    operands: tuple[int, ...]
    roles: tuple[str, ...] = ()
    last_is_optional: bool = False
    is_isolated: bool = True


# The last list of each is passed on as it is.
LAYOUTS: Mapping[str, CallLayout] = {
    COND: CallLayout((1, 2), (3,), ("shared",), last_is_optional=True),
    MAP: CallLayout((0,), (1, 2), ("sliced", "shared")),
    SCAN: CallLayout((0,), (1, 2, 3), ("carried", "sliced", "shared")),
    WHILE: CallLayout((0, 1), (2, 3), ("carried", "shared"), last_is_optional=True),
    "wrap_with_set_grad_enabled": CallLayout((1,), (-2,), is_isolated=False),
    "wrap_with_autocast": CallLayout((4,), (-5,), is_isolated=False),
}


def control_flow_call(node: Node) -> ControlFlowCall | None:
    """Decompose a call of control flow; None for other nodes, and for calls of an unusual form."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, HigherOrderOperator) or set(node.kwargs) - IGNORED_OPTIONS:
        return None
    kind = target.name()
    layout = LAYOUTS.get(kind)
    if layout is None or not layout.roles:
        return None
    last = layout.operands[-1]
    if len(node.args) != last + 1 and not (layout.last_is_optional and len(node.args) == last):
        return None
    bodies = [graph_argument(node.args[at]) for at in layout.bodies]
    if None in bodies:
        return None
    given = {
        role: _listed(node.args[at]) if at < len(node.args) else ()
        for role, at in zip(layout.roles, layout.operands, strict=True)
    }
    predicate = node.args[0] if kind == COND else None
    return ControlFlowCall(node, kind, tuple(bodies), predicate=predicate, **given)  # type: ignore[arg-type]


def body_calls(module: GraphModule) -> Iterator[ControlFlowCall]:
    """Yield the calls of control flow of one graph, in order; those inside of their graphs are theirs."""
    for node in module.graph.nodes:
        call = control_flow_call(node)
        if call is not None:
            yield call


def _listed(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, list | tuple) else (given,)


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
    found = attribute_of(node)
    return found if isinstance(found, Delegate) and not isinstance(found, GraphModule) else None
