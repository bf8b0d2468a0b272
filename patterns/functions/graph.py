"""Builtins about the graph around a match and about what stands behind its inputs; the matcher gives the facts."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch.fx import Node

from exirkit.ir import module_paths
from exirkit.patterns.syntax.undecided import SYMBOLIC

from .words import recorded, tensor_facts, word


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


@word("param", needs_facts=True)
def is_parameter(facts: GraphFacts, x: Any) -> bool:
    """Whether a value is a parameter of the model."""
    return facts.is_kind(x, "param")


@word("buffer", needs_facts=True)
def is_buffer(facts: GraphFacts, x: Any) -> bool:
    """Whether a value is a buffer of the model."""
    return facts.is_kind(x, "buffer")


@word("mutable", needs_facts=True)
def is_mutable(facts: GraphFacts, x: Any) -> bool:
    """Whether the program writes to a value."""
    return facts.is_kind(x, "mutable")


@word("shared", needs_facts=True)
def is_shared(facts: GraphFacts, x: Any) -> bool:
    """Whether a stored tensor is used in several places."""
    return facts.is_kind(x, "shared")


@word("is_input", needs_facts=True)
def is_input(facts: GraphFacts, x: Any) -> bool:
    """Whether a value is an input that the caller gives."""
    return facts.is_kind(x, "input")


@word("is_output", needs_facts=True)
def is_output(facts: GraphFacts, x: Any) -> bool:
    """Whether the program returns a value."""
    return facts.is_kind(x, "output")


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


class Range:
    """What is known of a size: `lo`, `hi`."""

    def __init__(self, lo: Any, hi: Any) -> None:
        self.lo = lo
        self.hi = hi


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
    return any(fnmatch.fnmatchcase(str(path), pattern) for path, _ in _modules(x))


@word(needs_facts=True)
def module_type(facts: GraphFacts, x: Any, name: str) -> bool:
    """Whether a value comes from inside a module of this class."""
    kinds = (kind if isinstance(kind, str) else getattr(kind, "__name__", "") for _, kind in _modules(x))
    return any(kind.rpartition(".")[2] == name for kind in kinds)


def _modules(x: Any) -> list[tuple[str, Any]]:
    if not isinstance(x, Node):
        return []
    kinds = [kind for _, kind in (x.meta.get("nn_module_stack") or {}).values()]
    return list(zip(module_paths(x), kinds, strict=True))


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


@word(needs_facts=True)
def pure(facts: GraphFacts, x: Any) -> bool:
    """Whether a value comes from an operator without effects."""
    return facts.is_kind(x, "pure")


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
    return x is None or (isinstance(x, Node) and recorded(x) is None)


@word()
def is_tensor(x: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(recorded(x), torch.Tensor) and tensor_facts(x) is not None
