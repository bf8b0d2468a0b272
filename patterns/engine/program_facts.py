"""What guards may ask, answered from a program that is being edited."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import GraphEditor, SubgraphEditor, is_pure, underlying
from exirkit.patterns.operators.arguments import canonical_arguments
from exirkit.patterns.operators.seen_through import is_remark
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.operators.targets import Target

from .constant_cones import BodyConstants, ConstantValues

RULE_KEY = "rewritten_by"
"""Entry of `node.meta`: ids of the rules that made a node, the first one first."""


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
        match kind:
            case "const":
                return constants.is_constant(x)
            case "param":
                return constants.is_parameter(x)
            case "buffer":
                return constants.is_buffer(x)
            case "mutable":
                return constants.is_mutable(x)
            case "shared":
                return constants.is_shared(x) or len(x.users) > 1
            case "output":
                return any(user.op == "output" for user in x.users)
            case "pure":
                return is_pure(x)
            case "input":
                return x.op == "placeholder" and not (constants.is_parameter(x) or constants.is_buffer(x)
                                                      or constants.is_constant(x))  # fmt: skip
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
            # Taking one result of several is no call.
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
