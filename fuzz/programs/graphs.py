"""Building the graph of a method or of a body, step by step."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from exirkit.ir import Diagnostic, Location, ModelError, lazy_graph_module

from .inference import CallInference, operator_named
from .language import HIGHER_ORDER
from .model import Argument, Body, Call, Ref, Size
from .sizes import OPERATIONS, SizeTree, size_tree
from .symbolic_sizes import SymbolTable, inverse
from .text import call_text

_BODY_NAMES = {
    "cond": ("true_graph", "false_graph"),
    "map": ("body_graph",),
    "scan": ("scan_combine_graph",),
    "while_loop": ("while_loop_cond_graph", "while_loop_body_graph"),
}
_TARGETS = {"cond": "cond", "map": "map_impl", "scan": "scan", "while_loop": "while_loop"}


class GraphBuilder:
    """Builds one graph.

    Args:
        inference: Computes the recorded values.
        symbols: Of the program.
        method: Name of the method, for diagnostics.

    Attributes:
        graph: What was built so far.
        values: The node of each name of the program.
        root: Graph modules that the graph names.
    """

    def __init__(self, inference: CallInference, symbols: SymbolTable, method: str) -> None:
        self.inference = inference
        self.symbols = symbols
        self.method = method
        self.graph = Graph()
        self.values: dict[str, Node] = {}
        self.root: dict[str, Any] = {}
        self._sizes: dict[SizeTree, Any] = {}
        self._inputs: list[Node] = []

    def error(self, code: str, call: Call | None, message: str, *, notes: tuple[str, ...] = ()) -> ModelError:
        """Return an error about a step."""
        name = next((one for one in call.results if one), call.op) if call else None
        place = Location(method=self.method, node=name, text=call_text(call)[:200] if call else None)
        return ModelError(Diagnostic(code=code, message=message, location=place, notes=notes))

    def node(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, value: Any) -> Node:
        """Add a node with exactly this name; names of programs are free of those that torch would change."""
        made = self.graph.create_node(op, target, args, kwargs, name)
        made.name = name
        made.meta["val"] = value
        return made

    def _call_node(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, value: Any) -> Node:
        made = self.node("call_function", target, args, kwargs, name, value)
        if self.inference.bindings:
            made.meta["unbacked_bindings"] = self.inference.bindings
        return made

    def placeholder(self, name: str, value: torch.Tensor) -> Node:
        """Add an input."""
        made = self.node("placeholder", name, (), {}, name, value)
        self._inputs.append(made)
        return made

    def fresh(self, stem: str) -> str:
        """Return a name that no node has; names of programs never end in two underscores and a number."""
        name, number = f"{stem}__0", 0
        taken = self.graph._graph_namespace._used_names
        while name in taken:
            number += 1
            name = f"{stem}__{number}"
        taken.add(name)
        return name

    def steps(self, steps: Sequence[Call]) -> None:
        """Add steps."""
        for step in steps:
            self._step(step)

    def _step(self, call: Call) -> None:
        try:
            target, args, kwargs, value = self._called(call)
        except ModelError:
            raise
        except Exception as error:
            notes = (f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}",)
            raise self.error("EK809", call, f"{call.op} does not take these arguments", notes=notes) from error
        self._named(call, target, args, kwargs, value)

    def _called(self, call: Call) -> tuple[Any, tuple[Any, ...], dict[str, Any], Any]:
        if call.op in HIGHER_ORDER:
            target, args, value = self._higher_order(call)
            return target, args, {}, value
        target = operator_named(call.op)
        if target is None:
            raise self.error("EK808", call, f"no operator {call.op} is registered")
        args = tuple(self.argument(one, call) for one in call.args)
        kwargs = {name: self.argument(one, call) for name, one in call.kwargs}
        return target, args, kwargs, self.inference.call(target, args, kwargs)

    def _named(self, call: Call, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> None:
        stem = call.op.split(".")[1 if "." in call.op else 0]
        if isinstance(value, list | tuple):
            if len(call.results) != len(value):
                raise self.error("EK809", call, f"{call.op} has {len(value)} results, not {len(call.results)}")
            made = self._call_node(target, args, kwargs, self.fresh(stem), value)
            for place, name in enumerate(call.results):
                if name is not None:
                    self.values[name] = self.node(
                        "call_function", operator.getitem, (made, place), {}, name, value[place]
                    )
            return
        if len(call.results) != (value is not None):
            raise self.error("EK809", call, f"{call.op} has {int(value is not None)} results, not {len(call.results)}")
        name = (call.results[0] if call.results else None) or self.fresh(stem)
        self.values[name] = self._call_node(target, args, kwargs, name, value)

    def argument(self, argument: Argument, call: Call | None = None) -> Any:
        """Return an argument of a node."""
        if isinstance(argument, Ref):
            return self.values[argument.name]
        if isinstance(argument, Size):
            return self.size(size_tree(argument.text), call)
        if isinstance(argument, tuple):
            return [self.argument(one, call) for one in argument]
        return argument

    def size(self, tree: SizeTree, call: Call | None = None) -> Any:
        """Return a node that computes a size from the inputs, or the number that it is."""
        if isinstance(tree, int):
            return tree
        if tree not in self._sizes:
            if isinstance(tree, str):
                self._sizes[tree] = self._symbol(tree, call)
            else:
                left, right = self.size(tree[1], call), self.size(tree[2], call)
                self._sizes[tree] = self._computed(tree[0], left, right)
        return self._sizes[tree]

    def _symbol(self, name: str, call: Call | None) -> Any:
        value = self.symbols.values[name]
        if isinstance(value, int):
            return value
        wanted = value.node.expr
        sources = [
            (node, dim, found)
            for node in self._inputs
            for dim, size in enumerate(node.meta["val"].shape)
            if isinstance(size, torch.SymInt) and (found := inverse(size.node.expr, wanted))
        ]
        if not sources:
            raise self.error("EK811", call, f"no input has a size from which {name} can be computed")
        node, dim, (factor, summand) = min(sources, key=lambda one: one[2] != (1, 0))
        target = torch.ops.aten.sym_size.int
        value = node.meta["val"].shape[dim]
        made: Any = self.node("call_function", target, (node, dim), {}, self.fresh("sym_size"), value)
        if summand:
            made = self._computed("-", made, summand)
        return self._computed("//", made, factor) if factor != 1 else made

    def _computed(self, sign: str, left: Any, right: Any) -> Any:
        function = OPERATIONS[sign]
        values = [one.meta["val"] if isinstance(one, Node) else one for one in (left, right)]
        value = function(*values)
        if not (isinstance(left, Node) or isinstance(right, Node)):
            return value
        return self.node("call_function", function, (left, right), {}, self.fresh(function.__name__), value)

    def _higher_order(self, call: Call) -> tuple[Any, tuple[Any, ...], Any]:
        target = getattr(torch.ops.higher_order, _TARGETS[call.op])
        given = [self.argument(one, call) for one in call.args]
        groups = [list(one) if isinstance(one, list) else one for one in given]
        lists = groups[1:] if call.op == "cond" else groups
        if not all(isinstance(one, list) and all(isinstance(each, Node) for each in one) for one in lists):
            raise self.error("EK809", call, f"the operands of {call.op} are lists of values")
        slices = {"map": 0, "scan": 1}.get(call.op)
        operands: list[torch.Tensor] = []
        length: Any = None
        for place, group in enumerate(lists):
            for node in group:
                value = node.meta["val"]
                if place == slices:
                    if length is not None and str(length) != str(value.shape[0]):
                        raise self.error("EK809", call, f"what {call.op} takes slices of has different lengths")
                    length = value.shape[0]
                    value = self.inference.tensor(value.dtype, value.shape[1:], value.stride()[1:])
                operands.append(self.inference.like(value))
        bodies = [
            self._body(body, stem, operands) for body, stem in zip(call.bodies, _BODY_NAMES[call.op], strict=True)
        ]
        results = [one.meta["val"] for one in bodies[-1][1]]
        if call.op == "cond" and len({_types(one) for _, one in bodies}) > 1:
            raise self.error("EK809", call, "the bodies of a cond have results of different types")
        leading = [one for one, _ in bodies]
        if call.op == "cond":
            return target, (given[0], *leading, tuple(lists[0])), tuple(map(self.inference.like, results))
        carried = len(lists[0]) if call.op in ("scan", "while_loop") else 0
        value = tuple(map(self.inference.like, results[:carried]))
        value += tuple(self._stacked(one, length) for one in results[carried:])
        return target, (*leading, *self._operand_lists(call.op, lists)), value

    def _operand_lists(self, op: str, lists: list[list[Node]]) -> tuple[Any, ...]:
        if op == "while_loop":
            return tuple(map(tuple, lists))
        return (*lists[:-1], tuple(lists[-1])) if op == "scan" else tuple(lists)

    def _stacked(self, value: torch.Tensor, length: Any) -> torch.Tensor:
        sizes = [length, *value.shape]
        strides: list[Any] = [1] * len(sizes)
        for dim in range(len(sizes) - 2, -1, -1):
            size = sizes[dim + 1]
            strides[dim] = strides[dim + 1] * (max(size, 1) if isinstance(size, int) else size)
        return self.inference.tensor(value.dtype, sizes, strides)

    def _body(self, body: Body, stem: str, operands: Sequence[torch.Tensor]) -> tuple[Node, list[Node]]:
        """Build a body; return the node that names it, and what it returns."""
        if len(body.inputs) != len(operands):
            raise self.error("EK809", None, f"{body.name} has {len(body.inputs)} inputs, and gets {len(operands)}")
        inner = GraphBuilder(self.inference, self.symbols, self.method)
        for name, value in zip(body.inputs, operands, strict=True):
            inner.values[name] = inner.placeholder(name, self.inference.like(value))
        inner.steps(body.steps)
        outputs = [inner.argument(one) for one in body.outputs]
        if not all(isinstance(one, Node) for one in outputs):
            raise self.error("EK809", None, f"{body.name} does not return values only")
        returned = outputs[0] if stem == "while_loop_cond_graph" and len(outputs) == 1 else tuple(outputs)
        inner.node("output", "output", (returned,), {}, "output", None)
        path = f"{stem}_{sum(one.startswith(stem) for one in self.root)}"
        module = lazy_graph_module(inner.root, inner.graph, path)
        self.root[path] = module
        made = self.graph.create_node("get_attr", path, (), {}, path)
        return made, outputs


def _types(outputs: Sequence[Node]) -> tuple[Any, ...]:
    return tuple((one.meta["val"].dtype, str(list(one.meta["val"].shape))) for one in outputs)
