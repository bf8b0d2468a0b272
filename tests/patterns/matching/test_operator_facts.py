"""What the matcher takes for granted about operators is tried on tensors, and a fact that is wrong is found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.patterns.matching.fact_trials import Facts, find, outcome, planted, same, shipped_facts, tensor

from exirkit.ir import Commutes
from exirkit.patterns.operators import arguments as argument_meanings
from exirkit.patterns.operators.arguments import Arguments, default_of, meaning_of
from exirkit.patterns.operators.table import Traits, traits_of

SEEDS = range(12)
SHAPES = [(2, 3), (4, 1, 3), (2, 3, 4, 5), (3,)]


# What commutes


def arguments_of(op: Any, rng: random.Random) -> dict[str, Any]:
    """Return the arguments of an operator of two tensors, numbers at random."""
    name = str(op)
    dtype = torch.int32 if "bitwise" in name else torch.bool if "logical" in name else torch.float32
    shape = rng.choice(SHAPES)
    given: dict[str, Any] = {}
    for argument in op._schema.arguments:
        kind = str(argument.real_type)
        if kind == "Tensor":
            given[argument.name] = tensor(rng, shape, dtype)
        elif kind == "number":
            given[argument.name] = rng.choice((1, 2, 0.5))
    return given


def wrong_about_commuting(form: Facts) -> Iterator[str]:
    """Yield operators whose arguments cannot be exchanged as stated."""
    for name, fact in form.commutes.items():
        op = find(name)
        if not all(commutes(op, fact, seed) for seed in SEEDS):
            yield name


def commutes(op: Any, fact: Commutes, seed: int) -> bool:
    """Whether exchanging two arguments changes nothing, where the condition holds."""
    given = arguments_of(op, random.Random(seed)) | fact.when
    one, other = fact.arguments
    return same(op(**given), op(**given | {one: given[other], other: given[one]}))


def test_arguments_commute_as_stated() -> None:
    assert not list(wrong_about_commuting(shipped_facts()))


def test_conditions_on_commuting_are_needed() -> None:
    """Without its condition an operator does not commute: the condition is not there for nothing."""
    for name, fact in shipped_facts().commutes.items():
        if fact.when:
            bare = Commutes(arguments=fact.arguments)
            assert not all(commutes(find(name), bare, seed) for seed in SEEDS), name


@pytest.mark.parametrize("name", ["aten.sub.Tensor", "aten.div.Tensor", "aten.lt.Tensor", "aten.pow.Tensor_Tensor"])
def test_what_does_not_commute_is_found(name: str) -> None:
    wrong = planted(commutes={**shipped_facts().commutes, name: Commutes(arguments=("self", "other"))})
    if name == "aten.pow.Tensor_Tensor":
        wrong = planted(commutes={name: Commutes(arguments=("self", "exponent"))})
    assert list(wrong_about_commuting(wrong)) == [name]


def test_a_missing_condition_is_found() -> None:
    wrong = planted(commutes={"aten.add.Tensor": Commutes(arguments=("self", "other"))})
    assert list(wrong_about_commuting(wrong)) == ["aten.add.Tensor"]


# Arguments that count dims


def calls_over_dims(
    name: str, names: tuple[str, ...], rng: random.Random
) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Yield arguments of a call, dims counted from the front, without those that are dims; then the dims."""
    op = find(name)
    shape = rng.choice([shape for shape in SHAPES if len(shape) > 1])
    is_list = str(op._schema.arguments[0].real_type) == "List[Tensor]"
    x = tensor(rng, shape)
    for _ in range(3):
        dims = {one: rng.randrange(len(shape)) for one in names}
        first: Any = [x, x + 1] if is_list else x
        others = {one: value for one, value in _others(op, x, dims, rng).items() if one not in names}
        yield [first, others], _as_lists(op, dims, len(shape), rng)


def _others(op: Any, x: torch.Tensor, dims: dict[str, int], rng: random.Random) -> dict[str, Any]:
    at = next(iter(dims.values()))
    size = x.shape[at] if at < x.dim() else 1
    known: dict[str, Any] = {
        "half_to_float": False, "split_size": 2, "split_sizes": [1, size - 1], "chunks": 2, "k": 1, "start": 0,
        "length": 1, "index": 0, "end": max(1, size - 1),
    }  # fmt: skip
    if "index_select" in str(op):
        known["index"] = torch.tensor([0, size - 1])
    if "gather" in str(op):
        known["index"] = torch.zeros_like(x, dtype=torch.int64)
    names = [argument.name for argument in op._schema.arguments[1:] if not argument.has_default_value()]
    return {name: known[name] for name in names if name in known}


def _as_lists(op: Any, dims: dict[str, int], rank: int, rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for argument in op._schema.arguments:
        if argument.name not in dims:
            continue
        is_list = "List[int]" in str(argument.real_type)
        whole = list(range(rank))
        rng.shuffle(whole)
        found[argument.name] = (
            (whole if "permute" in str(op) else [dims[argument.name]]) if is_list else dims[argument.name]
        )
    return found


def from_the_back(dims: dict[str, Any], rank: int) -> dict[str, Any]:
    """Return the same dims, counted from the back."""
    return {
        name: [one - rank for one in value] if isinstance(value, list) else value - rank for name, value in dims.items()
    }


def wrong_about_dims(form: Facts) -> Iterator[str]:
    """Yield operators in which -1 is not the last dim of what the facts say."""
    stated = [(name, names, 0) for name, names in form.dims.items()]
    stated += [(name, names, 1) for name, names in form.result_dims.items()]
    for name, names, more in stated:
        found = [_counts_dims(name, names, more, seed) for seed in SEEDS]
        if False in found or True not in found:
            yield name


def _counts_dims(name: str, names: tuple[str, ...], more: int, seed: int) -> bool | None:
    """Whether dims count from both ends; None if nothing could be tried."""
    op = find(name)
    if not set(names) <= {argument.name for argument in op._schema.arguments}:
        return False
    rng = random.Random(f"{name}:{seed}")
    tried = None
    for (first, others), dims in calls_over_dims(name, names, rng):
        rank = (first[0] if isinstance(first, list) else first).dim() + more
        front = outcome(op, first, **others, **dims)
        if front is None:
            continue
        tried = True
        back = outcome(op, first, **others, **from_the_back(dims, rank))
        if back is None or not same(front, back):
            return False
    return tried


def test_dims_count_from_both_ends() -> None:
    assert not list(wrong_about_dims(shipped_facts()))


@pytest.mark.parametrize(
    ("name", "argument", "family"),
    [
        ("aten.unsqueeze.default", "dim", "dims"),
        ("aten.stack.default", "dim", "dims"),
        ("aten.softmax.int", "dim", "result_dims"),
        ("aten.select.int", "index", "dims"),
        ("aten.split.Tensor", "split_size", "dims"),
        ("aten.topk.default", "k", "dims"),
        ("aten.permute.default", "axes", "dims"),
    ],
)
def test_what_counts_no_dims_is_found(name: str, argument: str, family: str) -> None:
    wrong: dict[str, Any] = {"dims": {}, "result_dims": {}} | {family: {name: (argument,)}}
    assert list(wrong_about_dims(planted(**wrong))) == [name]


# Lists in which one element stands for two


def wrong_about_pairs(form: Facts) -> Iterator[str]:
    """Yield operators and lists in which [k] is not [k, k]."""
    for name, lists in form.pairs.items():
        op = find(name)
        for one in lists:
            if not all(_stands_for_two(op, one, seed) for seed in range(8)):
                yield f"{name}: {one}"


def _stands_for_two(op: Any, name: str, seed: int) -> bool:
    rng = random.Random(seed)
    x = tensor(rng, (1, 2, 9, 8))
    value = {"kernel_size": rng.choice((2, 3)), "padding": rng.choice((0, 1)), "stride": rng.choice((2, 3))}.get(
        name, 1
    )
    given: dict[str, Any] = {"weight": tensor(rng, (3, 2, 3, 3))} if "conv" in str(op) else {"kernel_size": [3, 3]}
    single, pair = (outcome(op, x, **given | {name: form}) for form in ([value], [value, value]))
    return single is not None and pair is not None and same(single, pair)


def test_one_element_stands_for_two() -> None:
    assert not list(wrong_about_pairs(shipped_facts()))


def test_a_list_that_is_not_a_pair_is_found() -> None:
    wrong = planted(pairs={"aten.conv2d.default": ["stride"], "aten.adaptive_avg_pool2d.default": ["output_size"]})
    assert list(wrong_about_pairs(wrong)) == ["aten.adaptive_avg_pool2d.default: output_size"]


def test_shipped_facts_reach_the_matcher() -> None:
    form = shipped_facts()
    for name, fact in form.commutes.items():
        (commuting,) = traits_of(find(name)).commutes
        assert commuting[:2] == fact.arguments
        assert (commuting[2] is None) == (not fact.when)
    for name, names in (form.dims | form.result_dims).items():
        assert traits_of(find(name)).dims == set(names)
        assert traits_of(find(name)).new_dims == (name in form.result_dims)


# What defaults mean


def _meant(op: Any, name: str, given: dict[str, Any]) -> list[Any]:
    """Return what may be written for a default, as the matcher takes it."""
    arguments = Arguments({**{one.name: default_of(one) for one in op._schema.arguments
                              if one.has_default_value()}, **given}, {})  # fmt: skip
    meaning = meaning_of(op, name)
    assert meaning is not None, f"{op} has no meaning of {name}"
    default = next(default_of(one) for one in op._schema.arguments if one.name == name)
    written = meaning(default if name in arguments else None, arguments)
    return [written, written[::-1]] if name == "dim" and isinstance(written, list) else [written]


def wrong_about_defaults(form: Facts) -> Iterator[str]:
    """Yield operators for which what a default means, written out, gives something else."""
    for name, fact in form.defaults.items():
        op = find(name)
        for dtype in (torch.float32, torch.int32):
            given = _call_of(op, dtype)
            plain = outcome(op, **given)
            for argument in fact if plain is not None else ():
                bare = {key: value for key, value in given.items() if key != argument}
                if not _are_alike(op, bare, argument, _meant(op, argument, bare)):
                    yield f"{name}: {argument}"


def _are_alike(op: Any, given: dict[str, Any], argument: str, written: list[Any]) -> bool:
    default = {} if _has_default(op, argument) else {argument: None}
    return all(_is_equal(op, {**given, **default}, {**given, argument: one}) for one in written)


def _is_equal(op: Any, one: dict[str, Any], other: dict[str, Any]) -> bool:
    results: list[Any] = []
    for given in (one, other):
        torch.manual_seed(0)
        results.append(_one(outcome(op, **given)))
    left, right = results
    if left is None or right is None:
        return left is right
    if "empty" in str(op):
        return bool(left.dtype == right.dtype)
    return bool(left.dtype == right.dtype) and torch.allclose(left, right, equal_nan=True)


def _one(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) else value


def _has_default(op: Any, name: str) -> bool:
    return any(one.name == name and one.has_default_value() for one in op._schema.arguments)


def _call_of(op: Any, dtype: torch.dtype) -> dict[str, Any]:
    """Return arguments of an operator without those that have defaults."""
    rank = int(next((part for part in str(op) if part.isdigit()), "2")) if "pool" in str(op) else 2
    fitting = {"kernel_size": [2] * rank, "size": [2, 3], "fill_value": 2, "s": 2, "dim": 1}
    shape = (1, 2, *[4] * rank) if "pool" in str(op) else (2, 1, 4, 8) if "scaled_dot" in str(op) else (2, 3, 4)
    given: dict[str, Any] = {}
    for argument in op._schema.arguments:
        if str(argument.real_type) == "Tensor":
            given[argument.name] = tensor(random.Random(7), shape, dtype)
        elif not argument.has_default_value() and argument.name in fitting:
            given[argument.name] = fitting[argument.name]
    if "dim" in given and str(next(a.real_type for a in op._schema.arguments if a.name == "dim")) != "int":
        given["dim"] = [1]
    return given


def test_defaults_mean_what_is_stated() -> None:
    assert not list(wrong_about_defaults(shipped_facts()))


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("aten.avg_pool2d.default", {"stride": "padding"}),
        ("aten.sum.default", {"dtype": "dtype of input"}),
        ("aten.full.default", {"dtype": "default dtype"}),
        ("aten.zeros_like.default", {"dtype": "default dtype"}),
    ],
)
def test_a_default_that_means_something_else_is_found(
    name: str, fact: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Traits(defaults=fact)
    monkeypatch.setattr(argument_meanings, "traits_of", lambda op: wrong)
    meaning_of.cache_clear()
    assert list(wrong_about_defaults(planted(defaults={name: fact})))
    meaning_of.cache_clear()
