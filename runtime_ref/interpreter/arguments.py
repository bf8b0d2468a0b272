"""Arguments of a call: what is known when the method is loaded is folded, the rest is fetched at each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from exirkit.emit import ExecutionPlan, IntList, Null, OptionalTensorList, Tensor, TensorList
from exirkit.runtime_ref.checks.plan_facts import PlanFacts
from exirkit.runtime_ref.kernels.kernel import Kernel
from exirkit.runtime_ref.kernels.slots import Slot

from .cells import TensorCell
from .shape_inference import ShapeInference, key_of

Fetch = Callable[[], Any]


@dataclass
class Environment:
    """What the steps of one loaded method share.

    Attributes:
        plan: The method as it stands in the file.
        facts: What its instructions do to values.
        values: The entries of the value table, which steps read and replace.
        generator: Source of random numbers of this method.
        shape_inference: Finds the shapes of results.
    """

    plan: ExecutionPlan
    facts: PlanFacts
    values: list[Any]
    generator: torch.Generator
    shape_inference: ShapeInference = field(default_factory=ShapeInference)

    def keeps(self, index: int) -> bool:
        """Return whether a value is the same object with the same shape whenever it is there."""
        if index in self.facts.rebound:
            return False
        entry = self.values[index]
        return not isinstance(entry, TensorCell) or (entry.is_static and index not in self.facts.reshown)


@dataclass
class Arguments:
    """The arguments of one call, out arguments left out.

    Attributes:
        is_fixed: Whether they are the same objects at every run.
    """

    positional: list[Any] = field(default_factory=list)
    keywords: dict[str, Any] = field(default_factory=dict)
    is_fixed: bool = True
    _positional_fetches: list[tuple[int, Fetch]] = field(default_factory=list)
    _keyword_fetches: list[tuple[str, Fetch]] = field(default_factory=list)

    def gather(self) -> tuple[list[Any], dict[str, Any], tuple[Any, ...]]:
        """Return positional and named arguments, and a key of all that may differ from run to run.

        The key holds shapes and dtypes of tensors and values of numbers: two runs with one key give results of one
        shape, unless that depends on elements.
        """
        positional, keywords = self.positional.copy(), self.keywords.copy()
        key = []
        for place, fetch in self._positional_fetches:
            positional[place] = fetched = fetch()
            key.append(key_of(fetched))
        for name, fetch in self._keyword_fetches:
            keywords[name] = fetched = fetch()
            key.append(key_of(fetched))
        return positional, keywords, tuple(key)

    def add(self, slot: Slot, constant: Any, fetch: Fetch | None) -> None:
        """Add the next argument: a constant, or one that has to be fetched."""
        if slot.keyword:
            self.keywords[slot.name] = constant
            if fetch is not None:
                self._keyword_fetches.append((slot.name, fetch))
        else:
            if fetch is not None:
                self._positional_fetches.append((len(self.positional), fetch))
            self.positional.append(constant)


def bind_arguments(environment: Environment, kernel: Kernel, args: Sequence[int], *, cells: bool = False) -> Arguments:
    """Return the arguments of a call of `kernel` on the values `args`.

    Args:
        environment: The method.
        kernel: What is called.
        args: Indices of values, as the instruction lists them.
        cells: Pass the cells of tensors instead of the tensors.
    """
    bound = Arguments()
    for slot, index in zip(kernel.slots, args, strict=False):
        if slot.is_out:
            continue
        constant, fetch, keeps = _bind(environment, slot, index, cells=cells)
        bound.add(slot, constant, fetch)
        bound.is_fixed &= keeps
    if kernel.random:
        bound.keywords["generator"] = environment.generator
    return bound


def _bind(environment: Environment, slot: Slot, index: int, *, cells: bool) -> tuple[Any, Fetch | None, bool]:
    """Return the constant or else what fetches the argument, and whether it is the same object for ever."""
    value = environment.plan.values[index].val
    if isinstance(value, Null):
        return (environment.generator if slot.wants_generator else None), None, True
    if isinstance(value, Tensor):
        return _bind_tensor(environment, index, cells=cells)
    if isinstance(value, IntList):
        keeps = all(environment.keeps(item) for item in value.items)
        return _bind_list(keeps, [_fetch_number(environment, item) for item in value.items])
    if isinstance(value, TensorList | OptionalTensorList):
        keeps = all(item < 0 or environment.keeps(item) for item in value.items)
        fetches = [_fetch_none if item < 0 else _fetch_tensor(environment, item) for item in value.items]
        return None, lambda: [fetch() for fetch in fetches], keeps
    fetch = _fetch_number(environment, index)
    if slot.decode is not None:
        fetch = _decoded(fetch, slot.decode)
    return (fetch(), None, True) if environment.keeps(index) else (None, fetch, False)


def _bind_tensor(environment: Environment, index: int, *, cells: bool) -> tuple[Any, Fetch | None, bool]:
    keeps = environment.keeps(index)
    cell = environment.values[index]
    if cells:
        values = environment.values
        return (cell, None, True) if index not in environment.facts.rebound else (None, lambda: values[index], False)
    if keeps and cell.has_memory:
        return cell.current, None, True
    return None, _fetch_tensor(environment, index), keeps


def _bind_list(keeps: bool, fetches: list[Fetch]) -> tuple[Any, Fetch | None, bool]:
    if keeps:
        return [fetch() for fetch in fetches], None, True
    return None, lambda: [fetch() for fetch in fetches], False


def _fetch_number(environment: Environment, index: int) -> Fetch:
    values = environment.values
    return lambda: values[index]


def _fetch_tensor(environment: Environment, index: int) -> Fetch:
    values = environment.values
    if index in environment.facts.rebound:
        return lambda: values[index].tensor()
    return values[index].tensor  # type: ignore[no-any-return]


def _fetch_none() -> None:
    return None


def _decoded(fetch: Fetch, decode: Callable[[Any], Any]) -> Fetch:
    return lambda: decode(fetch())
