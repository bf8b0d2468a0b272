"""Which values are known while a program is lowered, and what they are: what follows from stored tensors alone."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node

from exirkit.ir import SubgraphEditor, is_module_program, is_pure, underlying

DEFAULT_BUDGET_NBYTES = 1 << 30
_STORED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class ConstantValues:
    """Constants of one program.

    Constant are parameters, buffers that the program does not write to, lifted tensors, and what pure and deterministic
    operators make of constants and literals. Values may share memory with what the program stores: they are not to be
    written to.

    Args:
        program: The program, which may be edited meanwhile.
        budget_nbytes: Values that are larger are not computed, and not constant.
    """

    def __init__(self, program: ExportedProgram, *, budget_nbytes: int = DEFAULT_BUDGET_NBYTES) -> None:
        self.program = program
        self.budget_nbytes = budget_nbytes
        self._known: dict[Node, tuple[Any, Any, bool]] = {}
        self._values: dict[Node, tuple[Any, Any, torch.Tensor]] = {}
        self._specs: dict[str, Any] = {}
        self._spec_count = -1
        self._written: frozenset[str] = frozenset()
        self._is_module = is_module_program(program)

    def is_constant(self, node: Node) -> bool:
        """Whether the value of a node is known."""
        known = self._answer(node)
        if known is not None:
            return known
        pending = [node]
        while pending:
            one = pending[-1]
            # Most values follow from an input of the program, mostly by their first argument.
            known, unknown = True, None
            for source in one._input_nodes:
                answer = self._answer(source)
                if answer is False:
                    known = False
                    break
                if answer is None and unknown is None:
                    unknown = source
            if known and unknown is not None:
                pending.append(unknown)
                continue
            self._known[one] = (one._args, one._kwargs, known and self._may_be_constant(one))
            pending.pop()
        return self._known[node][2]

    def value(self, node: Node) -> torch.Tensor | None:
        """Return the tensor behind a constant, or None if it is none or cannot be computed."""
        if not self.is_constant(node):
            return None
        found = self._computed(node)
        return found if isinstance(found, torch.Tensor) else None

    def is_parameter(self, node: Node) -> bool:
        """Whether a node is a parameter."""
        return self._kind(node) is InputKind.PARAMETER

    def is_buffer(self, node: Node) -> bool:
        """Whether a node is a buffer."""
        return self._kind(node) is InputKind.BUFFER

    def is_stored(self, node: Node) -> bool:
        """Whether the program stores the tensor."""
        return self._kind(node) in _STORED

    def is_mutable(self, node: Node) -> bool:
        """Whether the program writes to a buffer or input."""
        spec = self._spec(node)
        return spec is not None and (spec.target in self._written or node.name in self._written)

    def is_shared(self, node: Node) -> bool:
        """Whether several inputs stand for the same stored tensor."""
        tensor = self._stored(node)
        if tensor is None:
            return False
        pointer = tensor.untyped_storage().data_ptr()
        same = 0
        for spec in self.program.graph_signature.input_specs:
            other = self._tensor(spec) if spec.kind in _STORED else None
            same += other is not None and other.untyped_storage().data_ptr() == pointer
        return same > 1

    def forget(self, node: Node) -> None:
        """Take a node for new."""
        self._known.pop(node, None)
        self._values.pop(node, None)

    # Facts of single nodes

    def _answer(self, node: Node) -> bool | None:
        # FX replaces arguments as a whole. Its properties for them are slow, and this is asked very often.
        known = self._known.get(node)
        if known is None or known[0] is not node._args or known[1] is not node._kwargs:
            return None
        return known[2]

    def _may_be_constant(self, node: Node) -> bool:
        if node.op == "placeholder":
            return self._told(node) is not None or (self.is_stored(node) and not self.is_mutable(node))
        if node.op == "get_attr":
            return isinstance(self._attribute(node), torch.Tensor)
        if node.op != "call_function" or not is_pure(node):
            return False
        tags = getattr(underlying(node.target), "tags", ())
        if torch.Tag.nondeterministic_seeded in tags:
            return False
        value = node.meta.get("val")
        return all(self._is_small(one) for one in (value if isinstance(value, list | tuple) else (value,)))

    def _is_small(self, value: Any) -> bool:
        if not isinstance(value, torch.Tensor):
            return False
        if not all(isinstance(size, int) for size in value.shape):
            return False
        return math.prod(value.shape) * value.element_size() <= self.budget_nbytes

    def _computed(self, node: Node) -> Any:
        pending = [node]
        while pending:
            one = pending[-1]
            if self._value_of(one) is not None:
                pending.pop()
                continue
            waiting = [source for source in one.all_input_nodes if self._value_of(source) is None]
            if waiting:
                pending += waiting
                continue
            made = self._evaluated(one)
            if made is None:
                return None
            self._values[one] = (one.args, one.kwargs, made)
            pending.pop()
        return self._value_of(node)

    def _value_of(self, node: Node) -> Any:
        known = self._values.get(node)
        return known[2] if known is not None and known[0] is node.args and known[1] is node.kwargs else None

    def _evaluated(self, node: Node) -> Any:
        if node.op == "placeholder":
            told = self._told(node)
            return self._stored(node) if told is None else told
        if node.op == "get_attr":
            return self._attribute(node)
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self._value_of)
        try:
            with torch.no_grad():
                return node.target(*args, **kwargs)  # type: ignore[operator]
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            return None

    def _kind(self, node: Node) -> InputKind | None:
        spec = self._spec(node)
        return None if spec is None else spec.kind

    def _spec(self, node: Node) -> Any:
        if node.op != "placeholder":
            return None
        signature = self.program.graph_signature
        if self._spec_count != len(signature.input_specs) or node.name not in self._specs:
            self._specs = {getattr(spec.arg, "name", ""): spec for spec in signature.input_specs}
            self._spec_count = len(signature.input_specs)
            mutations = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
            self._written = frozenset(str(spec.target) for spec in signature.output_specs if spec.kind in mutations)
        return self._specs.get(node.name)

    def _stored(self, node: Node) -> torch.Tensor | None:
        spec = self._spec(node)
        return None if spec is None or spec.kind not in _STORED else self._tensor(spec)

    def _told(self, node: Node) -> torch.Tensor | None:
        """Return what a graph on its own tells of an input: recorded values of lifted constants bear their tensor."""
        told = getattr(node.meta.get("val"), "constant", None) if self._is_module else None
        is_real = isinstance(told, torch.Tensor) and not isinstance(told, FakeTensor)
        return told if is_real else None

    def _tensor(self, spec: Any) -> torch.Tensor | None:
        found = self.program.state_dict.get(spec.target)
        found = self.program.constants.get(spec.target) if found is None else found
        return found if isinstance(found, torch.Tensor) else None

    def _attribute(self, node: Node) -> Any:
        module: Any = node.graph.owning_module
        found: Any = module if isinstance(module, GraphModule) else None
        for part in str(node.target).split("."):
            found = getattr(found, part, None)
        return found


class BodyConstants(ConstantValues):
    """Constants of a body of control flow: what it is handed is known if it is in the graph around it.

    Args:
        editor: Editor of the body.
        outer: Constants of the graph that calls it.
    """

    def __init__(self, editor: SubgraphEditor, outer: ConstantValues) -> None:
        super().__init__(editor.program, budget_nbytes=outer.budget_nbytes)
        self.editor = editor
        self.outer = outer

    def is_shared(self, node: Node) -> bool:
        """Whether several inputs stand for the same stored tensor."""
        operand = self._operand(node)
        return operand is not None and self.outer.is_shared(operand)

    def is_mutable(self, node: Node) -> bool:
        """Whether the program writes to a buffer or input."""
        operand = self._operand(node)
        return operand is not None and self.outer.is_mutable(operand)

    def _may_be_constant(self, node: Node) -> bool:
        if node.op != "placeholder":
            return super()._may_be_constant(node)
        operand = self._operand(node)
        return operand is not None and self.outer.is_constant(operand)

    def _kind(self, node: Node) -> InputKind | None:
        operand = self._operand(node)
        return None if operand is None else self.outer._kind(operand)

    def _stored(self, node: Node) -> torch.Tensor | None:
        operand = self._operand(node)
        return None if operand is None else self.outer.value(operand)

    def _operand(self, node: Node) -> Node | None:
        return self.editor.operand_of(node) if node.op == "placeholder" else None
