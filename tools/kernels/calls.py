"""Calls of one kernel each: drawn by changing calls that torch takes, and run on the official runtime."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from tests.official.oracle import OfficialRuntime
from tests.runtime_ref.assembly import Assembly

from exirkit.emit import Buffer, Tensor
from exirkit.ir import (
    TensorShapeDynamism,
    functional_variant,
    ops,
    split_arguments,
    underlying,
    without_machine_libraries,
)
from exirkit.verifiers import UNKNOWN, Fact, TensorFacts
from tools.dtypes.samples import Tensor as Sample
from tools.dtypes.samples import sample_call

_SIZES = (0, 1, 1, 2, 3, 4, 5)
_INTEGERS = (-3, -2, -1, -1, 0, 0, 1, 1, 2, 3, 4)
_NUMBERS: tuple[int | float | bool, ...] = (-2, -1, 0, 1, 2, 3, -1.5, 0.0, 0.5, 1.0, 2.5, True, False)
_MOST_RANK = 6
_WORDS = {"rounding_mode": (None, "floor", "trunc"), "approximate": ("none", "tanh"), "reduce": ("sum", "prod", "mean")}
_DTYPES = ("float32", "int64", "bool")
_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Made:
    """A tensor to be made.

    Attributes:
        sizes: Its sizes.
        dtype: `float32`.
        fill: Every element.
        order: Its dims from the outermost to the innermost.
        varies: Whether the program states upper bounds of its sizes, each one more than the size.
    """

    sizes: tuple[int, ...]
    dtype: str
    fill: int = 1
    order: tuple[int, ...] = ()
    varies: bool = False

    @property
    def dims(self) -> tuple[int, ...]:
        """The order of its dims, which is their own if none is given that fits."""
        plain = tuple(range(len(self.sizes)))
        return self.order if tuple(sorted(self.order)) == plain else plain

    def tensor(self) -> torch.Tensor:
        """Return it as torch has it."""
        physical = [self.sizes[dim] for dim in self.dims]
        made = torch.full(physical, self.fill, dtype=getattr(torch, self.dtype))
        return made.permute([self.dims.index(dim) for dim in range(len(self.sizes))])


Call = Mapping[str, Any]


@dataclass(frozen=True)
class KernelUnderTest:
    """A kernel and the operator that it computes.

    Attributes:
        name: As in program files, `aten::add.out`.
        out: Overload that writes.
        functional: Overload that returns.
    """

    name: str
    out: Any
    functional: Any

    @property
    def outs(self) -> tuple[str, ...]:
        """Names of the arguments that are written to."""
        return tuple(one.name for one in self.out._schema.arguments if one.is_out)


def kernels_under_test(names: Any) -> Iterator[KernelUnderTest]:
    """Yield the kernels that write results of operators; primitives on numbers are not among them."""
    for name in sorted(names):
        library, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        if library == "dim_order_ops":
            functional: Any = underlying(getattr(ops.edge.dim_order_ops, base).default)
            out = functional.out_variant()
            yield KernelUnderTest(name, out, functional)
        elif library == "aten":
            out = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
            if out is None or not any(one.is_out for one in out._schema.arguments):
                continue
            other = functional_variant(out)
            if other is not None:
                yield KernelUnderTest(name, out, other)


class Drawing:
    """Draws calls of one kernel that torch takes.

    Args:
        kernel: The kernel.
        seed: Of the draws.
    """

    def __init__(self, kernel: KernelUnderTest, seed: str) -> None:
        self.kernel = kernel
        self.random = random.Random(seed)
        self.kinds = {one.name: str(one.real_type) for one in kernel.functional._schema.arguments}
        self.pool: list[Call] = []

    def start(self, more: tuple[Call, ...] = ()) -> None:
        """Fill the pool with the samples of the operator that torch takes."""
        for dtype in _DTYPES:
            call = {name: self._made(value, dtype) for name, value in sample_call(self.kernel.functional).items()}
            if self.results(call) is not None:
                self.pool.append(call)
                break
        self.pool += [call for call in more if self.results(call) is not None]

    def ranks(self, call: Call) -> Iterator[Call]:
        """Yield a call with tensors of other ranks: dims in front are added or left out."""
        highest = max((len(made.sizes) for made in _tensors(call)), default=0)
        for rank in range(_MOST_RANK + 1):
            for name in ("", *(key for key, value in call.items() if isinstance(value, Made))):
                grown = {
                    key: _grown(value, rank - highest) if name in ("", key) else value for key, value in call.items()
                }
                if rank != highest and self.results(grown) is not None:
                    yield grown

    def empties(self, call: Call) -> Iterator[Call]:
        """Yield a call with sizes of zero: one size wherever it stands, and each dim of each tensor."""
        for size in sorted({size for made in _tensors(call) for size in made.sizes if size}):
            yield {key: _resized(value, {size: 0}) for key, value in call.items()}
        for name, value in call.items():
            for dim in range(len(value.sizes) if isinstance(value, Made) else 0):
                yield {**call, name: replace(value, sizes=(*value.sizes[:dim], 0, *value.sizes[dim + 1 :]))}

    def layouts(self, call: Call) -> Iterator[tuple[Call, tuple[str, ...]]]:
        """Yield a call with tensors in other orders, and the kinds of order of its results."""
        names = [key for key, value in call.items() if any(True for _ in _tensors({key: value}))]
        if max((len(made.sizes) for made in _tensors(call)), default=0) < 2:
            return
        for kind in ("last", "reversed"):
            yield {key: _in_order(value, kind) for key, value in call.items()}, (kind, "plain")
            yield call, (kind,)
            for name in names if len(names) > 1 else ():
                changed = {key: _in_order(value, kind) if key == name else value for key, value in call.items()}
                yield changed, ("plain", kind)

    def results(self, call: Call) -> list[torch.Tensor] | None:
        """Return what torch computes; None if it does not take the call, or computes something else than tensors."""
        if not _is_safe(self.kernel.name, call):
            return None
        values = {name: self._value(value) for name, value in call.items()}
        try:
            with torch.no_grad(), without_machine_libraries():
                found = _called(self.kernel.functional, values)
        except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):
            return None
        listed = list(found) if isinstance(found, list | tuple) else [found]
        if not all(isinstance(one, torch.Tensor) and one.numel() < 10_000 for one in listed):
            return None
        return listed

    def next(self, start: Call | None = None) -> tuple[Call, list[torch.Tensor]] | None:
        """Return a call that torch takes, made of `start`, or one in the pool, by a few changes."""
        for _ in range(40):
            call = dict(start or self.random.choice(self.pool))
            for _ in range(self.random.choice((1, 1, 1, 2, 3))):
                self._change(call)
            found = self.results(call)
            if found is not None:
                return call, found
        return None

    def keep(self, call: Call) -> None:
        """Take a call into the pool."""
        if len(self.pool) < 60:
            self.pool.append(call)
        else:
            self.pool[self.random.randrange(1, 60)] = call

    def order(self, rank: int, near: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Return an order of dims, often a common one."""
        plain = tuple(range(rank))
        choices = [plain, plain, plain]
        if rank in (4, 5):
            choices += [(0, *plain[2:], 1)] * 2
        if len(near) == rank:
            choices += [near] * 3
        if rank > 1:
            choices.append(tuple(self.random.sample(plain, rank)))
        return self.random.choice(choices)

    def _made(self, value: Any, dtype: str) -> Any:
        if isinstance(value, list):
            return tuple(self._made(one, dtype) for one in value)
        if isinstance(value, Sample):
            return Made(value.sizes, "int64" if value.fill == 0 else dtype, value.fill)
        return value

    def _value(self, value: Any) -> Any:
        if isinstance(value, Made):
            return value.tensor()
        return [self._value(one) for one in value] if isinstance(value, tuple) else value

    def _change(self, call: dict[str, Any]) -> None:
        change = self.random.choice(
            (self._rank, self._rank, self._size, self._same_size, self._order, self._orders, self._argument)
            + (self._argument,) * 4
        )
        change(call)

    def _tensors(self, call: dict[str, Any]) -> list[str]:
        return [name for name, value in call.items() if isinstance(value, Made)]

    def _every(self, call: dict[str, Any], change: Any) -> None:
        for name, value in call.items():
            if isinstance(value, Made):
                call[name] = change(value)
            elif isinstance(value, tuple) and any(isinstance(one, Made) for one in value):
                call[name] = tuple(change(one) if isinstance(one, Made) else one for one in value)

    def _rank(self, call: dict[str, Any]) -> None:
        size, front, grow = self.random.choice((1, 2)), self.random.random() < 0.7, self.random.random() < 0.6

        def change(made: Made) -> Made:
            sizes = made.sizes
            if grow:
                sizes = (size, *sizes) if front else (*sizes, size)
            elif sizes:
                sizes = sizes[1:] if front else sizes[:-1]
            return replace(made, sizes=sizes, order=())

        names = self._tensors(call)
        if names and self.random.random() < 0.4:
            name = self.random.choice(names)
            call[name] = change(call[name])
        else:
            self._every(call, change)

    def _size(self, call: dict[str, Any]) -> None:
        names = [name for name in self._tensors(call) if call[name].sizes]
        if names:
            name = self.random.choice(names)
            sizes = list(call[name].sizes)
            sizes[self.random.randrange(len(sizes))] = self.random.choice(_SIZES)
            call[name] = replace(call[name], sizes=tuple(sizes))

    def _same_size(self, call: dict[str, Any]) -> None:
        found = sorted({size for name in self._tensors(call) for size in call[name].sizes})
        if found:
            old, new = self.random.choice(found), self.random.choice(_SIZES)
            self._every(
                call, lambda made: replace(made, sizes=tuple(new if size == old else size for size in made.sizes))
            )

    def _order(self, call: dict[str, Any]) -> None:
        names = self._tensors(call)
        if names:
            name = self.random.choice(names)
            call[name] = replace(call[name], order=self.order(len(call[name].sizes)))

    def _orders(self, call: dict[str, Any]) -> None:
        kinds: dict[int, tuple[int, ...]] = {}

        def change(made: Made) -> Made:
            rank = len(made.sizes)
            return replace(made, order=kinds.setdefault(rank, self.order(rank)))

        self._every(call, change)

    def _argument(self, call: dict[str, Any]) -> None:
        names = [name for name, kind in self.kinds.items() if kind not in ("Tensor", "List[Tensor]")]
        if names:
            name = self.random.choice(names)
            call[name] = self._other(name, self.kinds[name], call.get(name), call)

    def _other(self, name: str, kind: str, value: Any, call: dict[str, Any]) -> Any:
        is_optional = kind.startswith("Optional[")
        inner = kind.removeprefix("Optional[").removesuffix("]") if is_optional else kind
        if is_optional and value is not None and self.random.random() < 0.5:
            return None
        if inner == "Tensor":
            return self._tensor(call)
        if inner.startswith("List["):
            return self._list(inner[5:-1], value)
        if inner in ("int", "SymInt"):
            return self.random.choice(_INTEGERS)
        if inner == "bool":
            return not value
        if inner == "float":
            return float(self.random.choice(_NUMBERS))
        if inner in ("number", "Scalar"):
            return self.random.choice(_NUMBERS)
        return self.random.choice(_WORDS.get(name, (value,)))

    def _tensor(self, call: dict[str, Any]) -> Any:
        tensors = [call[name] for name in self._tensors(call)]
        if not tensors:
            return None
        like = self.random.choice(tensors)
        return replace(like, sizes=like.sizes[1:2] or like.sizes, order=())

    def _list(self, element: str, value: Any) -> Any:
        items = list(value) if isinstance(value, tuple | list) else []
        if "Tensor" in element:
            if items and self.random.random() < 0.5:
                items.append(self.random.choice(items))
            elif items:
                items.pop()
            return tuple(items)
        item = self._item(element)
        how = self.random.random()
        if how < 0.6 and items:
            items[self.random.randrange(len(items))] = item
        elif how < 0.8 or not items:
            items.insert(self.random.randrange(len(items) + 1), item)
        else:
            items.pop(self.random.randrange(len(items)))
        return tuple(items)

    def _item(self, element: str) -> int | float | bool:
        if element == "float":
            return float(self.random.choice(_NUMBERS))
        return self.random.random() < 0.5 if element == "bool" else self.random.choice(_INTEGERS)


class Kernels:
    """Runs calls on the official runtime; use it as a context manager.

    Attributes:
        names: Operators that it registers.
    """

    def __init__(self) -> None:
        self._runtime = OfficialRuntime()
        self.names = self._runtime.kernels()

    def __enter__(self) -> Kernels:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        self._runtime.close()

    def failure(self, kernel: KernelUnderTest, call: Call, results: list[Made]) -> str | None:
        """Run a call; return what the runtime says if it does not take it, else None."""
        found = self._runtime.run(program_of(kernel, call, results), [[]], timeout_s=_TIMEOUT_S).failure
        return None if found is None else f"{found.kind}: {found.text}"


def _tensors(call: Call) -> Iterator[Made]:
    for value in call.values():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Made):
                yield one


def _grown(value: Any, dims: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_grown(one, dims) for one in value)
    if not isinstance(value, Made):
        return value
    sizes = (*(2, 1, 2, 1, 1, 1)[:dims], *value.sizes) if dims > 0 else value.sizes[-dims:]
    return replace(value, sizes=sizes, order=())


def _resized(value: Any, sizes: Mapping[int, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_resized(one, sizes) for one in value)
    if not isinstance(value, Made):
        return value
    return replace(value, sizes=tuple(sizes.get(size, size) for size in value.sizes))


def _in_order(value: Any, kind: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_in_order(one, kind) for one in value)
    return replace(value, order=order_of(len(value.sizes), kind)) if isinstance(value, Made) else value


def order_of(rank: int, kind: str) -> tuple[int, ...]:
    """Return an order of dims: `plain`, `last` for channels last, where there are channels, or `reversed`."""
    plain = tuple(range(rank))
    if kind == "last" and rank in (4, 5):
        return (0, *plain[2:], 1)
    return plain[::-1] if kind == "reversed" else plain


def _is_safe(name: str, call: Call) -> bool:
    """Return whether torch checks only the tensors of a call: it checks no sizes of statistics."""
    if "batch_norm" not in name and "group_norm" not in name:
        return True
    vectors = [value for key, value in call.items() if isinstance(value, Made) and key not in ("input", "self")]
    source = call.get("input", call.get("self"))
    channels = source.sizes[1:2] if isinstance(source, Made) else ()
    return bool(channels) and channels[0] > 0 and all(one.sizes == channels for one in vectors)


def program_of(kernel: KernelUnderTest, call: Call, results: list[Made]) -> bytes:
    """Return a program file of one call on constants."""
    assembly = Assembly()
    outs = list(results)
    args = [_argument(assembly, kernel, argument, call, outs) for argument in kernel.out._schema.arguments]
    written = [index for index, one in zip(args, kernel.out._schema.arguments, strict=True) if one.is_out]
    tail = written if len(written) == 1 else [assembly.tensor_list(written)]
    assembly.call(kernel.name, *args, *tail)
    return assembly.to_bytes()


def _argument(assembly: Assembly, kernel: KernelUnderTest, argument: Any, call: Call, outs: list[Made]) -> int:
    kind = str(argument.real_type)
    if argument.is_out:
        if kind.startswith("List"):
            return assembly.tensor_list([_place(assembly, one) for one in outs])
        return _place(assembly, outs.pop(0))
    value = call.get(argument.name, argument.default_value if argument.has_default_value() else None)
    if isinstance(value, Made):
        return _constant(assembly, value)
    if isinstance(value, tuple | list) and "Tensor" in kind:
        listed = [-1 if one is None else _constant(assembly, one) for one in value]
        return assembly.optional_tensor_list(listed) if "Optional" in kind else assembly.tensor_list(listed)
    if kind == "float" and isinstance(value, int | bool):
        value = float(value)
    return assembly.argument(value, kind)


def _place(assembly: Assembly, made: Made) -> int:
    dtype = getattr(torch, made.dtype)
    if not made.varies:
        return assembly.tensor(made.sizes, dtype, dim_order=made.dims)
    bounds = [size + 1 for size in made.sizes]
    return assembly.tensor(bounds, dtype, dim_order=made.dims, dynamism=TensorShapeDynamism.DYNAMIC_BOUND)


def _constant(assembly: Assembly, made: Made) -> int:
    tensor = made.tensor()
    index = _place(assembly, made)
    if tensor.numel():
        declared = assembly.plan.values[index].val
        assert isinstance(declared, Tensor)
        raw = tensor.permute(made.dims).contiguous().flatten().view(torch.uint8).numpy().tobytes()
        assembly.constants.append(Buffer(storage=raw))
        declared.data_buffer_idx = len(assembly.constants) - 1
        declared.allocation_info = None
    return index


def facts_of(kernel: KernelUnderTest, call: Call, results: list[Made]) -> dict[str, Fact]:
    """Return a call in the form in which conditions speak of it."""
    outs = list(results)
    found: dict[str, Fact] = {}
    for argument in kernel.out._schema.arguments:
        if argument.is_out:
            whole = str(argument.real_type).startswith("List")
            found[argument.name] = tuple(map(_fact, outs)) if whole else _fact(outs.pop(0))
        else:
            default = argument.default_value if argument.has_default_value() else None
            found[argument.name] = _fact(call.get(argument.name, default))
    return found


def _fact(value: Any) -> Fact:
    if isinstance(value, Made):
        sizes = (UNKNOWN,) * len(value.sizes) if value.varies else value.sizes
        return TensorFacts(value.dtype, sizes, value.dims)
    if isinstance(value, list | tuple):
        return tuple(map(_fact, value))
    return value if isinstance(value, bool | int | float | str) else None if value is None else str(value)


def made_of(tensor: torch.Tensor, order: tuple[int, ...], *, varies: bool = False) -> Made:
    """Return the place for a result of torch."""
    return Made(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), 0, order, varies)


def _called(op: Any, call: Mapping[str, Any]) -> Any:
    # By position, because `self` is the name of an argument.
    args, kwargs = split_arguments(op, call)
    return op(*args, **kwargs)
