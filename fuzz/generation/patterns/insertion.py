"""Something inserted into a method: inputs, stored tensors and calls of a pattern or of a model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, TypeAlias

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import DTYPES, Fact, Value, bits_of, is_float
from exirkit.fuzz.generation.operators.catalogue import shipped_operators
from exirkit.fuzz.programs import Contents, make_tensor
from exirkit.ir import pytree, underlying
from exirkit.patterns import INSTANCE_ERRORS, Builder, name_of

_FAMILIES = frozenset({"shape", "join", "cut", "index", "choose", "clamp", "cast", "create", "layout", "pad"})
# Each element of the result is one of the operand.
_SELECTING = frozenset(
    f"aten.{name}" for name in ("amax.default", "amin.default", "max.default", "min.default", "max_pool2d.default")
)
_RULES = frozenset({"add", "sub", "rsub", "mul", "maximum", "minimum", "compare", "bitwise"})
_FOREIGN = ("dim_order_ops.", "executorch_prim.")
# Places of what is divided and of the divisor.
_QUOTIENTS = {"aten.div.Tensor": (0, 1), "aten.addcdiv.default": (1, 2)}
# Covers a few last bits of bfloat16.
_ROUNDING = 1e-2
_MOST_NUMBERS = 3000
SIGNED = (torch.int64, torch.int32, torch.int16, torch.int8)
# How many inputs lie in memory in another order, and how many are computed.
_ODD_LAYOUTS = 0.3
_COMPUTED = 0.25

Layout: TypeAlias = Literal["dense", "transposed", "strided"]


class Instance(Protocol):
    """Calls with values for what they take, such as `PatternInstance`."""

    @property
    def names(self) -> Mapping[str, Any]:
        """Values by name."""

    @property
    def kinds(self) -> Mapping[str, Any]:
        """What each tensor of `names` stands for in a program: `input`, `parameter`, `buffer` or `constant`."""

    def run(self, builder: Builder, values: Mapping[str, Any]) -> list[Any] | None:
        """Run the calls on values for the tensors; return results, or None if something is left open."""


class Insertion:
    """Adds calls to a method.

    Args:
        scope: The method.
        instance: The calls and their values.
        exposed: Other calls may use values inside, and at least one does.
        special: Inputs of these names have NaN, infinities and the like; nothing else in the method uses any value.
        varied: Inputs may be computed, or lie in memory in another order.
        limited: Inputs are clamped to the range of their values, so that it can be inferred.
        computed: Inputs of these names are results of calls that nothing else uses, since only calls have attributes.
        late: Inputs of these names that the first call does not read are computed likewise, behind the calls before the
            one that reads them.
    """

    def __init__(
        self,
        scope: Scope,
        instance: Instance,
        *,
        exposed: bool = False,
        special: Collection[str] = (),
        varied: bool = False,
        limited: bool = False,
        computed: Collection[str] = (),
        late: Collection[str] = (),
    ) -> None:
        self.scope = scope
        self.instance = instance
        self.exposed = exposed
        self.special = frozenset(special)
        self.varied = varied
        self.limited = limited
        self.computed = frozenset(computed)
        self.failed = False
        self._contents = {name: self._drawn(name) for name in instance.kinds}
        self._tensors = {
            name: make_tensor(contents, instance.names[name].dtype, tuple(instance.names[name].shape))
            for name, contents in self._contents.items()
        }
        self.roots: list[Value] = []
        self._values: dict[int, Value] = {}
        self._alive: list[torch.Tensor] = []
        self._late = {id(self._tensors[name]): name for name in late}
        self._has_calls = False

    def is_possible(self) -> bool:
        """Whether the tensors and operators are some that programs have."""
        tensors = [self.instance.names[name] for name in self.instance.kinds]
        if any(tensor.dtype not in DTYPES or tensor.numel() > _MOST_NUMBERS for tensor in tensors):
            return False
        if not all(bool(torch.isfinite(tensor.double()).all()) for tensor in tensors):
            return False
        others = [value for name, value in self.instance.names.items() if name not in self.instance.kinds]
        return not any(isinstance(leaf, torch.Tensor) for value in others for leaf in _leaves(value)) and self._runs()

    def _drawn(self, name: str) -> Contents:
        """Return the contents of a leaf; inputs of some dims may lie in memory in another order."""
        tensor: torch.Tensor = self.instance.names[name].detach()
        is_input = self.instance.kinds[name] == "input"
        layout: Layout = "transposed" if is_input and _is_transposed(tensor) else "dense"
        if self.varied and is_input and tensor.dim() >= 2 and self.scope.choices.chance(_ODD_LAYOUTS):
            layout = self.scope.choices.pick(("transposed", "strided"))
        if name in self.special and is_input:
            return Contents("special", seed=self.scope.choices.integer(0, 999), layout=layout)
        numbers = tuple(tensor.flatten().tolist())
        return Contents("numbers", numbers=numbers, layout=layout) if numbers else Contents("zeros")

    def _runs(self) -> bool:
        """Whether the calls run on their values."""
        try:
            with torch.no_grad():
                given = {name: tensor.clone() for name, tensor in self._tensors.items()}
                found = self.instance.run(_Dry(is_special=bool(self.special)), given)
        except INSTANCE_ERRORS:
            return False
        # A batch norm that is training writes to its statistics; calls of programs do not write.
        kept = (torch.equal(tensor.nan_to_num(), given[name].nan_to_num()) for name, tensor in self._tensors.items())
        return found is not None and all(kept)

    def insert(self) -> None:
        """Add inputs, stored tensors and calls."""
        before = len(self.scope.values)
        given = {
            name: tensor if id(tensor) in self._late else self._leaf(name) for name, tensor in self._tensors.items()
        }
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
        if self.exposed and self.varied and inner:
            self.scope.must_use_again.append(self.scope.choices.pick(inner))
            self.scope.must_use += self.scope.must_use_again[-1:]
        elif not self.exposed:
            # Who else used them, or returned them, would be in the way of the rule.
            self.scope.values = [value for value in self.scope.values if value not in inner]
        if self.special:
            # What is known of intervals does not hold for them.
            self.scope.values = self.scope.values[:before]
            self.scope.must_use = [value for value in self.scope.must_use if value not in inner]
            shown = [*self.roots, *(inner[:1] if self.exposed else [])]
            self.scope.outputs_of_unknown_size += [one for one in shown if one.source == "result"]
            return
        self.scope.must_use += [root for root in self.roots if self.scope.choices.chance(0.5)]

    def _leaf(self, name: str, *, is_late: bool = False) -> torch.Tensor:
        tensor, contents = self._tensors[name], self._contents[name]
        kind = self.instance.kinds[name]
        sizes = tuple(tensor.shape)
        if kind != "input":
            value = self.scope.building.store(kind, tensor.dtype, sizes, contents)
            self.scope.values.append(value)
        elif name in self.computed or is_late or self._is_computed(tensor):
            value = self._result_of_call(tensor, contents)
        else:
            value = self.scope.new_input(tensor.dtype, sizes, contents)
        if self.limited and kind == "input" and tensor.dtype != torch.bool and tensor.numel() and not self.special:
            limits = tensor.min().item(), tensor.max().item()
            value = self.scope.call("aten.clamp.default", (value, *limits), value.fact)
        if name in self.computed or is_late:
            self.scope.values = [one for one in self.scope.values if one is not value]
        self._values[id(tensor)] = value
        self._alive.append(tensor)
        return tensor

    def _result_of_call(self, tensor: torch.Tensor, contents: Contents) -> Value:
        """Return the result of a call on a new input, with the numbers of a leaf."""
        sizes = tuple(tensor.shape)
        if _can_be_negated(tensor) or (not tensor.numel() and tensor.dtype != torch.bool):
            negated = replace(contents, numbers=tuple(-one for one in contents.numbers))
            given = self.scope.new_input(tensor.dtype, sizes, negated)
            fact = given.fact._replace(low=-given.fact.high, high=-given.fact.low)
            return self.scope.call("aten.neg.default", (given,), fact)
        inverted = torch.bitwise_not(tensor)
        given = self.scope.new_input(tensor.dtype, sizes, replace(contents, numbers=tuple(inverted.flatten().tolist())))
        return self.scope.call("aten.bitwise_not.default", (given,), _fact(torch.ops.aten.bitwise_not.default, tensor))

    def _is_computed(self, tensor: torch.Tensor) -> bool:
        is_possible = self.varied and not self.special and _can_be_negated(tensor)
        return is_possible and self.scope.choices.chance(_COMPUTED)

    def call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call of the pattern on tensors, and add it to the method."""
        found = _Dry(is_special=bool(self.special)).call(op, args, kwargs)
        results = [found] if isinstance(found, torch.Tensor) else list(found)
        facts = [_special_fact(result) if self.special else _fact(op, result) for result in results]
        written = [self._written(each) for each in args]
        named = [(key, self._written(each)) for key, each in kwargs.items()]
        for result, value in zip(
            results,
            self.scope.call_several(name_of(underlying(op)), written, facts, named, is_verbatim=True),
            strict=True,
        ):
            self._values[id(result)] = value
        self._alive += results
        self._has_calls = True
        return found

    def _written(self, given: Any) -> Any:
        if isinstance(given, torch.Tensor):
            if id(given) in self._late:
                self._leaf(self._late.pop(id(given)), is_late=self._has_calls)
            return self._values[id(given)]
        if isinstance(given, list | tuple):
            return tuple(self._written(each) for each in given)
        return given


class _Dry:
    """Runs calls on tensors, and rejects what programs do not have."""

    def __init__(self, *, is_special: bool = False) -> None:
        self.is_special = is_special

    def call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several."""
        if name_of(underlying(op)).startswith(_FOREIGN):
            raise TypeError("the official exporter registers these, not torch")
        if kwargs.get("pin_memory"):
            # Without elements nothing is pinned, and eager torch does not mind.
            raise TypeError("torch does not trace calls that pin memory")
        if self.is_special and _inverts_one_divisor(name_of(underlying(op)), args):
            raise ValueError("kernels multiply by the inverse of one divisor, which a denormal has not")
        result = op(*args, **kwargs)
        # Kernels take some dtypes that torch rejects while exporting: numbers as a condition of `where`.
        op(*pytree.tree_map_only(torch.Tensor, _as_meta, args), **pytree.tree_map_only(torch.Tensor, _as_meta, kwargs))
        results = [result] if isinstance(result, torch.Tensor) else list(result)
        if not all(isinstance(each, torch.Tensor) and each.dtype in DTYPES for each in results):
            raise TypeError("a program has no such values")
        if not self.is_special and not all(bool(torch.isfinite(each.double()).all()) for each in results):
            raise ValueError("a program has finite values only")
        return result if isinstance(result, torch.Tensor) else results


def _inverts_one_divisor(op: str, args: Sequence[Any]) -> bool:
    """Whether several numbers are divided by a tensor of one."""
    dividend, divisor = _QUOTIENTS.get(op, (0, 0))
    if dividend == divisor or not all(isinstance(args[place], torch.Tensor) for place in (dividend, divisor)):
        return False
    return bool(args[divisor].numel() == 1 and args[dividend].numel() != 1)


def _is_transposed(tensor: torch.Tensor) -> bool:
    """Whether the last two dims of a tensor lie in memory in the other order."""
    return tensor.dim() >= 2 and not tensor.is_contiguous() and tensor.mT.is_contiguous()


def _as_meta(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("meta")


def _can_be_negated(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 0 and (
        is_float(tensor.dtype) or (tensor.dtype in SIGNED and bool((tensor > torch.iinfo(tensor.dtype).min).all()))
    )


def _special_fact(result: torch.Tensor) -> Fact:
    """Return a fact that is not relied on: nothing else uses such a value."""
    bits = None if is_float(result.dtype) else 0
    return Fact(result.dtype, tuple(result.shape), 0, 1 if result.dtype == torch.bool else 0, bits, False)


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
        or operator.name in _SELECTING
        or (operator.family in ("binary", "scalar") and operator.option("rule") in _RULES)
        or (operator.family == "unary" and operator.option("grid") != "none")
    )
)
