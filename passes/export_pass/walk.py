"""One walk over one graph: loads arguments, calls the hooks of an `ExportPass`, notes which values stayed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from exirkit.ir import (
    ContractError,
    Diagnostic,
    InternalError,
    Location,
    ModelError,
    line_that_raised,
    locate,
    same_argument,
    same_value,
)

from .snapshot import attribute, known_values
from .values import NodeMetadata, ProxyValue, brief, data_of

if TYPE_CHECKING:
    from .hooks import ExportPassHooks

_PYTHON_MODULES = frozenset({"_operator", "builtins", "math"})
_DELEGATE_CALL = "executorch_call_delegate"


class GraphWalk:
    """Visits the nodes of a graph in order; nothing recurses along the graph.

    Attributes:
        module: The module being read; it is not changed.
        node: The node being visited.
    """

    def __init__(
        self, hooks: ExportPassHooks, module: GraphModule, inputs: Sequence[Any], *, believe: bool = True
    ) -> None:
        self.module = module
        self.node: Node | None = None
        self._hooks = hooks
        self._inputs = inputs
        self._position = 0
        self._results: dict[Node, Any] = {}
        # Nodes whose value in the new graph is what the old graph records for them.
        self._settled: set[Node] = set()
        self._args: tuple[Any, ...] = ()
        self._kwargs: Mapping[str, Any] = {}
        self._is_reusable = False
        self._is_named = False
        self._same_outputs: dict[int, tuple[GraphModule, GraphModule]] = {}
        self._known = known_values()
        self._believes_nothing = not believe

    def run(self) -> None:
        """Visit every node.

        Raises:
            ContractError: EK403, a hook raised; what it raised is the cause. EK416, a hook returned nothing.
            ModelError: EK415, the graph calls modules or methods.
        """
        for node in self.module.graph.nodes:
            self.node = node
            try:
                self._visit(node)
            except ContractError as error:
                raise self._placed(error) from error.__cause__
            except (InternalError, ModelError):
                raise
            except Exception as error:
                raise self._failed(node, error) from error

    def _visit(self, node: Node) -> None:
        self._args = map_arg(node.args, self._results.__getitem__)
        self._kwargs = map_arg(node.kwargs, self._results.__getitem__)
        self._is_named = False
        self._is_reusable = self._is_believed(node) and self._settled.issuperset(node.all_input_nodes)
        result = self._dispatch(node, NodeMetadata(node.meta))
        if result is None and node.op == "call_function" and node.users and node.meta.get("val") is not None:
            raise self._empty_handed(node)
        self._results[node] = result
        if self._stayed(node, result):
            self._settled.add(node)

    def _dispatch(self, node: Node, meta: NodeMetadata) -> Any:
        if node.op == "call_function":
            return self._call_function(node, meta)
        if node.op == "placeholder":
            return self._hooks.placeholder(str(node.target), self._next_input(node), meta)
        if node.op == "get_attr":
            return self._read(node)
        if node.op == "output":
            return self._hooks.output(self._args[0], meta)
        raise ModelError(
            Diagnostic(
                code="EK415",
                message=f"%{node.name} is a {node.op} node, which exported graphs do not have",
                location=locate(node),
                hint="export the model with torch.export, or inline the call before running passes",
            )
        )

    def _call_function(self, node: Node, meta: NodeMetadata) -> Any:
        target, args, hooks = node.target, self._args, self._hooks
        if target is operator.getitem:
            return hooks.call_getitem(args[0], args[1], meta)
        if not self._kwargs and _is_symbolic_function(target):
            return hooks.call_sym(cast("Callable[..., Any]", target), args, meta)
        name = getattr(target, "__name__", "")
        if name == _DELEGATE_CALL:
            return hooks.call_delegate(args[0], args[1:], dict(self._kwargs), meta)
        if isinstance(target, HigherOrderOperator):
            return self._call_higher_order(name, meta)
        return hooks.call_operator(target, args, self._kwargs, meta)

    def _call_higher_order(self, name: str, meta: NodeMetadata) -> Any:
        args, hooks = self._args, self._hooks
        # Operators that take other arguments than these are newer than this code, and pass through as unknown ones do.
        if not self._kwargs:
            if name == "cond" and len(args) == 4:
                return hooks.call_cond(args[0], args[1], args[2], args[3], meta)
            if name == "while_loop" and len(args) == 4:
                return hooks.call_while(args[0], args[1], args[2], args[3], meta)
            if name == "map_impl" and len(args) == 3:
                return hooks.call_map(args[0], args[1], args[2], meta)
            if name == "scan" and len(args) == 4:
                return hooks.call_scan(args[0], args[1], args[2], args[3], meta)
        assert self.node is not None
        return hooks._fx("call_function", self.node.target, args, self._kwargs, meta)

    def _next_input(self, node: Node) -> Any:
        if self._position >= len(self._inputs):
            raise ContractError(
                Diagnostic(
                    code="EK406",
                    message=f"placeholder %{node.name} was given no value: there are {len(self._inputs)} inputs",
                    location=locate(node),
                    hint="inputs() and call_submodule need one value for each placeholder",
                )
            )
        value = data_of(self._inputs[self._position])
        self._position += 1
        recorded = node.meta.get("val")
        # A branch records its own fake tensors for the values that it is given; keeping them lets its nodes be reused.
        return recorded if recorded is not None and same_value(value, recorded) else value

    def _read(self, node: Node) -> Any:
        value = attribute(self.module, str(node.target))
        tracer = self._hooks.active_tracer
        tracer.settle(value, node)
        # Submodules reach the hooks as they are; a node is made for what the hook then uses.
        return tracer.read(value) if isinstance(value, torch.Tensor) else value

    def _is_believed(self, node: Node) -> bool:
        if "val" not in node.meta or self._believes_nothing:
            return False
        return self._known is None or self._known.believes(node)

    def _stayed(self, node: Node, result: Any) -> bool:
        if node.op == "get_attr":
            return not isinstance(result, ProxyValue) or self._same_constant(node, result)
        return "val" in node.meta and same_value(data_of(result), node.meta["val"])

    def _same_constant(self, node: Node, result: ProxyValue) -> bool:
        recorded = node.meta.get("val")
        inference = self._hooks.active_tracer.inference
        return recorded is None or inference is None or same_value(inference.fake(result.data), recorded)

    def reuses(self, target: Any, args: Any, kwargs: Any) -> bool:
        """Tell whether a node about to be made is the visited one again, on values with equal metadata."""
        return (
            self._is_reusable
            and self.node is not None
            and target == self.node.target
            and self._is_same_operand(args, self._args)
            and self._is_same_operand(kwargs, self._kwargs)
        )

    def _is_same_operand(self, given: Any, loaded: Any) -> bool:
        if given is loaded:
            return True
        if isinstance(loaded, ProxyValue):
            return isinstance(given, ProxyValue) and same_value(given.data, loaded.data)
        if isinstance(loaded, list | tuple):
            return (
                isinstance(given, list | tuple)
                and len(given) == len(loaded)
                and all(map(self._is_same_operand, given, loaded))
            )
        if isinstance(loaded, dict):
            return (
                isinstance(given, dict)
                and given.keys() == loaded.keys()
                and all(self._is_same_operand(given[key], value) for key, value in loaded.items())
            )
        if isinstance(loaded, GraphModule):
            return self._same_outputs.get(id(given), (None, None))[1] is loaded
        return not isinstance(given, ProxyValue) and same_argument(given, loaded)

    def claim_name(self, target: Any) -> str | None:
        """Return the visited node's name for the first node of the same target that replaces it."""
        if self.node is None or self._is_named or target != self.node.target:
            return None
        self._is_named = True
        return self.node.name

    def rebuilt(self, old: GraphModule, new: GraphModule) -> None:
        """Take note that a hook turned one submodule of this graph into another."""
        if same_value(_outputs(old), _outputs(new)):
            self._same_outputs[id(new)] = (new, old)
        self._hooks.active_tracer.succeed(old, new)

    def location(self) -> Location:
        """Return the place of the visited node, for diagnostics."""
        return Location() if self.node is None else locate(self.node)

    def _failed(self, node: Node, error: Exception) -> ContractError:
        return ContractError(
            Diagnostic(
                code="EK403",
                message=f"pass {self._author} failed on %{node.name} ({_shown_target(node)}): {brief(error)}",
                location=locate(node).model_copy(update=line_that_raised(error).model_dump(include={"file", "line"})),
                hint="the traceback of the original exception shows the way there",
            )
        )

    def _empty_handed(self, node: Node) -> ContractError:
        return ContractError(
            Diagnostic(
                code="EK416",
                message=f"pass {self._author} returned nothing for %{node.name} ({_shown_target(node)}), which is used",
                location=locate(node),
                hint="return what super().call_operator returned, or the value that takes the node's place",
            )
        )

    def _placed(self, error: ContractError) -> ContractError:
        if any(finding.location.node is not None for finding in error.diagnostics):
            return error
        note = f"in pass {self._author}"
        return ContractError(
            finding.model_copy(update={"location": self.location(), "notes": (*finding.notes, note)})
            for finding in error.diagnostics
        )

    @property
    def _author(self) -> str:
        return type(self._hooks).__name__


def _shown_target(node: Node) -> str:
    return str(node.target) if node.op != "call_function" else str(getattr(node.target, "__name__", node.target))


def _is_symbolic_function(target: Any) -> bool:
    module = getattr(target, "__module__", None)
    if module in _PYTHON_MODULES:
        return True
    return module == "torch" and getattr(target, "__name__", "").lstrip("_").startswith("sym_")


def _outputs(module: GraphModule) -> Any:
    output = next(iter(reversed(module.graph.nodes)))
    return map_arg(output.args, lambda node: node.meta.get("val"))
