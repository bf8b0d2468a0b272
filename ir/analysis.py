"""Analyses of graphs, which change nothing: recorded values, the interface of a program, calls of graphs, effects."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol, TypeGuard, runtime_checkable

import torch
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec
from torch.fx import Graph, GraphModule, Node

from exirkit.ir.operators.handles import free, underlying

from .torch_internals import (
    FakeTensor,
    HigherOrderOperator,
    OpOverload,
    executorch_call_delegate,
    is_impure,
    side_effectful_functions,
)

# Numbers that a node stands for: compared by expression, never by value, because comparing values adds a guard.
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def is_static(value: Any) -> TypeGuard[torch.Tensor]:
    """Return whether a value is a strided tensor without symbolic sizes."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return all(type(number) is int for number in (*value.shape, *value.stride(), value.storage_offset()))


def same_value(left: Any, right: Any) -> bool:
    """Return whether recorded values agree in structure, dtype, shape, layout and strides, without adding guards."""
    if left is right:
        return True
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return (
            left.dtype == right.dtype
            and left.layout == right.layout
            and left.device == right.device
            and same_argument(tuple(left.shape), tuple(right.shape))
            and (left.layout is not torch.strided or same_argument(left.stride(), right.stride()))
        )
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same_value, left, right))
    return same_argument(left, right)


def same_argument(left: Any, right: Any) -> bool:
    """Return whether two graph arguments are the same, exact in type: 1, 1.0 and True are three things.

    Lists and tuples of the same items are the same, as they are to operators. Real tensors are the same only if they
    are one object; fake tensors if they are the same value.
    """
    if left is right:
        return True
    if type(left) is int and type(right) is int:
        # Most are sizes and places, and this is asked very often.
        return left == right
    if isinstance(left, _SYMBOLIC) or isinstance(right, _SYMBOLIC):
        return _kind(left) is not None and _kind(left) is _kind(right) and bool(_expression(left) == _expression(right))
    if isinstance(left, list | tuple):
        return isinstance(right, list | tuple) and _same_items(left, right)
    if isinstance(left, dict):
        return isinstance(right, dict) and _same_items(tuple(left.items()), tuple(right.items()))
    if isinstance(left, torch.Tensor):
        return isinstance(left, FakeTensor) and isinstance(right, FakeTensor) and same_value(left, right)
    return type(left) is type(right) and _same_plain(left, right)


def _same_items(left: Sequence[Any], right: Sequence[Any]) -> bool:
    if len(left) != len(right):
        return False
    # Nodes and most sizes are one object; a loop, since a generator costs as much as the comparisons.
    for one, other in zip(left, right, strict=True):  # noqa: SIM110
        if one is not other and not same_argument(one, other):
            return False
    return True


def _same_plain(left: Any, right: Any) -> bool:
    if isinstance(left, slice):
        return _same_items((left.start, left.stop, left.step), (right.start, right.stop, right.step))
    if isinstance(left, float):
        # NaN equals itself here, and -0.0 is not 0.0.
        return bool(left.hex() == right.hex())
    if isinstance(left, complex):
        return (left.real.hex(), left.imag.hex()) == (right.real.hex(), right.imag.hex())
    try:
        return bool(left == right)
    except (RuntimeError, TypeError, ValueError):
        # Arrays and the like, which answer element by element.
        return False


def _kind(value: Any) -> type | None:
    for kind, types in ((bool, (bool, torch.SymBool)), (int, (int, torch.SymInt)), (float, (float, torch.SymFloat))):
        if isinstance(value, types):
            return kind
    return None


def _expression(value: Any) -> Any:
    return value.node.expr if isinstance(value, _SYMBOLIC) else value


def has_unbacked_symbols(node: Node) -> bool:
    """Return whether the node creates a size that only its data decides, so running it again would invent another."""
    return bool(node.meta.get("unbacked_bindings"))


def attribute_of(node: Node) -> Any:
    """Return what a `get_attr` or `call_module` node names, or None if nothing is there."""
    return attribute_at(node.graph.owning_module, str(node.target))


def attribute_at(module: Any, path: str) -> Any:
    """Return the attribute of a module under a dotted path, or None."""
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def value_of(argument: Any) -> Any:
    """Return the recorded value of a graph argument; what is not a node is its own value."""
    return argument.meta.get("val") if isinstance(argument, Node) else argument


def called_graphs(module: GraphModule) -> Iterator[GraphModule]:
    """Yield a graph and those that its nodes name, at any depth, each once.

    A pass that inlines a graph leaves the attribute behind; a graph that no node names is not part of the program.
    """
    pending, seen = [module], {id(module)}
    while pending:
        one = pending.pop()
        yield one
        for _, found in _named_graphs(one):
            if id(found) not in seen:
                seen.add(id(found))
                pending.append(found)


def graphs_by_path(module: GraphModule) -> list[tuple[str, GraphModule]]:
    """Return the graphs of `called_graphs`, outer ones first, each with its path, `true_graph_0.body_graph_1`."""
    found = [("", module)]
    seen = {id(module)}
    for path, one in found:
        for name, inner in _named_graphs(one):
            if id(inner) not in seen:
                seen.add(id(inner))
                found.append((f"{path}.{name}".lstrip("."), inner))
    return found


def graph_argument(argument: Any) -> GraphModule | None:
    """Return the graph that an argument names, or None if it names none."""
    if not isinstance(argument, Node) or argument.op != "get_attr":
        return None
    found = attribute_of(argument)
    return found if isinstance(found, GraphModule) else None


def graphs_of_call(node: Node) -> list[GraphModule]:
    """Return the graphs that a call of control flow runs; those inside of a delegate are the backend's own."""
    if node.op != "call_function" or not isinstance(node.target, HigherOrderOperator):
        return []
    return [found for argument in node.args if (found := graph_argument(argument)) is not None]


def _named_graphs(module: GraphModule) -> Iterator[tuple[str, GraphModule]]:
    for node in module.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            found = attribute_of(node)
            if isinstance(found, GraphModule):
                yield str(node.target), found


STORED_KINDS = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})
"""Inputs whose tensors the program stores."""

MUTATION_KINDS = frozenset({OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION})
"""Results that are new values of inputs."""


class ProgramInterface:
    """Inputs and results of a graph and what its signature states of them, as they are when this is made.

    Args:
        graph: The graph of a program.
        signature: Its signature; without one, all inputs and results are the user's.

    Attributes:
        inputs: The signature's entry of each placeholder.
        results: What the graph returns, each with its entry in the signature.
    """

    def __init__(self, graph: Graph, signature: ExportGraphSignature | None) -> None:
        self.placeholders: list[Node] = list(graph.find_nodes(op="placeholder"))
        returned = results_of_graph(graph)
        self.inputs: dict[Node, InputSpec] = {}
        self.results: list[tuple[Any, OutputSpec | None]] = [(one, None) for one in returned]
        if signature is not None:
            self.inputs = dict(zip(self.placeholders, signature.input_specs, strict=False))
            self.results = list(zip(returned, signature.output_specs, strict=False))

    @classmethod
    def of(cls, program: ExportedProgram) -> ProgramInterface:
        """Return the interface of a program."""
        return cls(program.graph, program.graph_signature)

    def kind(self, node: Node) -> InputKind | None:
        """Return the kind of an input; None for other nodes."""
        spec = self.inputs.get(node)
        return None if spec is None else spec.kind

    def is_stored(self, node: Node) -> bool:
        """Return whether a node is an input whose tensor the program stores."""
        return self.kind(node) in STORED_KINDS

    def is_written(self, node: Node) -> bool:
        """Return whether a node is an input that the program writes to, or whose gradient it returns for training."""
        return node in self.written

    @property
    def user_inputs(self) -> list[Node]:
        """The inputs that the user passes."""
        return [node for node in self.placeholders if self.kind(node) in (None, InputKind.USER_INPUT)]

    @property
    def user_results(self) -> list[Any]:
        """What the user gets, without new values of inputs; nodes and constants."""
        return [value for value, spec in self.results if spec is None or spec.kind not in MUTATION_KINDS]

    @cached_property
    def mutations(self) -> list[tuple[Node, Any, OutputSpec]]:
        """New values of inputs, in the order of the results: input, new value, entry in the signature."""
        pairs = [(value, spec) for value, spec in self.results if spec is not None and spec.kind in MUTATION_KINDS]
        if not pairs:
            return []
        owners = {_input_key(node, spec): node for node, spec in self.inputs.items()}
        found = [(owners.get(_result_key(spec)), value, spec) for value, spec in pairs]
        return [(owner, value, spec) for owner, value, spec in found if owner is not None]

    @cached_property
    def trained(self) -> list[Node]:
        """The parameters whose gradients the program returns, in the order of these; each once.

        The user of the program changes them between two runs.
        """
        owners: dict[Any, Node] = {}
        for node, spec in self.inputs.items():
            owners.setdefault(spec.target, node)
        specs = [spec for _, spec in self.results if spec and spec.kind is OutputKind.GRADIENT_TO_PARAMETER]
        return list(dict.fromkeys(owners[spec.target] for spec in specs if spec.target in owners))

    @cached_property
    def written(self) -> frozenset[Node]:
        """The inputs whose values change: the program writes to them, or trains them.

        Several may stand for one stored tensor.
        """
        if not self.mutations and not self.trained:
            return frozenset()
        keys = {_result_key(spec) for _, _, spec in self.mutations}
        keys |= {_input_key(node, self.inputs[node]) for node in self.trained}
        return frozenset(node for node, spec in self.inputs.items() if _input_key(node, spec) in keys)


def stored_tensor(program: ExportedProgram, spec: InputSpec | None) -> torch.Tensor | None:
    """Return the tensor behind a stored input; None if there is none."""
    if spec is None or spec.kind not in STORED_KINDS:
        return None
    is_constant = spec.kind is InputKind.CONSTANT_TENSOR or spec.persistent is False
    tables = (program.constants, program.state_dict) if is_constant else (program.state_dict, program.constants)
    found = next((table[str(spec.target)] for table in tables if spec.target in table), None)
    return found if isinstance(found, torch.Tensor) else None


EXTERNAL_DATA_KEY = "external_data_file"
"""Entry of `node.meta` of a placeholder: name of the data file that is to hold its tensor, without `.ptd`.

The user of the program may give it another file with other values under the same keys, so that nothing may be
computed from these tensors while the program is lowered."""


def is_external_constant(node: Node) -> bool:
    """Return whether the tensor behind a placeholder is to lie in a data file, so that its value is unknown."""
    return node.meta.get(EXTERNAL_DATA_KEY) is not None


def results_of_graph(graph: Graph | GraphModule) -> list[Any]:
    """Return what a graph returns, as a list; empty if it has no output."""
    outputs = (graph.graph if isinstance(graph, GraphModule) else graph).find_nodes(op="output")
    if not outputs or not outputs[0].args:
        return []
    results: Any = outputs[0].args[0]
    return list(results) if isinstance(results, list | tuple) else [results]


def _input_key(node: Node, spec: InputSpec) -> tuple[bool, str]:
    # Names of placeholders and of stored tensors are two name spaces.
    return (True, node.name) if spec.kind is InputKind.USER_INPUT else (False, str(spec.target))


def _result_key(spec: OutputSpec) -> tuple[bool, str]:
    return spec.kind is OutputKind.USER_INPUT_MUTATION, str(spec.target)


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
        subgraphs: Its graphs, in order of the arguments; for `while_loop` the first one computes the condition.
        predicate: What decides between the branches of `cond`; None for the others.
        carried: What the first round begins with; each further round begins with what the one before returned.
        sliced: Tensors of which each round gets one row.
        shared: What every graph gets as it is.
    """

    node: Node
    kind: str
    subgraphs: tuple[GraphModule, ...]
    predicate: Any = None
    carried: tuple[Any, ...] = ()
    sliced: tuple[Any, ...] = ()
    shared: tuple[Any, ...] = ()

    @property
    def body(self) -> GraphModule:
        """The graph that a loop repeats; the first branch of `cond`."""
        return self.subgraphs[-1 if self.kind == WHILE else 0]


@dataclass(frozen=True)
class CallLayout:
    """Where a call of a higher-order operator has its graphs and their operands.

    Attributes:
        subgraphs: Positions of the graphs.
        operands: Positions of the lists of operands, in the order of the placeholders; all following arguments are one
            list if the last position is negative.
        roles: What each list of operands is: `carried`, `sliced` or `shared`; empty for operators that only wrap.
        last_is_optional: The last list may be missing.
        is_isolated: Its graphs may not return what shares memory with an operand or another result.
    """

    subgraphs: tuple[int, ...]
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
    subgraphs = [graph_argument(node.args[at]) for at in layout.subgraphs]
    if None in subgraphs:
        return None
    given = {
        role: _listed(node.args[at]) if at < len(node.args) else ()
        for role, at in zip(layout.roles, layout.operands, strict=True)
    }
    predicate = node.args[0] if kind == COND else None
    return ControlFlowCall(node, kind, tuple(subgraphs), predicate=predicate, **given)  # type: ignore[arg-type]


def control_flow_calls(module: GraphModule) -> Iterator[ControlFlowCall]:
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


def is_pure(node: Node) -> bool:
    """Return whether a node does nothing but return its value, so that it may be erased if that is unused.

    Not pure are inputs and outputs, operators that write to an argument, assert or constrain, return nothing, or draw
    random numbers (an unused draw moves the state of the generator, so what is drawn later depends on it), and control
    flow with such a call in one of its subgraphs.
    """
    if node.op != "call_function":
        return node.op == "get_attr"
    target = underlying(node.target)
    if target is free:
        return False
    schema = getattr(target, "_schema", None)
    if schema is not None and not schema.returns:
        return False
    if isinstance(target, HigherOrderOperator) and not all(map(_is_pure_subgraph, node.all_input_nodes)):
        return False
    # Handles are unknown to torch, so it is asked about what they stand for.
    if isinstance(target, OpOverload):
        return target not in side_effectful_functions and not _has_effect(target)
    return not is_impure(target, args=node.args, kwargs=dict(node.kwargs))


@cache
def _has_effect(op: OpOverload) -> bool:
    """For an overload the answer of torch depends on nothing else, and it takes its time."""
    return bool(is_impure(op))


def has_effect(node: Node) -> bool:
    """Return whether a call does something that others see even if nothing uses its value.

    That is less than not to be pure: a random draw has no effect in this sense, since what replaces the call
    replaces the draw.
    """
    if node.op != "call_function":
        return False
    schema = getattr(underlying(node.target), "_schema", None)
    if schema is None:
        return not is_pure(node)
    return bool(schema.is_mutable or not schema.returns)


def _is_pure_subgraph(node: Node) -> bool:
    if node.op != "get_attr":
        return True
    body = getattr(node.graph.owning_module, str(node.target), None)
    if not isinstance(body, GraphModule):
        return True
    return all(is_pure(inner) for inner in body.graph.nodes if inner.op not in ("placeholder", "output"))


def alias_root(node: Node) -> Node:
    """Return the value whose memory a chain of views shows; the node itself if it is not a view."""
    while node.op == "call_function":
        source = node
        if node.target is operator.getitem and isinstance(node.args[0], Node):
            # An item of a list of views is a view; items of other results are values of their own.
            source = node.args[0]
        first = source.args[0] if source.args else None
        if not _views_first_argument(source.target) or not isinstance(first, Node):
            return source if source is not node and _views_first_argument(source.target) else node
        node = first
    return node


def shared_results(graph: Graph) -> int:
    """Return how many results of a graph are inputs, views of inputs, or share memory with another result."""
    returned = [one for one in results_of_graph(graph) if isinstance(one, Node)]
    roots = {root for root in map(alias_root, returned) if root.op != "placeholder"}
    return len(returned) - len(roots)


def _views_first_argument(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return schema is not None and bool(schema.arguments) and schema.arguments[0].alias_info is not None
