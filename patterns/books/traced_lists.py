"""Lists of tensors in traces: what is computed alike from every element is a comprehension of the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from exirkit.ir import Diagnostic, UsageError, same_argument

if TYPE_CHECKING:
    from exirkit.patterns.books.traces import Writer


@dataclass(frozen=True)
class Element:
    """An element of a list that a traced function is given.

    Attributes:
        text: Name of the list.
        index: Place of the element.
        count: Length of the list in the trace.
    """

    text: str
    index: int
    count: int

    @property
    def alone(self) -> str:
        """The element as an expression of its own."""
        return f"{self.text}[{self.index}]"


def list_example(name: str, example: Any) -> Sequence[torch.Tensor] | None:
    """Return the tensors of an example that is a list of them; None for other examples.

    Raises:
        UsageError: EK256, they are fewer than two, or not of one dtype and shape.
    """
    if not isinstance(example, list | tuple) or not any(isinstance(one, torch.Tensor) for one in example):
        return None
    if len(example) < 2 or any(
        not isinstance(one, torch.Tensor) or one.dtype != example[0].dtype or one.shape != example[0].shape
        for one in example
    ):
        raise UsageError(
            Diagnostic(
                code="EK256",
                message=f"the example {name} cannot stand for a list of tensors",
                expected="two tensors or more, of one dtype and shape",
            )
        )
    return example


class TracedLists:
    """Writes what one graph computes from elements of lists.

    Args:
        writer: Writer of the graph.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._elements: dict[Node, Element] = {}
        self._dependent: set[Node] = set()

    def add(self, node: Node, element: Element) -> None:
        """Note that an input of the graph is an element."""
        self._elements[node] = element
        self._dependent.add(node)

    def defers(self, node: Node) -> bool:
        """Whether a call is written where its result is used, since it computes something from one element.

        What takes whole lists does not depend on single elements.
        """
        if node in self._dependent:
            return True
        is_dependent = any(
            any(one in self._dependent for one in argument) and self._runs(argument) is None
            if isinstance(argument, list | tuple)
            else argument in self._dependent
            for argument in (*node.args, *node.kwargs.values())
            if isinstance(argument, list | tuple | Node)
        )
        if is_dependent:
            self._dependent.add(node)
        return is_dependent

    def text_of_list(self, values: Sequence[Any]) -> str | None:
        """Return the text of a list that is made of elements; None if no value depends on one."""
        if not any(isinstance(one, Node) and one in self._dependent for one in values):
            return None
        runs = self._runs(values)
        if runs is None:
            return f"[{', '.join(self._writer.text_of(one) for one in values)}]"
        texts = [
            self._comprehension(run) if run[0] in self._dependent else self._writer.text_of(run[0]) for run in runs
        ]
        if len(runs) == 1:
            return texts[0] if texts[0].isidentifier() else f"[{texts[0]}]"
        spread = [
            (f"*{text}" if text.isidentifier() else f"*[{text}]") if run[0] in self._dependent else text
            for run, text in zip(runs, texts, strict=True)
        ]
        return f"[{', '.join(spread)}]"

    def text_of(self, node: Node) -> str | None:
        """Return the text of what is computed from one element, which stands alone; None for other nodes.

        Raises:
            UsageError: EK266, it is in a pattern, which cannot single out an element.
        """
        if node not in self._dependent:
            return None
        used = self._used(node)
        if self._writer.part == "match":
            raise self._writer.unusable(
                f"it does not treat all elements of {used[0].text} alike",
                "a list whose elements are all of one form, in their order, is a pattern",
            )
        return self._inline(node, {one: one.alone for one in used})

    def _runs(self, values: Sequence[Any]) -> list[list[Node]] | None:
        """Divide values into whole lists, treated alike, and single values that depend on no element."""
        runs: list[list[Node]] = []
        pending = list(values)
        while pending:
            if not isinstance(pending[0], Node) or pending[0] not in self._dependent:
                runs.append([pending.pop(0)])
                continue
            run = pending[: self._used(pending[0])[0].count]
            if not self._is_whole(run):
                return None
            runs.append(run)
            del pending[: len(run)]
        return runs

    def _is_whole(self, run: Sequence[Any]) -> bool:
        first = self._used(run[0])
        return all(one.index == 0 and one.count == len(run) for one in first) and all(
            self._is_alike(run[0], other, index) for index, other in enumerate(run)
        )

    def _is_alike(self, first: Any, other: Any, index: int) -> bool:
        """Whether a value is computed from elements at one place as another one is from the first elements."""
        if isinstance(first, list | tuple) and isinstance(other, list | tuple):
            return len(first) == len(other) and all(
                self._is_alike(one, its, index) for one, its in zip(first, other, strict=True)
            )
        if not isinstance(first, Node) or not isinstance(other, Node):
            return same_argument(first, other)
        if first in self._elements and other in self._elements:
            one, its = self._elements[first], self._elements[other]
            return one.text == its.text and its.index == index
        if first not in self._dependent:
            is_number = self._writer.is_number(first) and self._writer.is_number(other)
            return first is other or (is_number and self._is_same_number(first, other))
        return (
            first.target == other.target
            and first.kwargs.keys() == other.kwargs.keys()
            and self._is_alike(first.args, other.args, index)
            and all(self._is_alike(one, other.kwargs[key], index) for key, one in first.kwargs.items())
        )

    def _is_same_number(self, first: Node, other: Node) -> bool:
        one, its = self._writer.stored(first), self._writer.stored(other)
        return one is not None and its is not None and one.dtype == its.dtype and bool(torch.equal(one, its))

    def _comprehension(self, run: Sequence[Node]) -> str:
        """Return the name of a list whose elements are used as they are, or the inside of a comprehension."""
        lists = self._used(run[0])
        if run[0] in self._elements:
            return lists[0].text
        names: dict[Element, str] = {}
        for one in lists:
            names[one] = self._writer.new_name(_singular(one.text), {*names.values()})
        text = self._inline(run[0], names)
        if len(lists) == 1:
            return f"{text} for {names[lists[0]]} in {lists[0].text}"
        return f"{text} for {', '.join(names.values())} in zip({', '.join(one.text for one in lists)})"

    def _inline(self, node: Node, names: Mapping[Element, str]) -> str:
        """Return the text of a result, with names for the elements that it is computed from."""
        known = {place: names[one] for place, one in self._elements.items() if one in names}
        inner = self._writer.inline(known)
        inner.write_all([node])
        return inner.text_of(node)

    def _used(self, node: Node) -> list[Element]:
        """Return the elements that something is computed from, in the order of the inputs."""
        found: set[Node] = set()
        pending = [node]
        while pending:
            one = pending.pop()
            if one in self._dependent and one not in found:
                found.add(one)
                pending += one.all_input_nodes
        return [element for place, element in self._elements.items() if place in found]


def _singular(name: str) -> str:
    return name[:-1] if len(name) > 1 and name.endswith("s") else "one"
