"""Pieces that the forms of operators are made of: from a call to the arguments of another operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from exirkit.patterns.operators.arguments import canonical_arguments

Values = Mapping[str, Any]
Found = Iterator[tuple[dict[str, Any], tuple[Node, ...]]]
Reader = Callable[[Node], Found]
"""From a call to the arguments of the written operator, and further calls that are read."""
Screen = Callable[[Node], bool]
"""A cheap test of a call: False if a reader certainly reads nothing."""


@dataclass(frozen=True, slots=True, repr=False)
class Operand:
    """Where a reader finds an argument of the written operator.

    Attributes:
        name: What it is, and whose.
        find: Returns all values of which the reader may take one for the argument.
    """

    name: str
    find: Callable[[Node], Sequence[Any]]

    def __repr__(self) -> str:
        # Questions are ordered by it, so it is the same in every process.
        return self.name


@dataclass(frozen=True, slots=True)
class FormReader:
    """A reader, and what is known of it without reading: which calls it may read, and where their arguments are.

    Attributes:
        read: The reader.
        screen: The quick look; None if most calls are read.
        keeps: Arguments of the written operator that are those of the same name in the call.
        operands: Where other arguments of the written operator are found, by name.
        of: Name of the operator of whose results one is read; None if the call itself is.
    """

    read: Reader
    screen: Screen | None = None
    keeps: frozenset[str] = frozenset()
    operands: Mapping[str, Operand] = field(default_factory=dict, hash=False)
    of: str | None = None

    def __call__(self, node: Node) -> Found:
        """Read a call."""
        return self.read(node) if self.screen is None or self.screen(node) else iter(())


def same(node: Node) -> Found:
    """Read a call as one with the same arguments."""
    yield dict(canonical_arguments(node)), ()


def renaming(names: Mapping[str, str] | None = None, **added: Any) -> Reader:
    """Return a reader that takes arguments over, some under other names, and adds others."""

    def read(node: Node) -> Found:
        arguments = canonical_arguments(node)
        chosen = {new: arguments[old] for new, old in names.items()} if names is not None else dict(arguments)
        yield {**chosen, **added}, ()

    return read


def when(condition: Callable[[Values], bool], reader: Reader) -> Reader:
    """Return a reader of the calls whose arguments meet a condition."""

    def read(node: Node) -> Found:
        if condition(canonical_arguments(node)):
            yield from reader(node)

    return read


def recorded(value: Any) -> torch.Tensor | None:
    """Return the tensor that is recorded of a value, if it is one."""
    found = value.meta.get("val") if isinstance(value, Node) else value
    return found if isinstance(found, torch.Tensor) else None


def rank_of(value: Any) -> int:
    """Return the rank of a tensor, or -1 for what is none."""
    found = recorded(value)
    return found.dim() if found is not None else -1
