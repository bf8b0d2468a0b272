"""Programs as exported programs, made directly: what `torch.export` would make, in a hundredth of its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Node

from exirkit.ir import Verifier, lazy_graph_module, pytree

from .aliasing import read_late
from .graphs import GraphBuilder
from .inference import CallInference
from .model import Input, Method, Program, Ref, Stored
from .sizes import size_value
from .symbolic_sizes import SymbolTable
from .tensors import inputs_of, make_tensor

_KINDS = {
    "parameter": (InputKind.PARAMETER, "p"),
    "buffer": (InputKind.BUFFER, "b"),
    "constant": (InputKind.CONSTANT_TENSOR, "c"),
}


def build(program: Program, *, quick: bool = True) -> dict[str, ExportedProgram]:
    """Build a program without tracing anything.

    Each method takes parameters, buffers, constants and its inputs, in this order; the tensors that are stored are
    shared by all methods. Every value is recorded with dtype, sizes and strides; the layout of an input is that of the
    method's first run. What is read of a buffer or an input is its value at the start of the run.

    Args:
        program: A program without findings (`check_program`).
        quick: Record values from meta kernels at a few sizes where that is possible. Otherwise fake tensors are asked
            about everything, as `torch.export` does: ten times as slow, and it rejects a call that has a result under a
            further condition on symbols only.

    Returns:
        The exported program of each method.

    Raises:
        ModelError: EK808 to EK811, an operator is not known or does not take its arguments, an update does not fit, or
            a size cannot be computed.
    """
    tensors = {
        one.name: make_tensor(one.contents, one.type.dtype, [size_value(size, {}) for size in one.type.sizes])
        for one in program.stored
    }
    for one in program.stored:
        if one.kind == "parameter":
            tensors[one.name] = torch.nn.Parameter(tensors[one.name], requires_grad=False)
    return {method.name: _MethodBuilder(program, method, tensors, quick).build() for method in program.methods}


class _MethodBuilder:
    def __init__(self, program: Program, method: Method, tensors: Mapping[str, torch.Tensor], quick: bool) -> None:
        self.program = program
        self.method = method
        self.tensors = tensors
        self.symbols = SymbolTable(program.symbols)
        self.inference = CallInference(self.symbols.mode, quick=quick)
        self.builder = GraphBuilder(self.inference, self.symbols, method.name)
        self.inputs: list[InputSpec] = []

    def build(self) -> ExportedProgram:
        runs = [one for one in self.program.runs if one.method == self.method.name]
        # Strides of dims of one element do not tell in which order they lie.
        first = next((one for one in runs if 1 not in one.sizes.values()), runs[0] if runs else None)
        examples = inputs_of(self.program, first) if first else None
        used = self.method.names_read
        for one in sorted(self.program.stored, key=lambda one: list(_KINDS).index(one.kind)):
            if one.kind != "constant" or one.name in used:
                self._store(one)
        for place, input in enumerate(self.method.inputs):
            self._input(input, examples[place] if examples else None)
        for target in read_late(self.method):
            self.builder.values[target] = self._copied(self.builder.values[target])
        self.builder.steps(self.method.steps)
        values, specs = self._results()
        graph = self.builder.graph
        self.builder.node("output", "output", (tuple(values),), {}, "output", None)
        stored = {one.name: self.tensors[one.name] for one in self.program.stored if one.kind != "constant"}
        constants = {
            one.name: self.tensors[one.name]
            for one in self.program.stored
            if one.kind == "constant" and one.name in used
        }
        module = lazy_graph_module(self.builder.root, graph, "GraphModule")
        # Not by its constructor, which prints code for every graph: half of the time that all the rest takes.
        made: ExportedProgram = object.__new__(ExportedProgram)
        made._graph_module = module
        made._graph_signature = ExportGraphSignature(self.inputs, specs)
        made._state_dict = stored
        made._constants = dict(constants)
        made._range_constraints = self.symbols.ranges(graph) if self.symbols.values else {}
        made._module_call_graph = [self._entry()]
        made._example_inputs = (examples, {}) if examples is not None else None
        made._guards_code = []
        made._verifiers = [Verifier]
        return made

    def _store(self, stored: Stored) -> None:
        kind, letter = _KINDS[stored.kind]
        name = f"{letter}_{stored.name}"
        tensor = self.tensors[stored.name]
        value = self.inference.like(tensor)
        while name in self._names:
            name += "_"
        self.builder.values[stored.name] = self.builder.placeholder(name, value)
        persistent = True if kind is InputKind.BUFFER else None
        self.inputs.append(InputSpec(kind, TensorArgument(name), stored.name, persistent))

    @property
    def _names(self) -> set[str]:
        return {one.name for one in self.method.inputs} | {
            name for step in self.method.steps for name in step.results if name is not None
        }

    def _input(self, input: Input, example: torch.Tensor | None) -> None:
        sizes = [size_value(one, self.symbols.values) for one in input.type.sizes]
        order = range(len(sizes)) if example is None else _from_outer(example)
        strides = _strides(sizes, order)
        if example is not None and all(type(one) is int for one in sizes):
            strides = list(example.stride())
        value = self.inference.tensor(input.type.dtype, sizes, strides)
        self.builder.values[input.name] = self.builder.placeholder(input.name, value)
        self.inputs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(input.name), None))

    def _results(self) -> tuple[list[Any], list[OutputSpec]]:
        """Return what the graph returns: what is written back, in the order of the inputs, then the outputs."""
        values: list[Any] = []
        specs: list[OutputSpec] = []
        updates = dict(self.method.updates)
        buffers = {one.name for one in self.program.stored if one.kind == "buffer"}
        for target in [name for name in self.builder.values if name in updates]:
            value = self._written(target, updates[target])
            # Torch keeps what is written by the name of the value, so that one value is written once.
            if value in values:
                value = self._copied(value)
            kind = OutputKind.BUFFER_MUTATION if target in buffers else OutputKind.USER_INPUT_MUTATION
            values.append(value)
            specs.append(OutputSpec(kind, TensorArgument(value.name), target))
        for output in self.method.outputs:
            value = self.builder.argument(output)
            values.append(value)
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, _argument(value), None))
        return values, specs

    def _written(self, target: str, source: Ref) -> Node:
        value = self.builder.values[source.name]
        old, new = self.builder.values[target].meta["val"], value.meta["val"]
        if not isinstance(new, torch.Tensor) or new.dtype != old.dtype or tuple(new.shape) != tuple(old.shape):
            raise self.builder.error(
                "EK810", None, f"{source.name} is not of the type of {target}, to which it is written"
            )
        return value

    def _copied(self, value: Node) -> Node:
        target = torch.ops.aten.clone.default
        fake = self.inference.call(target, (value,), {})
        return self.builder.node("call_function", target, (value,), {}, self.builder.fresh("clone"), fake)

    def _entry(self) -> ModuleCallEntry:
        def spec(value: Any) -> Any:
            return pytree.tree_flatten(value)[1]

        names = [one.name for one in self.method.inputs]
        signature = ModuleCallSignature(
            inputs=[],
            outputs=[],
            in_spec=spec(((0,) * len(names), {})),
            out_spec=spec((0,) * len(self.method.outputs)),
            forward_arg_names=names,
        )
        return ModuleCallEntry(fqn="", signature=signature)


def _argument(value: Any) -> Any:
    if not isinstance(value, Node):
        return ConstantArgument(name="", value=value)
    return (TensorArgument if isinstance(value.meta["val"], torch.Tensor) else SymIntArgument)(name=value.name)


def _from_outer(tensor: torch.Tensor) -> list[int]:
    """Return the dims from the outermost in memory to the innermost."""
    strides = tensor.stride()
    return sorted(range(tensor.dim()), key=lambda dim: -strides[dim])


def _strides(sizes: Sequence[Any], order: Sequence[int]) -> list[Any]:
    strides: list[Any] = [1] * len(sizes)
    step: Any = 1
    for dim in reversed(order):
        strides[dim] = step
        step = step * (max(sizes[dim], 1) if isinstance(sizes[dim], int) else sizes[dim])
    return strides
