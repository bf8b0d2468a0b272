"""Patterns of rules inside of methods: their inputs, stored tensors and calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from exirkit.fuzz.programs import Contents
from exirkit.ir import underlying
from exirkit.patterns import INSTANCE_ERRORS, CompiledRule, PatternInstance, load_book, name_of, pattern_instance

from .operator_catalogue import shipped_operators
from .scope import Scope
from .values import DTYPES, Fact, Value, bits_of, is_float

_FAMILIES = frozenset({"shape", "join", "cut", "index", "choose", "clamp"})
_RULES = frozenset({"add", "sub", "rsub", "mul", "maximum", "minimum", "compare", "bitwise"})
_FOREIGN = ("dim_order_ops.", "executorch_prim.")
# Covers a few last bits of bfloat16.
_ROUNDING = 1e-2
_MOST_NUMBERS = 3000

# Rules that every program meets that is optimized at all.
_BOOKS = ("canonicalize", "algebra", "fold", "copies")


def plant_shipped_rule(scope: Scope) -> None:
    """Add the pattern of one of the rules of the usual optimization, where programs can have it."""
    rules = _shipped_rules()
    rule = rules[scope.choices.integer(0, len(rules) - 1)]
    instance = pattern_instance(rule, scope.choices.integer(0, 999), seed=scope.choices.integer(0, 6))
    if instance is None:
        return
    planted = Planted(scope, _repeating(scope, instance), exposed=scope.choices.chance(0.1))
    if planted.is_possible():
        planted.plant()


@cache
def _shipped_rules() -> tuple[CompiledRule, ...]:
    return tuple(rule for name in _BOOKS for rule in load_book(name).require_valid().rules if rule.rule.equiv.is_exact)


def _repeating(scope: Scope, instance: PatternInstance) -> PatternInstance:
    """Return an instance whose inputs of one form have elements in common, at times.

    Comparisons that are not the same may differ for equal elements only.
    """
    first: dict[tuple[torch.dtype, torch.Size], torch.Tensor] = {}
    names = dict(instance.names)
    for name, kind in instance.kinds.items():
        tensor = names[name]
        if kind != "input" or tensor.numel() == 0:
            continue
        known = first.setdefault((tensor.dtype, tensor.shape), tensor)
        if known is not tensor and scope.choices.chance(0.3):
            names[name] = tensor.detach().clone(memory_format=torch.contiguous_format)
            names[name].view(-1)[::2] = known.detach().reshape(-1)[::2]
    return replace(instance, names=names)


class Planted:
    """Adds the calls of a pattern to a method.

    Args:
        scope: The method.
        instance: The pattern and its values.
        exposed: Other calls may use values inside the pattern.
    """

    def __init__(self, scope: Scope, instance: PatternInstance, exposed: bool) -> None:
        self.scope = scope
        self.instance = instance
        self.exposed = exposed
        self.failed = False
        self.roots: list[Value] = []
        self._values: dict[int, Value] = {}
        self._alive: list[torch.Tensor] = []

    def is_possible(self) -> bool:
        """Whether the pattern's tensors and operators are some that programs have."""
        tensors = [self.instance.names[name] for name in self.instance.kinds]
        if any(tensor.dtype not in DTYPES or tensor.numel() > _MOST_NUMBERS for tensor in tensors):
            return False
        if not all(bool(torch.isfinite(tensor.double()).all()) for tensor in tensors):
            return False
        others = [value for name, value in self.instance.names.items() if name not in self.instance.kinds]
        return not any(isinstance(leaf, torch.Tensor) for value in others for leaf in _leaves(value)) and self._runs()

    def _runs(self) -> bool:
        """Whether the pattern runs on its values."""
        try:
            with torch.no_grad():
                found = self.instance.run(_Dry(), {name: self.instance.names[name] for name in self.instance.kinds})
        except INSTANCE_ERRORS:
            return False
        return found is not None

    def plant(self) -> None:
        """Add inputs, stored tensors and calls."""
        given = {name: self._leaf(name) for name in self.instance.kinds}
        leaves = len(self.scope.values)
        try:
            with torch.no_grad():
                found = self.instance.run(self, given)
        except INSTANCE_ERRORS:
            found = None
        if found is None:
            self.failed = True
            return
        tensors = [leaf for leaf in _leaves(found) if isinstance(leaf, torch.Tensor)]
        self.roots = [self._values[id(tensor)] for tensor in tensors if id(tensor) in self._values]
        inner = [value for value in self.scope.values[leaves:] if value not in self.roots]
        if not self.exposed:
            # Who else used them, or returned them, would be in the way of the rule.
            self.scope.values = [value for value in self.scope.values if value not in inner]
        self.scope.urgent += [root for root in self.roots if self.scope.choices.chance(0.5)]

    def _leaf(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self.instance.names[name].detach().clone().contiguous()
        numbers = tuple(tensor.flatten().tolist())
        contents = Contents(kind="numbers", numbers=numbers) if numbers else Contents(kind="zeros")
        kind = self.instance.kinds[name]
        sizes = tuple(tensor.shape)
        if kind == "input":
            value = self.scope.new_input(tensor.dtype, sizes, contents)
        else:
            value = self.scope.building.store(kind, tensor.dtype, sizes, contents)
            self.scope.values.append(value)
        self._values[id(tensor)] = value
        self._alive.append(tensor)
        return tensor

    def call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call of the pattern on tensors, and add it to the method."""
        found = _Dry().call(op, args, kwargs)
        results = [found] if isinstance(found, torch.Tensor) else list(found)
        facts = [_fact(op, result) for result in results]
        written = [self._written(each) for each in args]
        named = [(key, self._written(each)) for key, each in kwargs.items()]
        for result, value in zip(
            results, self.scope.call_several(name_of(underlying(op)), written, facts, named), strict=True
        ):
            self._values[id(result)] = value
        self._alive += results
        return found

    def _written(self, given: Any) -> Any:
        if isinstance(given, torch.Tensor):
            return self._values[id(given)]
        if isinstance(given, list | tuple):
            return tuple(self._written(each) for each in given)
        return given


class _Dry:
    """Runs calls on tensors, and refuses what no program has."""

    def call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several."""
        if name_of(underlying(op)).startswith(_FOREIGN):
            raise TypeError("the official exporter registers these, not torch")
        result = op(*args, **kwargs)
        results = [result] if isinstance(result, torch.Tensor) else list(result)
        if not all(isinstance(each, torch.Tensor) and each.dtype in DTYPES for each in results):
            raise TypeError("a program has no such values")
        return result if isinstance(result, torch.Tensor) else results


def _fact(op: Any, result: torch.Tensor) -> Fact:
    """Return what is known of a result: there is one set of values for it, which it was computed from."""
    numbers = result.double()
    is_empty = result.numel() == 0
    # Zero belongs to every interval, as to those of inputs.
    low = 0.0 if is_empty else min(0.0, float(numbers.min()))
    high = 0.0 if is_empty else max(0.0, float(numbers.max()))
    if result.dtype == torch.bool:
        low, high = 0, 1
    if not is_float(result.dtype):
        return Fact(result.dtype, tuple(result.shape), low, high, 0, False)
    if not (low > -1e30 and high < 1e30):
        raise TypeError("a program has finite values only")
    bits = _grid(result) if _keeps_grid(name_of(underlying(op))) else None
    if bits is None:
        # Its last bits depend on how a kernel goes through memory.
        low, high = low * (1 + _ROUNDING), high * (1 + _ROUNDING)
    return Fact(result.dtype, tuple(result.shape), low, high, bits, False)


def _grid(result: torch.Tensor) -> int | None:
    grids = [bits_of(number) for number in result.flatten()[:_MOST_NUMBERS].double().tolist()]
    return None if None in grids else max((grid for grid in grids if grid is not None), default=0)


def _keeps_grid(name: str) -> bool:
    """Whether an operator computes each element from a few others, so that a result on a grid is exact."""
    return name in _EXACT


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _leaves(each)
    else:
        yield value


_EXACT = frozenset(
    name
    for operator in shipped_operators()
    for name in (operator.name, operator.option("copy"))
    if name is not None
    and (
        operator.family in _FAMILIES
        or (operator.family in ("binary", "scalar") and operator.option("rule") in _RULES)
        or (operator.family == "unary" and operator.option("grid") != "none")
    )
)
