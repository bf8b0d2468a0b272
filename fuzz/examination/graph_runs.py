"""Running a program of any dialect on torch, node by node, with the state that it keeps between runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node

from exirkit.ir import TensorShapeDynamism, TensorSpec, alloc, control_flow_call, pytree, stride_from_dim_order

from .sizes import Sizes

Observer: TypeAlias = Callable[[Node, Any], None]
Change: TypeAlias = Callable[[Node, Any], Any]
"""Called with every node of the main graph and its value, in order."""


@dataclass(frozen=True)
class GraphResult:
    """What one run gave.

    Attributes:
        outputs: What the program returns to its caller, flat.
        state: Copies of the buffers that the program writes to, by name.
        inputs: Copies of the inputs that the program writes to, by name of the placeholder.
    """

    outputs: list[Any]
    state: Mapping[str, torch.Tensor]
    inputs: Mapping[str, torch.Tensor]


class GraphFailedError(Exception):
    """A node cannot be run; the cause is what its operator raised."""

    def __init__(self, node: Node, error: BaseException) -> None:
        self.node = node
        super().__init__(f"%{node.name} = {node.target}: {type(error).__name__}: {error}")


class GraphSession:
    """One method of a program in memory, which keeps its state from run to run.

    Args:
        program: Of any dialect; it is not changed, and neither are its tensors.
        change: Called with every node of the main graph and its value; what it returns is used instead.
    """

    def __init__(self, program: ExportedProgram, change: Change | None = None) -> None:
        self._program = program
        self._change = change
        self._nodes = list(program.graph.nodes)
        signature = program.graph_signature
        stored = {**program.state_dict, **program.constants}
        self._kept: dict[str, torch.Tensor] = {}
        self._lifted: dict[str, Any] = {}
        self._inputs: list[str] = []
        for spec in signature.input_specs:
            name = getattr(spec.arg, "name", None)
            if spec.kind is InputKind.USER_INPUT:
                self._inputs.append(str(name))
            elif spec.target in stored:
                value = stored[spec.target]
                # Buffers may be written to in place, and the program belongs to the caller.
                is_own = spec.kind is InputKind.BUFFER
                self._lifted[str(name)] = value.detach().clone() if is_own else value
                if is_own:
                    self._kept[str(spec.target)] = self._lifted[str(name)]
        self._mutated = _mutated_targets(program)
        self._declared = {node.name: node.meta.get("spec") for node in self._nodes if node.op == "placeholder"}

    def run(self, inputs: Sequence[Any], observe: Observer | None = None) -> GraphResult:
        """Run once.

        Args:
            inputs: Flat; they are not changed.
            observe: Called with every node of the main graph and its value.

        Raises:
            GraphFailedError: An operator raised.
        """
        given = {
            name: _as_declared(self._declared.get(name), one) if isinstance(one, torch.Tensor) else one
            for name, one in zip(self._inputs, inputs, strict=True)
        }
        with torch.no_grad():
            results = _interpret(
                self._program.graph_module, self._nodes, {**self._lifted, **given}, observe, self._change
            )
            return self._finished(results, given)

    def _finished(self, results: Sequence[Any], given: Mapping[str, Any]) -> GraphResult:
        outputs: list[Any] = []
        written: list[tuple[torch.Tensor, torch.Tensor]] = []
        for spec, value in zip(self._program.graph_signature.output_specs, results, strict=True):
            if spec.kind is OutputKind.BUFFER_MUTATION:
                written.append((self._kept[str(spec.target)], value))
            elif spec.kind is OutputKind.USER_INPUT_MUTATION:
                written.append((given[str(spec.target)], value))
            else:
                outputs.append(value)
        outputs = [one.detach().clone() if isinstance(one, torch.Tensor) else one for one in outputs]
        # All values are read before any is written: two buffers may change places.
        for target, value in [(target, value.clone()) for target, value in written if value is not target]:
            target.copy_(value)
        return GraphResult(
            outputs,
            {name: self._kept[name].clone() for name in self._mutated if name in self._kept},
            {name: given[name].clone() for name in self._mutated if name in given},
        )


def mutated_buffers(program: ExportedProgram) -> list[str]:
    """Return the names of the buffers that a program writes to."""
    kept = {str(spec.target) for spec in program.graph_signature.input_specs if spec.kind is InputKind.BUFFER}
    return [name for name in _mutated_targets(program) if name in kept]


def _mutated_targets(program: ExportedProgram) -> list[str]:
    kinds = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
    found = [str(spec.target) for spec in program.graph_signature.output_specs if spec.kind in kinds]
    return list(dict.fromkeys(found))


def _interpret(
    module: GraphModule,
    nodes: Sequence[Node],
    given: Mapping[str, Any],
    observe: Observer | None,
    change: Change | None,
) -> list[Any]:
    values: dict[Node, Any] = {}
    sizes = Sizes()
    for node in nodes:
        if node.op == "output":
            return list(pytree.tree_leaves(_resolved(node.args[0], values), is_leaf=_is_none))
        try:
            value = _value(module, node, values, given, sizes)
            # Memory is made before it is known how much of it will be needed.
            if node.target is not alloc:
                sizes.learn(node.meta.get("val"), value)
        except Exception as error:
            raise GraphFailedError(node, error) from error
        values[node] = value if change is None else change(node, value)
        if observe is not None:
            observe(node, value)
    raise AssertionError("a graph without output")


def _value(module: GraphModule, node: Node, values: Mapping[Node, Any], given: Mapping[str, Any], sizes: Sizes) -> Any:
    if node.op == "placeholder":
        return _as_planned(node, given.get(node.name))
    if node.op == "get_attr":
        return functools.reduce(getattr, str(node.target).split("."), module)
    if node.target is alloc:
        return _memory(node, sizes)
    args = _resolved(node.args, values)
    kwargs = _resolved(node.kwargs, values)
    target: Any = node.target
    call = control_flow_call(node)
    if call is not None and call.sliced:
        args = [_with_own_rows(one) if isinstance(one, GraphModule) else one for one in args]
    made = target(*args, **kwargs)
    if call is not None:
        # What a body returns as it was given it is a value of its own, row-major once memory is planned: torch does
        # not see to either.
        layout = torch.contiguous_format if "spec" in node.meta else torch.preserve_format
        made = pytree.tree_map_only(torch.Tensor, functools.partial(torch.clone, memory_format=layout), made)
    # Operators that write a list of tensors return nothing.
    written = kwargs.get("out")
    return written if isinstance(written, list | tuple) and (made is None or isinstance(made, list | tuple)) else made


def _with_own_rows(body: GraphModule) -> Callable[..., Any]:
    """Return a body that is given copies of rows: `as_strided` would count from where the first row begins."""

    def called(*given: Any) -> Any:
        return body(*(one.clone() if isinstance(one, torch.Tensor) and one.storage_offset() else one for one in given))

    return called


def _as_planned(node: Node, value: Any) -> Any:
    """Return a constant in the layout that the file will have it in."""
    spec = node.meta.get("spec")
    if not isinstance(value, torch.Tensor) or not isinstance(spec, TensorSpec) or not spec.const:
        return value
    strides = stride_from_dim_order(value.shape, spec.dim_order)
    if value.stride() == tuple(strides):
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype).copy_(value)


def _as_declared(spec: Any, value: torch.Tensor) -> torch.Tensor:
    """Return a copy of an input, in the layout in which a file would take it if that is known."""
    if not isinstance(spec, TensorSpec):
        return value.detach().clone(memory_format=torch.preserve_format)
    strides = [int(stride) for stride in stride_from_dim_order(value.shape, spec.dim_order)]
    return torch.empty_strided(value.shape, strides, dtype=value.dtype).copy_(value)


def _memory(node: Node, sizes: Sizes) -> Any:
    """Return memory for what operators write, in the layout that the plan will have.

    Where a size is not known before the run it is empty, and the operator makes room.
    """
    specs, recorded = node.meta.get("spec"), node.meta.get("val")
    if isinstance(specs, list | tuple):
        return [_empty(one, other, sizes) for one, other in zip(specs, recorded or specs, strict=True)]
    if isinstance(specs, TensorSpec):
        return _empty(specs, recorded, sizes)
    described: Any = node.args[0]
    return alloc(described)


def _empty(spec: TensorSpec, recorded: Any, sizes: Sizes) -> torch.Tensor:
    wanted = spec.shape if spec.shape_dynamism is TensorShapeDynamism.STATIC else getattr(recorded, "shape", (None,))
    known = [sizes.number(size) for size in wanted]
    if any(size is None for size in known):
        return torch.empty(0, dtype=spec.dtype)
    numbers = [int(size) for size in known if size is not None]
    strides = [int(stride) for stride in stride_from_dim_order(numbers, list(spec.dim_order))]
    return torch.empty_strided(numbers, strides, dtype=spec.dtype)


def _resolved(argument: Any, values: Mapping[Node, Any]) -> Any:
    if isinstance(argument, Node):
        return values[argument]
    if isinstance(argument, list | tuple):
        made = [_resolved(one, values) for one in argument]
        return tuple(made) if isinstance(argument, tuple) else made
    if isinstance(argument, dict):
        return {name: _resolved(one, values) for name, one in argument.items()}
    return argument


def _is_none(value: Any) -> bool:
    return value is None
