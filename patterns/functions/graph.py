"""Builtins about the graph around a match: users, constants, orders in memory, quantized values."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch.fx import Node

from exirkit.ir import dim_order_from_stride, module_paths, module_types, value_of
from exirkit.patterns.functions.ranges import Range
from exirkit.patterns.functions.words import WORDS, Word, tensor_facts, word
from exirkit.patterns.syntax.expressions import SYMBOLIC, compare


class GraphFacts(Protocol):
    """What guards may ask about a graph.

    Trials of single rules answer as a graph would that was built for the rule; the engine answers from the program.
    """

    def is_constant(self, x: Any) -> bool:
        """Whether a value is known while the program is lowered."""
        ...

    def value(self, x: Any) -> torch.Tensor | None:
        """The tensor behind a constant."""
        ...

    def users(self, x: Any) -> int:
        """How many nodes use a value."""
        ...

    def is_kind(self, x: Any, kind: str) -> bool:
        """Whether a value is a parameter, a buffer, an output ..."""
        ...

    def operator_name(self, x: Any) -> str:
        """Name of the operator that makes a value."""
        ...

    def call_behind(self, x: Any) -> tuple[str, Mapping[str, Any]]:
        """Name of the operator that makes a value, and its arguments by name."""
        ...

    def distance(self, a: Any, b: Any) -> int | None:
        """Number of calls on the shortest way from one value to another."""
        ...

    def is_written_between(self, a: Any, b: Any) -> bool:
        """Whether something between two values writes to a tensor."""
        ...

    def range_of(self, size: Any) -> tuple[Any, Any]:
        """Smallest and largest value of a size."""
        ...

    def value_range(self, x: Any) -> Range:
        """What is known of the elements of a tensor."""
        ...

    def grid(self, x: Any) -> Any:
        """With which parameters the elements of a tensor are quantised without a loss."""
        ...

    def elements(self, x: Any) -> list[Any]:
        """The elements of a stored tensor of one dim."""
        ...

    def target_has(self, capability: str) -> bool:
        """Whether the target can do something."""
        ...

    def option(self, name: str) -> Any:
        """An option of the pipeline."""
        ...

    def is_legal(self, operator: str) -> bool:
        """Whether the target has an operator."""
        ...

    def rules_behind(self, x: Any) -> tuple[str, ...]:
        """Ids of the rules that made a value."""
        ...


@word(needs_facts=True)
def users(facts: GraphFacts, x: Any) -> int:
    """How many nodes use a value; an output of the program counts as one."""
    return facts.users(x)


@word("const", needs_facts=True)
def is_constant(facts: GraphFacts, x: Any) -> bool:
    """Whether a value is known while the program is lowered."""
    return not isinstance(x, Node) or facts.is_constant(x)


def _kind(name: str, kind: str, doc: str) -> None:
    WORDS[name] = Word(name, lambda facts, x: facts.is_kind(x, kind), True, doc)


_kind("param", "param", "Whether a value is a parameter of the model.")
_kind("buffer", "buffer", "Whether a value is a buffer of the model.")
_kind("mutable", "mutable", "Whether the program writes to a value.")
_kind("shared", "shared", "Whether a stored tensor is used in several places.")
_kind("is_stored", "stored", "Whether the program stores a value, so that it is not computed from what is stored.")
_kind("is_input", "input", "Whether a value is an input that the caller gives.")
_kind("is_output", "output", "Whether the program returns a value.")
_kind("pure", "pure", "Whether a value comes from an operator without effects.")


@word("op", needs_facts=True)
def operator_name(facts: GraphFacts, x: Any) -> str:
    """Name of the operator that makes a value: `aten.add.Tensor`."""
    return facts.operator_name(x)


@word(needs_facts=True)
def produced_by(facts: GraphFacts, x: Any, pattern: str) -> bool:
    """Whether the operator that makes a value has a name like this: `aten.cat.*`."""
    return fnmatch.fnmatchcase(facts.operator_name(x), pattern)


@word(needs_facts=True)
def consumed_by(facts: GraphFacts, x: Any, pattern: str) -> bool:
    """Whether every user of a value has an operator like this."""
    if not isinstance(x, Node):
        return True
    return bool(x.users) and all(fnmatch.fnmatchcase(facts.operator_name(user), pattern) for user in x.users)


@word(needs_facts=True)
def distance(facts: GraphFacts, a: Any, b: Any) -> int:
    """Number of calls on the shortest way from a to b."""
    found = facts.distance(a, b)
    if found is None:
        raise TypeError("nothing leads from the one value to the other")
    return found


@word(needs_facts=True)
def no_mutation_between(facts: GraphFacts, a: Any, b: Any) -> bool:
    """Whether nothing between two values writes to a tensor."""
    return not facts.is_written_between(a, b)


@word(needs_facts=True)
def range_of(facts: GraphFacts, size: Any) -> Range:
    """Smallest and largest value of a size: `range_of(N).hi <= 1024`."""
    if isinstance(size, SYMBOLIC):
        return Range(*facts.range_of(size))
    return Range(size, size)


@word(needs_facts=True)
def value(facts: GraphFacts, x: Any) -> Any:
    """The number in a constant of one element, or the constant itself."""
    found = facts.value(x) if isinstance(x, Node) else x
    if found is None:
        raise TypeError("the value is not known while the program is lowered")
    return found.item() if isinstance(found, torch.Tensor) and found.numel() == 1 else found


@word(needs_facts=True)
def in_range(facts: GraphFacts, x: Any, lo: Any, hi: Any) -> bool:
    """Whether every element of a constant is between two numbers."""
    found = facts.value(x) if isinstance(x, Node) else x
    if isinstance(found, int | float):
        return bool(lo <= found <= hi)
    return isinstance(found, torch.Tensor) and bool(((found >= lo) & (found <= hi)).all())


@word(needs_facts=True)
def in_module(facts: GraphFacts, x: Any, pattern: str) -> bool:
    """Whether a value comes from a module with a path like this: `encoder.*`."""
    return isinstance(x, Node) and any(fnmatch.fnmatchcase(path, pattern) for path in module_paths(x))


@word(needs_facts=True)
def module_type(facts: GraphFacts, x: Any, name: str) -> bool:
    """Whether a value comes from inside a module of this class."""
    return isinstance(x, Node) and any(kind.rpartition(".")[2] == name for kind in module_types(x))


@word(needs_facts=True)
def from_rule(facts: GraphFacts, x: Any, rule: str) -> bool:
    """Whether a rule made a value."""
    return rule in facts.rules_behind(x)


@word(needs_facts=True)
def tag(facts: GraphFacts, x: Any, key: str) -> Any:
    """An entry of the metadata of a node, or none."""
    return x.meta.get(key) if isinstance(x, Node) else None


@word(needs_facts=True)
def option(facts: GraphFacts, name: str) -> Any:
    """An option that the pipeline sets for the rules."""
    return facts.option(name)


@word(needs_facts=True)
def op_legal(facts: GraphFacts, operator: str) -> bool:
    """Whether the dialect, or the target, has an operator."""
    return facts.is_legal(operator)


@word(needs_facts=True)
def target_has(facts: GraphFacts, capability: str) -> bool:
    """Whether the target can do something; also written `target.has(...)`."""
    return facts.target_has(capability)


@word()
def same_graph(*xs: Any) -> bool:
    """Whether values are in one graph."""
    graphs = {id(x.graph) for x in xs if isinstance(x, Node)}
    return len(graphs) <= 1


@word()
def aliases(a: Any, b: Any) -> bool:
    """Whether two names stand for one value."""
    return a is b


@word()
def is_none(x: Any) -> bool:
    """Whether an optional value is absent."""
    return x is None or (isinstance(x, Node) and value_of(x) is None)


@word()
def is_tensor(x: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value_of(x), torch.Tensor) and tensor_facts(x) is not None


# Words about the order of a tensor's elements in memory


@word()
def stride(x: Any) -> list[Any]:
    """Steps in memory between neighbours, per dim."""
    return list(tensor_facts(x).stride())


@word()
def dim_order(x: Any) -> list[int]:
    """Dims from the slowest to the fastest in memory."""
    return list(dim_order_from_stride(tensor_facts(x).stride()))


@word()
def is_contiguous(x: Any) -> bool:
    """Whether elements stand row by row without gaps."""
    return bool(compare("==", stride(x), strides_for(x, torch.contiguous_format)) is True)


@word()
def channels_last(x: Any) -> bool:
    """Whether elements of a tensor of rank 4 stand with channels innermost."""
    found = tensor_facts(x)
    return found.dim() == 4 and compare("==", stride(x), strides_for(x, torch.channels_last)) is True


@word()
def strides_for(x: Any, memory_format: torch.memory_format) -> list[Any]:
    """Strides that a tensor of these sizes has in a memory format."""
    found = tensor_facts(x)
    sizes = list(found.shape)
    if memory_format is torch.preserve_format:
        return list(found.stride())
    order = list(range(found.dim()))
    if memory_format is torch.channels_last:
        if found.dim() != 4:
            raise ValueError("channels_last is for tensors of rank 4")
        order = [0, 2, 3, 1]
    elif memory_format is torch.channels_last_3d:
        if found.dim() != 5:
            raise ValueError("channels_last_3d is for tensors of rank 5")
        order = [0, 2, 3, 4, 1]
    made: list[Any] = [0] * found.dim()
    step: Any = 1
    for dim in reversed(order):
        made[dim] = step
        step = step * (sizes[dim] if not _is_zero(sizes[dim]) else 1)
    return made


def _is_zero(size: Any) -> bool:
    return compare("==", size, 0) is True


# Words about quantised values: what the operator that makes one says of scale, zero point and limits


_NAMESPACE = "quantized_decomposed."
_SCALES, _ZERO_POINTS = ("scale", "scales"), ("zero_point", "zero_points")


def _quantization(facts: GraphFacts, x: Any) -> tuple[str, Mapping[str, Any]]:
    name, arguments = facts.call_behind(x)
    if not name.startswith(_NAMESPACE) or "quantize" not in name:
        raise TypeError(f"a value that is quantised or dequantised is needed here, not one of {name or 'an input'}")
    return name, arguments


@word(needs_facts=True)
def qparams(facts: GraphFacts, x: Any) -> list[Any]:
    """Scale, zero point, least and greatest integer of a value that is quantised or dequantised."""
    _, arguments = _quantization(facts, x)
    scale = next((arguments[key] for key in _SCALES if key in arguments), None)
    zero_point = next((arguments[key] for key in _ZERO_POINTS if key in arguments), None)
    return [scale, zero_point, arguments.get("quant_min"), arguments.get("quant_max")]


@word(needs_facts=True)
def same_q(facts: GraphFacts, a: Any, b: Any) -> Any:
    """Whether two values are quantised alike: kind, scale, zero point, limits and axis."""
    (first, _), (second, _) = _quantization(facts, a), _quantization(facts, b)
    if first.rpartition("quantize_")[2] != second.rpartition("quantize_")[2]:
        return False
    alike = [
        one is other if isinstance(one, Node) or isinstance(other, Node) else compare("==", one, other)
        for one, other in zip([*qparams(facts, a), _axis(facts, a)], [*qparams(facts, b), _axis(facts, b)], strict=True)
    ]
    return all(one is True for one in alike)


def _axis(facts: GraphFacts, x: Any) -> Any:
    return _quantization(facts, x)[1].get("axis")


@word(needs_facts=True)
def per_channel(facts: GraphFacts, x: Any) -> bool:
    """Whether a value is quantised or dequantised channel by channel."""
    return "per_channel" in _quantization(facts, x)[0]


@word(needs_facts=True)
def q_range(facts: GraphFacts, x: Any) -> list[Any]:
    """Least and greatest integer of a value that is quantised or dequantised."""
    return qparams(facts, x)[2:]
