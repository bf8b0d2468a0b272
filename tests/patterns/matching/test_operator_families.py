"""Families of operators are what they are called, tried on tensors; a stranger among them is found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.patterns.matching.fact_trials import Facts, find, outcome, planted, same, shipped_facts, tensor

from exirkit.patterns.operators.table import traits_of

MOVING = ("aten.cat.default", "aten.stack.default")


def unary(name: str) -> Any:
    """Return what calls an operator with a tensor, and with whatever else it cannot do without."""
    op = find(name)

    def call(x: torch.Tensor) -> Any:
        shape, rank = list(x.shape), x.dim()
        known: dict[str, Any] = {
            "implicit": False, "size": shape, "dims": list(range(rank))[::-1], "dim": 0, "dim0": 0, "dim1": rank - 1,
            "shape": shape[::-1], "index": 0, "split_sizes": [1, shape[0] - 1] if rank else [], "start": 0,
        }  # fmt: skip
        if "expand" in name:
            known["size"] = [2, *shape]
        if "view" in name:
            known["size"] = [x.numel()]
        if name.endswith(("squeeze.dims", "squeeze_copy.dims")):
            known["dim"] = [0]
        needed = [one for one in op._schema.arguments[1:] if not one.has_default_value()]
        return op(x, **{one.name: known[one.name] for one in needed})

    return call


def wrong_about_moving(form: Facts) -> Iterator[str]:
    """Yield operators whose results have elements, or bits, that the tensor did not have."""
    for name in (*form.families["copy_like"], *form.families["views"]):
        shape = (4, 3) if ".t" in name else (4, 3, 2)
        if not all(_moves(unary(name), tensor(random.Random(seed), shape)) for seed in range(6)):
            yield name


def _moves(call: Callable[[torch.Tensor], Any], x: torch.Tensor) -> bool:
    x = x + 0.05
    # Arithmetic would show in these, or raise.
    x.view(-1)[:4] = torch.tensor([float("nan"), float("inf"), -0.0, torch.finfo(x.dtype).tiny / 4])
    result = outcome(call, x)
    if result is None:
        return False
    parts = result if isinstance(result, list | tuple) else [result]
    known = {int(one) for one in x.contiguous().view(torch.int32).flatten()}
    return all(
        part.dtype == x.dtype and {int(one) for one in part.contiguous().view(torch.int32).flatten()} <= known
        for part in parts
    )


def test_what_moves_data_computes_nothing() -> None:
    assert not list(wrong_about_moving(shipped_facts()))
    x = tensor(random.Random(1), (2, 3))
    for name in MOVING:
        assert _moves(_twice(find(name)), x), name
        assert traits_of(find(name)).moves_data


def _twice(op: Any) -> Callable[[torch.Tensor], Any]:
    return lambda one: op([one, one])


@pytest.mark.parametrize("name", ["aten.neg.default", "aten.relu.default", "aten.abs.default", "aten.sign.default"])
def test_what_computes_is_found(name: str) -> None:
    families = shipped_facts().families
    wrong = planted(families={**families, "copy_like": [*families["copy_like"], name]})
    assert list(wrong_about_moving(wrong)) == [name]


def wrong_about_copies(form: Facts) -> Iterator[str]:
    """Yield members of `copy_like` that do not return what they get."""
    for name in form.families["copy_like"]:
        x = tensor(random.Random(3), (2, 3, 4, 5))
        result = outcome(unary(name), x)
        if result is None or not isinstance(result, torch.Tensor) or not same(result, x):
            yield name


def wrong_about_pointwise(form: Facts) -> Iterator[str]:
    """Yield operators of which an element does not depend on the corresponding element alone."""
    for name in (*form.families["unary_pointwise"], *form.families["pointwise"]):
        op = find(name)
        x = tensor(random.Random(5), (3, 4)).abs() + 0.5
        count = sum(str(one.real_type) == "Tensor" for one in op._schema.arguments)
        if (name in form.families["unary_pointwise"]) != (count == 1):
            yield name
            continue
        given = [x > 1, x, x + 1] if "where" in name else [x, x + 1][:count]
        whole = op(*given)
        rows = [op(*(one[row : row + 1, :1] for one in given)) for row in range(3)]
        if whole.shape != x.shape or not torch.allclose(torch.cat(rows), whole[:, :1], equal_nan=True):
            yield name


def wrong_about_reductions(form: Facts) -> Iterator[str]:
    """Yield operators that do not reduce a dim to one element, or depend on the order in it."""
    for name in form.families["reductions"]:
        op, x = find(name), tensor(random.Random(7), (4, 5, 3))
        result = outcome(op, x, [1], keepdim=True)
        order = outcome(op, x.flip(1), [1], keepdim=True)
        if result is None or result.shape != (4, 1, 3) or not torch.allclose(result, order):
            yield name


def wrong_about_creation(form: Facts) -> Iterator[str]:
    """Yield operators that read elements of a tensor."""
    for name in form.families["creates"]:
        op = find(name)
        first = [1.0, 2.0] if "arange" in name else [2.0] if "scalar" in name else [[2, 3]]
        given = [[torch.ones(2, 3)], [torch.zeros(2, 3)]] if "like" in name else [first, first]
        results = [outcome(op, *one, *([0.5] if "full" in name else [])) for one in given]
        if results[0] is None or not same(*results):
            yield name


def test_families_are_what_they_are_called() -> None:
    shipped = shipped_facts()
    found = [wrong_about_copies, wrong_about_pointwise, wrong_about_reductions, wrong_about_creation]
    assert [list(check(shipped)) for check in found] == [[], [], [], []]


@pytest.mark.parametrize(
    ("family", "name", "check"),
    [
        ("copy_like", "aten.permute.default", wrong_about_copies),
        ("copy_like", "aten.t.default", wrong_about_copies),
        ("unary_pointwise", "aten.cumsum.default", wrong_about_pointwise),
        ("unary_pointwise", "aten.add.Tensor", wrong_about_pointwise),
        ("pointwise", "aten.mm.default", wrong_about_pointwise),
        ("reductions", "aten.cumsum.default", wrong_about_reductions),
        ("reductions", "aten.softmax.int", wrong_about_reductions),
        ("creates", "aten.clone.default", wrong_about_creation),
    ],
)
def test_strangers_in_families_are_found(family: str, name: str, check: Callable[[Facts], Iterator[str]]) -> None:
    families = shipped_facts().families
    wrong = planted(families={**families, family: [*families[family], name]})
    assert name in _named(check, wrong)


def _named(check: Callable[[Facts], Iterator[str]], form: Facts) -> list[str]:
    """Return what a check complains of; one that breaks on an operator complains of it."""
    try:
        return list(check(form))
    except (RuntimeError, TypeError, ValueError, IndexError):
        return [family[-1] for family in form.families.values()]


def test_quantization_and_its_inverse() -> None:
    form = shipped_facts()
    for one, other in zip(form.families["quantize"], form.families["dequantize"], strict=True):
        x = torch.tensor([[-1.0, 0.25], [0.5, 1.5]])
        scale: Any = 0.25
        zero: Any = 3
        given: tuple[Any, ...] = (scale, zero, -128, 127, torch.int8)
        if "channel" in one:
            given = (torch.tensor([0.25, 0.5]), torch.tensor([3, 0]), 0, -128, 127, torch.int8)
        stored = find(one)(x, *given)
        assert stored.dtype == torch.int8
        assert torch.equal(find(other)(stored, *given), x)
