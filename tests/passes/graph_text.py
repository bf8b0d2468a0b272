"""Exported programs of every dialect as text, in the form of generated programs, with the type of each value.

A value with a spec also shows it: `@2 [4] bound const` is the second piece of memory, its largest sizes and what else
is known; `@3 of 2` is the same memory under another name.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.fuzz.programs.tensor_types import DTYPES
from exirkit.ir import DefinedOperator, TensorSpec, dim_order_from_stride

_DTYPES = {dtype: name for name, dtype in DTYPES.items()}
# More elements say less than the type.
_MOST_ELEMENTS = 8


def graph_text(program: ExportedProgram) -> str:
    """Return what passes may change: stored tensors, calls with the types of their results, specs, what is returned."""
    return _Printer(program).text()


class _Printer:
    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.specs: dict[int, int] = {}
        self.symbols: dict[str, str] = {}

    def text(self) -> str:
        signature = self.program.graph_signature
        tensors: dict[str, Any] = {**self.program.state_dict, **self.program.constants}
        lines, inputs = [], []
        nodes = self.program.graph.find_nodes(op="placeholder")
        for node, spec in zip(nodes, signature.input_specs, strict=True):
            if spec.target is None:
                inputs.append(self.declared(node))
            else:
                kind = spec.kind.name.lower().removesuffix("_tensor")
                tensor = tensors[spec.target]
                lines.append(f"{node.name}{self.spec_of(node)} = {kind}({self.type(tensor)}{_elements(tensor)})")
        lines.append(f"def forward({', '.join(inputs)}):")
        lines += [f"    {line}" for line in self.steps(self.program.graph_module)]
        results: Any = self.program.graph.output_node().args[0]
        returned = []
        for value, one in zip(results, signature.output_specs, strict=True):
            if one.target is None:
                returned.append(_argument(value))
            else:
                lines.append(f"    update({one.target}, {_argument(value)})")
        lines.append(f"    return {', '.join(returned)}".rstrip())
        return "\n".join(lines) + "\n"

    def steps(self, module: GraphModule) -> Iterator[str]:
        for node in module.graph.nodes:
            if node.op == "get_attr":
                body = getattr(module, str(node.target))
                given = ", ".join(self.declared(one) for one in body.graph.find_nodes(op="placeholder"))
                yield f"def {node.name}({given}):"
                yield from (f"    {line}" for line in self.steps(body))
                returned = body.graph.output_node().args[0]
                returned = returned if isinstance(returned, list | tuple) else [returned]
                yield f"    return {', '.join(map(_argument, returned))}"
            elif node.op == "call_function":
                yield f"{self.declared(node)} = {_call(node)}"

    def declared(self, node: Node) -> str:
        return f"{node.name}: {self.type(node.meta['val'])}{self.spec_of(node)}"

    def type(self, value: Any) -> str:
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self.type, value))}]"
        if not isinstance(value, torch.Tensor):
            return f'"{self.named(str(value))}"'
        layout = dim_order_from_stride(value.stride(), value.shape)
        order = "" if layout == list(range(value.dim())) else f" order {''.join(map(str, layout))}"
        return f'"{_DTYPES[value.dtype]}[{self.named(", ".join(map(str, value.shape)))}]{order}"'

    def named(self, expression: str) -> str:
        """Number symbols by their first use; the names that torch gives them depend on its version."""
        for name in re.findall(r"\bs\d+\b", expression):
            self.symbols.setdefault(name, f"s{len(self.symbols)}")
        return re.sub(r"\bs\d+\b", lambda found: self.symbols[found[0]], expression)

    def spec_of(self, node: Node) -> str:
        spec = node.meta.get("spec")
        return "" if spec is None else f" {self.spec(spec)}"

    def spec(self, spec: Any) -> str:
        if isinstance(spec, list | tuple):
            return f"[{', '.join(map(self.spec, spec))}]"
        if not isinstance(spec, TensorSpec):
            return str(spec)
        facts = [spec.shape_dynamism.name.lower().removeprefix("dynamic_")] if spec.shape_dynamism.value else []
        facts += ["const"] * spec.const
        if list(spec.dim_order) != list(range(len(spec.shape))):
            facts.append(f"order {''.join(map(str, spec.dim_order))}")
        if spec.storage_base is not None:
            facts.append(f"of {self.number(spec.storage_base)}")
        return " ".join([f"@{self.number(spec)}", str(list(spec.shape)), *facts])

    def number(self, spec: TensorSpec) -> int:
        return self.specs.setdefault(id(spec), len(self.specs) + 1)


def _call(node: Node) -> str:
    if node.target is operator.getitem:
        return f"{_argument(node.args[0])}[{node.args[1]}]"
    named = [f"{name}={_argument(value)}" for name, value in node.kwargs.items()]
    return f"{_name(node.target)}({', '.join([*map(_argument, node.args), *named])})"


def _name(target: Any) -> str:
    if isinstance(target, DefinedOperator):
        return target.name().replace("::", ".")
    return str(target) if hasattr(target, "_schema") else str(getattr(target, "__name__", target))


def _argument(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_argument, value))}]"
    return str(value) if isinstance(value, Node | torch.dtype | torch.device) else repr(value)


def _elements(tensor: torch.Tensor) -> str:
    if not 0 < math.prod(tensor.shape) <= _MOST_ELEMENTS:
        return ""
    return f", {tensor.flatten().tolist()}"
