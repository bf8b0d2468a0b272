"""Small models with tensors whose sizes data decide, run with more and with less from one call to the next."""

from __future__ import annotations

from typing import Any

import torch
from tests.models.control_flow.programs import ROWS, T, model, numbers, while_loop

CALLS = tuple((T(values),) for values in ([1.0, 0, 2, 0], [1.0, 3, 2, 5], [0.0, 0, 0, 0], [0.0, 0, 7, 0]))


@model(*CALLS)
def places_and_elements(x: Any) -> Any:
    where = torch.nonzero(x)
    found = x[x > 1]
    return (
        where * 2 + 1,
        where.reshape(-1),
        found * 2,
        found.sum(),
        torch.stack([x, x + 1], 1)[x > 1] @ torch.ones(2, 3),
    )


@model(*CALLS)
def control_of_what_was_found(x: Any) -> Any:
    found = x[x > 1]
    chosen = torch.cond(x.sum() > 3, lambda y: y * 2, lambda y: y + 1, (found,))
    doubled = while_loop(lambda n, y: n < 3, lambda n, y: (n + 1, y * 2), (torch.zeros((), dtype=torch.int64), found))
    return chosen, doubled[1]


@model(*((T(count), numbers(8)) for count in (3, 7, 1, 8)))
def sizes_from_a_number(count: Any, x: Any) -> Any:
    size = count.item()
    torch._check(size >= 0)
    torch._check(size <= x.shape[0])
    return torch.arange(size) * 2, torch.zeros(size, 2) + 1, x[:size] * 2 + size


@model(*((numbers(count, 3),) for count in (4, 8, 2, 8)), dynamic_shapes={"args": ({0: ROWS},)})
def sizes_of_sizes(x: Any) -> Any:
    where = torch.nonzero(x)
    double = torch.cat([x, x])
    return (
        where + x.shape[0],
        double,
        x.reshape(-1),
        x.new_zeros(x.shape[0] * 2 + 1, 2),
        double.sum(0) * (x.shape[0] % 3),
    )


@model(*((T(flag), numbers(4)) for flag in (True, False, True)))
def branches_of_two_sizes(flag: Any, x: Any) -> Any:
    return torch.cond(flag, lambda y: y[:2] + 1, lambda y: y[:3] * 2, (x,))


REPEATED = tuple(
    (T(values).reshape(2, 3), T(counts))
    for values, counts in (([3.0, 1, 1, 3, 3, 2], [1, 0, 4]), ([0.0] * 6, [0, 0, 5]), ([1.0, 2, 3, 4, 5, 6], [5, 0, 0]))
)


@model(*REPEATED)
def counted_and_repeated(x: Any, counts: Any) -> Any:
    values, places = torch.unique(x, return_inverse=True)
    runs, groups = torch.unique_consecutive(x, return_inverse=True)
    return (
        values * 2,
        places,
        runs,
        groups + 1,
        torch.masked_select(x, x[0] > 1),
        torch.repeat_interleave(x, counts, dim=1, output_size=5),
        torch.cond(x.sum() > 0, lambda y: torch.unique(y).sum(), lambda y: y.amax() - 1, (x,)),
    )
