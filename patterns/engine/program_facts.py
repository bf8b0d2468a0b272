"""What guards may ask, answered from a program that is being edited."""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from exirkit.ir import (
    ATTRIBUTE_KEYS,
    MUTATION_KINDS,
    STORED_KINDS,
    FakeTensor,
    GraphEditor,
    ProgramInterface,
    SubgraphEditor,
    attribute_of,
    control_flow_call,
    is_external_constant,
    is_module_program,
    is_pure,
    memory_key,
    stored_tensor,
    underlying,
    value_of,
    widens,
)
from exirkit.patterns.functions.grids import Grid, listed_elements
from exirkit.patterns.functions.ranges import Range, range_of_elements, widest
from exirkit.patterns.operators.arguments import canonical_arguments, is_remark
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.operators.targets import Target
from exirkit.patterns.propagation.fixpoint import InferredValues
from exirkit.patterns.propagation.loading import ELEMENT_RANGES, GRIDS, load_inference

# Which values are known while a program is lowered, and what they are

# Of the stored tensors that the signature names so, values change between runs: training writes parameters.
_CHANGING = MUTATION_KINDS | {OutputKind.GRADIENT_TO_PARAMETER}

DEFAULT_BUDGET_NBYTES = 1 << 30


class ConstantValues:
    """Constants of one program.

    Constant are parameters, buffers that the program does not write to, lifted tensors (unless these are to lie in data
    files), and what pure and deterministic operators make of constants and literals, other than wide numbers of narrow
    integers: a rule that stored these would undo quantization. Values may share memory with what the program stores:
    they are not to be written to.

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
        return self._kind(node) in STORED_KINDS

    def is_external(self, node: Node) -> bool:
        """Whether the tensor is to lie in a data file, so that its value is unknown."""
        return is_external_constant(node)

    def stored_as(self, node: Node) -> tuple[InputKind, bool]:
        """Return how the program stores a tensor: kind of input, and whether it is part of the state dict."""
        spec = self._spec(node)
        return (InputKind.CONSTANT_TENSOR, True) if spec is None else (spec.kind, spec.persistent is not False)

    def is_returned(self, node: Node) -> bool:
        """Whether the program gives a value to its caller, and does nothing else with it at its end."""
        if self._is_module or isinstance(self, BodyConstants):
            return False
        interface = ProgramInterface.of(self.program)
        kept = [value for _, value, _ in interface.mutations]
        return any(one is node for one in interface.user_results) and all(one is not node for one in kept)

    def is_mutable(self, node: Node) -> bool:
        """Whether the program writes to a buffer or input."""
        spec = self._spec(node)
        return spec is not None and (spec.target in self._written or node.name in self._written)

    def is_shared(self, node: Node) -> bool:
        """Whether several inputs stand for the same stored tensor."""
        tensor = self._stored(node)
        if tensor is None:
            return False
        key = memory_key(tensor)
        others = (stored_tensor(self.program, spec) for spec in self.program.graph_signature.input_specs)
        return sum(one is not None and memory_key(one) == key for one in others) > 1

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
            if self.is_external(node):
                return False
            return self._told(node) is not None or (self.is_stored(node) and not self.is_mutable(node))
        if node.op == "get_attr":
            return isinstance(attribute_of(node), torch.Tensor)
        if node.op != "call_function" or not is_pure(node) or widens(node) or ATTRIBUTE_KEYS in node.meta:
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
            return attribute_of(node)
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
            # Rules that store tensors let this be done often: no call for each input.
            self._specs = {spec.arg.name: spec for spec in signature.input_specs}
            self._spec_count = len(signature.input_specs)
            self._written = frozenset(str(spec.target) for spec in signature.output_specs if spec.kind in _CHANGING)
        return self._specs.get(node.name)

    def _stored(self, node: Node) -> torch.Tensor | None:
        return stored_tensor(self.program, self._spec(node))

    def _told(self, node: Node) -> torch.Tensor | None:
        """Return what a graph on its own tells of an input: recorded values of lifted constants bear their tensor."""
        told = getattr(node.meta.get("val"), "constant", None) if self._is_module else None
        is_real = isinstance(told, torch.Tensor) and not isinstance(told, FakeTensor)
        return told if is_real else None


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

    def is_external(self, node: Node) -> bool:
        """Whether the tensor is to lie in a data file, so that its value is unknown."""
        operand = self._operand(node)
        return operand is not None and self.outer.is_external(operand)

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


RULE_KEY = "rewritten_by"
"""Entry of `node.meta`: ids of the rules that made a node, the first one first."""


_OF_STORED: dict[str, Callable[[ConstantValues, Node], bool]] = {
    "const": lambda constants, node: constants.is_constant(node),
    # Rules compute with the values of these.
    "param": lambda constants, node: constants.is_parameter(node) and not constants.is_external(node),
    "buffer": lambda constants, node: constants.is_buffer(node) and not constants.is_external(node),
    "stored": lambda constants, node: constants.is_stored(node),
    "returned": lambda constants, node: constants.is_returned(node),
    "mutable": lambda constants, node: constants.is_mutable(node),
}
"""Kinds of values about which the constants of the program say all."""


class ProgramFacts:
    """Facts of one program.

    Args:
        editor: Editor of the program.
        options: Options that rules may ask for.
        target: Description of the target, for rules that choose by what it has.
        outer: Facts of the graph that runs this one, if this is a body of control flow.
    """

    def __init__(
        self,
        editor: GraphEditor,
        options: Mapping[str, Any] | None = None,
        target: Target | None = None,
        outer: ProgramFacts | None = None,
    ) -> None:
        self.editor = editor
        if isinstance(editor, SubgraphEditor) and outer is not None:
            self.constants: ConstantValues = BodyConstants(editor, outer.constants)
        else:
            self.constants = ConstantValues(editor.program)
        self.options = dict(options or {})
        self.target = target
        self._outer = outer

    def is_constant(self, x: Any) -> bool:
        """Whether a value is known while the program is lowered."""
        return not isinstance(x, Node) or self.constants.is_constant(x)

    def value(self, x: Any) -> torch.Tensor | None:
        """Return the tensor behind a constant."""
        return self.constants.value(x) if isinstance(x, Node) and self.constants.is_constant(x) else None

    def users(self, x: Any) -> int:
        """Return how many nodes use a value; the results of a call with several count each."""
        return sum(not is_remark(user) for user in x.users) if isinstance(x, Node) else 1

    def is_kind(self, x: Any, kind: str) -> bool:
        """Whether a node is a parameter, a buffer, an input, an output ..."""
        if not isinstance(x, Node):
            return False
        constants = self.constants
        asked = _OF_STORED.get(kind)
        if asked is not None:
            return asked(constants, x)
        match kind:
            case "shared":
                return constants.is_shared(x) or len(x.users) > 1
            case "output":
                return any(user.op == "output" for user in x.users)
            case "pure":
                return is_pure(x)
            case "input":
                known = (constants.is_parameter, constants.is_buffer, constants.is_constant, constants.is_external)
                return x.op == "placeholder" and not any(answer(x) for answer in known)
        raise ValueError(f"there is no kind {kind!r} of values")

    def operator_name(self, x: Any) -> str:
        """Return the name of the operator that makes a value, or what the node is."""
        if not isinstance(x, Node):
            return ""
        target = underlying(x.target)
        return name_of(target) if hasattr(target, "_schema") else (x.op if x.op != "call_function" else str(x.target))

    def call_behind(self, x: Any) -> tuple[str, Mapping[str, Any]]:
        """Return the operator that makes a value, and its arguments by name."""
        if not isinstance(x, Node) or x.op != "call_function" or not hasattr(underlying(x.target), "_schema"):
            return self.operator_name(x), {}
        return self.operator_name(x), dict(canonical_arguments(x))

    def distance(self, a: Any, b: Any) -> int | None:
        """Return how many calls are on the shortest way from one value to another."""
        if not isinstance(a, Node) or not isinstance(b, Node):
            return None
        known, waiting = {b: 0}, deque([b])
        while waiting:
            node = waiting.popleft()
            if node is a:
                return known[node]
            # Taking one result of several is not a call.
            steps = known[node] + (node.target is not operator.getitem)
            for one in node.all_input_nodes:
                if one not in known:
                    known[one] = steps
                    waiting.append(one) if steps > known[node] else waiting.appendleft(one)
        return None

    def is_written_between(self, a: Any, b: Any) -> bool:
        """Return whether something between two values writes to a tensor."""
        if not isinstance(a, Node) or not isinstance(b, Node):
            return False
        first, last = (a, b) if a < b else (b, a)
        node = first.next
        while node is not last:
            schema = getattr(underlying(node.target), "_schema", None) if node.op == "call_function" else None
            if schema is not None and schema.is_mutable:
                return True
            node = node.next
        return False

    def range_of(self, size: Any) -> tuple[Any, Any]:
        """Return what is known of a symbolic size."""
        env = self.editor.fake_mode.shape_env
        if env is None:
            return 0, float("inf")
        known = env.bound_sympy(size.node.expr)
        return tuple(
            int(end) if end.is_number and end.is_finite else float("inf") for end in (known.lower, known.upper)
        )  # type: ignore[return-value]

    def value_range(self, x: Any) -> Range:
        """Return between which numbers the elements of a tensor lie."""
        if isinstance(x, Node):
            found = self._ranges.of(x)
            return found if isinstance(found, Range) else widest(value_of(x).dtype)
        return range_of_elements(x)

    def grid(self, x: Any) -> Any:
        """Return with which parameters the elements of a tensor are quantised without a loss.

        Raises:
            TypeError: None are known.
        """
        found = self._grids.of(x) if isinstance(x, Node) else None
        if not isinstance(found, Grid):
            raise TypeError("no grid is known of the tensor")
        return found

    def elements(self, x: Any) -> list[Any]:
        """Return the elements of a stored tensor of one dim.

        Raises:
            TypeError: They are not known.
        """
        return listed_elements(self.value(x) if isinstance(x, Node) else x)

    @cached_property
    def _ranges(self) -> InferredValues:
        return self._inferred(ELEMENT_RANGES)

    @cached_property
    def _grids(self) -> InferredValues:
        return self._inferred(GRIDS)

    def _inferred(self, name: str) -> InferredValues:
        """Return what is known of the graph; of a body of control flow, what its call hands it."""
        inference = load_inference(name)
        if self._outer is None:
            return InferredValues(inference, stored=self._stored)
        around = self._outer._ranges if name == ELEMENT_RANGES else self._outer._grids
        bodies = [
            body
            for node in self._outer.editor.graph.nodes
            if control_flow_call(node) is not None
            for body in around.bodies(node)
            if body.graph is self.editor.graph
        ]
        return bodies[0] if len(bodies) == 1 else InferredValues(inference)

    def _stored(self, node: Node) -> torch.Tensor | None:
        return self.constants.value(node) if self.constants.is_stored(node) else None

    def target_has(self, capability: str) -> bool:
        """Whether the target has a kernel or a feature."""
        return self.target is not None and self.target.has(capability)

    def option(self, name: str) -> Any:
        """Return an option, or None."""
        return self.options.get(name)

    def is_legal(self, operator: str) -> bool:
        """Whether the target has an operator; everything is legal where no target is described."""
        return self.target is None or self.target.has(operator)

    def rules_behind(self, x: Any) -> tuple[str, ...]:
        """Return the rules that made a node."""
        return tuple(x.meta.get(RULE_KEY, ())) if isinstance(x, Node) else ()
