"""Small models with control flow, of numbers that every order of addition adds to the same sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.models.case import Built, Call, Function, single
from torch import nn
from torch._higher_order_ops import map as _map
from torch._higher_order_ops import scan as _scan
from torch._higher_order_ops import while_loop as _while_loop

# What torch exports under these names is annotated more narrowly than what it takes.
map_rows: Any = _map
scan: Any = _scan
while_loop: Any = _while_loop

MODELS: dict[str, Callable[[], Built]] = {}
T = torch.tensor
YES, NO = T(True), T(False)
ROWS = torch.export.Dim("rows", min=2, max=8)


def model(*calls: tuple[Any, ...], **options: Any) -> Callable[[Any], Any]:
    """Register a function, or a module class, with the calls to make on it."""

    def register(function: Any) -> Any:
        def build() -> Built:
            module = function() if isinstance(function, type) else Function(function)
            return single(module, *(Call(*call) for call in calls), **options)

        MODELS[function.__name__] = build
        return function

    return register


def numbers(*shape: int) -> torch.Tensor:
    """Return small whole numbers of both signs."""
    count = torch.Size(shape).numel()
    return (torch.arange(float(count)) - count // 2).reshape(shape)


ROW_CALLS = tuple((numbers(count, 3),) for count in (4, 8, 2, 5))
COUNTED = tuple((T(count), numbers(3)) for count in (3, 0, 7))


@model(*((numbers(2) + bias,) for bias in (0, 3, -5)))
def two_results_alive(x: Any) -> Any:
    first = torch.cond(x.sum() > 0, lambda y: y * 2 + 1, lambda y: y - 4, (x,))
    second = torch.cond(x.amax() > 1, lambda y: (y + 3).abs() * y, lambda y: -y * 4, (x,))
    return first + second, first, second


@model(*((numbers(2) + bias,) for bias in (0, 3, -5)))
def chain(x: Any) -> Any:
    for limit in range(3):
        x = torch.cond(x.sum() > limit, lambda y: y - 5, lambda y: y * 2 + 7, (x,))
    return x, x


@model(*((numbers(2) + bias,) for bias in (0, 3, -5)))
def nested(x: Any) -> Any:
    def inner(y: Any) -> Any:
        chosen = torch.cond(y[0] > 1, lambda z: (z * 2, z + 1), lambda z: (z - 1, z * 3), (y,))
        return chosen[0] + 1, chosen[1]

    return torch.cond(x.sum() > 0, inner, lambda y: (y - 10, y.clone()), (x,))


@model((YES, numbers(3)), (NO, numbers(3)))
def returns_inputs_and_unused(flag: Any, x: Any) -> Any:
    found = torch.cond(flag, lambda y: (y.clone(), y + y, y - 1), lambda y: (y * y, y.clone(), y.clone()), (x,))
    return found[0] - found[2], x


@model((YES, numbers(3)), (NO, numbers(3)))
def one_value_twice(flag: Any, x: Any) -> Any:
    def yes(y: Any) -> Any:
        double = y + y
        return double, double.clone()

    return torch.cond(flag, yes, lambda y: (y * y, y + 1), (x,))


@model((YES, numbers(3)), (NO, numbers(3)))
def dtypes(flag: Any, x: Any) -> Any:
    return torch.cond(
        flag, lambda y: (y.half(), y.int(), y > 1), lambda y: ((y * 2).half(), (y + 1).int(), y < 2), (x,)
    )


@model((numbers(1, 2, 3, 4), YES), (numbers(1, 2, 3, 4), NO))
def layouts(x: Any, flag: Any) -> Any:
    last = x.to(memory_format=torch.channels_last)
    turned = torch.cond(flag, lambda y: (y + 1).transpose(1, 3), lambda y: (y * 2).transpose(1, 3), (last,))
    return torch.cond(flag, lambda y: y + 1, lambda y: y * 2, (last,)), turned, last * 3


@model(*ROW_CALLS, dynamic_shapes={"args": ({0: ROWS},)})
def dynamic_branch(x: Any) -> Any:
    chosen = torch.cond(x.shape[0] > 4, lambda y: y + y.shape[0], lambda y: y * (2 * y.shape[0] - 1), (x,))
    return torch.cond(x.sum() > 0, lambda y: (y * 2).sum(0), lambda y: y.amax(0), (chosen,)), chosen


@model((numbers(4, 3),), (-numbers(4, 3),))
def branch_in_map(x: Any) -> Any:
    return map_rows(lambda row: torch.cond(row.sum() > 0, lambda y: y * 2, lambda y: y - 1, (row,)), x)


@model(*ROW_CALLS, dynamic_shapes={"args": ({0: ROWS},)})
def dynamic_map(x: Any) -> Any:
    return map_rows(lambda row: (row * 2, row.sum(), row > 0), x)


@model(*((numbers(2, *call[0].shape),) for call in ROW_CALLS), dynamic_shapes={"args": ({1: ROWS},)})
def rows_of_varying_size(x: Any) -> Any:
    return map_rows(lambda row: (row * 2, row.sum(0), row > 0), x)


@model((numbers(3), numbers(4, 3)), (-numbers(3), numbers(4, 3) * 2))
def scan_with_carry(start: Any, x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        first, second = carry
        return [second + row[0], first * 2], [first - row[1], (second * row[0]).sum()]

    return scan(step, [start, start + 1], [x, x * 2])


@model((numbers(4, 3),))
def scan_that_hands_on(x: Any) -> Any:
    return scan(lambda carry, row: (row.clone(), carry.clone()), torch.ones(3), x, reverse=True)


@model(*((numbers(3), call[0]) for call in ROW_CALLS), dynamic_shapes={"args": (None, {0: ROWS})})
def dynamic_scan(start: Any, x: Any) -> Any:
    return scan(lambda carry, row: (carry - row, carry + row), start, x)


@model(*COUNTED)
def counted_loop(count: Any, x: Any) -> Any:
    return while_loop(lambda i, y: i > 0, lambda i, y: (i - 1, y * 2 + 1), (count, x))


@model((numbers(3),), (torch.zeros(3),), (torch.ones(3) * 50,))
def loop_until(x: Any) -> Any:
    return while_loop(lambda y: y.abs().sum() < 100, lambda y: (y * 2 + 1,), (x,))


@model(*COUNTED)
def loop_that_rotates(count: Any, x: Any) -> Any:
    def step(i: Any, a: Any, b: Any, c: Any) -> Any:
        return i - 1, b.clone(), a + c, a.clone()

    return while_loop(lambda i, a, b, c: i > 0, step, (count, x, x + 1, x * 2))


@model((numbers(2),))
def loop_with_a_number(x: Any) -> Any:
    weight = x * 3
    return while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 2 + weight), (0, x))


@model(*COUNTED)
def loops_in_a_loop(count: Any, x: Any) -> Any:
    def step(i: Any, y: Any) -> Any:
        inner = while_loop(lambda j, z: j < 2, lambda j, z: (j + 1, z + 2), (i * 0, y))[1]
        return i - 1, torch.cond(inner.sum() > 0, lambda z: z - 9, lambda z: z * 2 + 1, (inner,))

    return while_loop(lambda i, y: i > 0, step, (count, x))


@model((T(2), numbers(3, 4, 3)), (T(3), -numbers(3, 4, 3)), (T(0), numbers(3, 4, 3)))
def everything(count: Any, x: Any) -> Any:
    def row(one: Any) -> Any:
        def yes(z: Any) -> Any:
            return scan(lambda carry, item: (carry + item, carry * 2), z[0] * 2, z)[0]

        return torch.cond(one.sum() > 0, yes, lambda z: z.amax(0), (one,))

    mapped = map_rows(row, x)
    return while_loop(lambda i, y: i > 0, lambda i, y: (i - 1, y + mapped), (count, mapped * 0))


class Cache(nn.Module):
    """A cache of rows, and a weight."""

    cache: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 3))
        self.weight = nn.Parameter(T([1.0, 2.0, -1.0]))


@model((numbers(4, 3), T(3)), (numbers(4, 3), T(2)), (-numbers(4, 3), T(4)), (numbers(4, 3), T(0)))
class cache_in_a_loop(Cache):  # noqa: N801
    def forward(self, x: torch.Tensor, count: torch.Tensor) -> Any:
        def step(i: Any, cache: Any) -> Any:
            at = i.reshape(1)
            row = torch.index_select(x, 0, at) * self.weight
            return i + 1, torch.index_put(cache, (at,), row + cache.sum(0, keepdim=True))

        filled = while_loop(lambda i, cache: i < count, step, (count * 0, self.cache.clone()))[1]
        self.cache.copy_(filled)
        return filled.sum(0)


@model((numbers(4, 3),), (-numbers(4, 3),), (numbers(4, 3) + 1,))
class cache_in_a_scan(Cache):  # noqa: N801
    def forward(self, x: torch.Tensor) -> Any:
        def step(carry: Any, row: Any) -> Any:
            i, cache = carry
            return (i + 1, torch.index_put(cache, (i.reshape(1),), row.unsqueeze(0))), (cache * self.weight).sum(0)

        (_, filled), read = scan(step, (torch.zeros((), dtype=torch.int64), self.cache.clone()), x)
        self.cache.copy_(filled)
        return read


@model((numbers(4, 3), YES), (numbers(4, 3), NO), (-numbers(4, 3), YES))
class cache_around_a_branch(Cache):  # noqa: N801
    def forward(self, x: torch.Tensor, flag: torch.Tensor) -> Any:
        old = self.cache * 1
        new = torch.cond(flag, lambda c, y, w: c + y * w, lambda c, y, w: c * w - y, (self.cache, x, self.weight))
        self.cache.copy_(new)
        return old, new.sum(0)
