"""What compilers mistake for something else is in programs, means what it should, and meets in swarms."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from exirkit.fuzz.generation import Policy, SeededChoices, features_of, generate
from exirkit.fuzz.generation.acts.sizes import _STEPPED
from exirkit.fuzz.generation.choices import LACKING, SWARMS
from exirkit.fuzz.generation.method.dims import from_either_end
from exirkit.fuzz.generation.method.extents import Affine
from exirkit.fuzz.generation.method.ordering import interleaved
from exirkit.fuzz.generation.method.values import Fact, Value
from exirkit.fuzz.generation.policy import MISTAKEN, draw_plan
from exirkit.fuzz.programs import Body, Call, Ref, names_in, run_eagerly
from exirkit.fuzz.programs.sizes import size_value

_VALUE = Value("x", Fact(torch.float32, (2, 3, 4), -1, 1, 2), "input")


def test_dims_from_the_end_are_the_same_dims() -> None:
    cases = (
        ("aten.permute.default", (_VALUE, [2, 0, 1]), 3),
        ("aten.unsqueeze.default", (_VALUE, 3), 4),
        ("aten.cat.default", ([_VALUE, _VALUE], 1), 3),
        ("aten.select.int", (_VALUE, 2, 1), 3),
    )
    for op, args, rank in cases:
        written = [from_either_end(SeededChoices(seed), op, args, ())[0] for seed in range(30)]
        assert {str(one[2:]) for one in written} == {str(list(args[2:]))}
        dims = [one[1] if isinstance(one[1], list) else [one[1]] for one in written]
        assert any(dim < 0 for row in dims for dim in row)
        wanted = args[1] if isinstance(args[1], list) else [args[1]]
        assert all([dim % rank for dim in row] == wanted for row in dims)
    sizes = (_VALUE, [2, 12])
    assert from_either_end(SeededChoices(1), "aten.view.default", sizes, ())[0] == list(sizes)


def test_permutations_are_written_as_if_their_dims_grew() -> None:
    written = Counter[str]()
    for seed in range(800):
        for call in (call for method in generate(seed).methods for call in method.steps):
            if call.op in ("aten.permute.default", "aten.permute_copy.default"):
                dims: Any = call.args[1]
                order = [dim % len(dims) for dim in dims]
                is_sorted = list(dims) == sorted(dims)
                written.update([f"{'sorted' if is_sorted else 'other'} {order == sorted(order)}"])
    assert written["sorted False"] >= 5, written
    assert written["other False"] > written["sorted False"]


def test_functions_are_undone_by_one_and_by_two_operands() -> None:
    undone: Counter[tuple[str, str]] = Counter()
    for seed in range(1500):
        if "inverse_calls" not in draw_plan(SeededChoices(seed), Policy()).requests:
            continue
        steps = {name: call for method in generate(seed).methods for call in method.steps for name in call.results}
        for call in steps.values():
            first = call.args[0] if call.args else None
            if isinstance(first, Ref) and first.name in steps:
                undone[steps[first.name].op, call.op] += 1
    assert undone["aten.exp.default", "aten.log.default"] >= 3
    assert undone["aten.mul.Tensor", "aten.div.Tensor"] >= 3


def test_sizes_are_greatest_for_the_least_or_the_greatest_value() -> None:
    symbol = Affine(0, (("s0", 1),), 2, 9)
    shapes = set()
    for made in _STEPPED:
        text, greatest = made(symbol)
        sizes = [size_value(text, {"s0": value}) for value in range(2, 10)]
        assert min(sizes) >= 2
        assert max(sizes) == greatest
        shapes.add((sizes[0] == greatest, sizes[-1] == greatest))
    assert shapes == {(True, False), (False, True)}


def test_calls_stand_in_another_order_behind_what_they_read() -> None:
    steps = [Call("aten.neg.default", (Ref(f"v{at // 2}"),), (), (f"v{at + 1}",)) for at in range(9)]
    orders = {interleaved(SeededChoices(seed), steps) for seed in range(20)}
    assert len(orders) > 10
    for order in orders:
        assert Counter(order) == Counter(steps)
        made = {"v0"}
        for call in order:
            assert made.issuperset(names_in(call.arguments))
            made.update(name for name in call.results if name)


def test_writes_stay_between_what_reads_before_and_behind() -> None:
    def called(op: str, result: str, *args: str) -> Call:
        return Call(f"aten.{op}", tuple(Ref(one) for one in args), (), (result,))

    inner = called("neg_.default", "d", "c")
    cond = Call("cond", (Ref("p"), (Ref("v"),)), (), ("r",), (Body("more", ("c",), (inner,), (Ref("c"),)),))
    steps = [
        called("clone.default", "base", "x"),
        called("alias.default", "v", "base"),
        called("neg.default", "before", "v"),
        called("add_.Tensor", "w", "base", "y"),
        called("abs.default", "between", "v"),
        cond,
        called("exp.default", "behind", "w"),
        called("exp.default", "apart", "y"),
    ]
    orders = [[one.results[0] for one in interleaved(SeededChoices(seed), steps)] for seed in range(60)]
    assert len({tuple(order) for order in orders}) > 5
    for order in orders:
        place = {name: at for at, name in enumerate(order) if name is not None}
        assert place["before"] < place["w"] < place["between"] < place["r"] < place["behind"]


def test_programs_with_what_is_mistaken_run() -> None:
    left = dict.fromkeys(MISTAKEN, 8)
    shown: Counter[str] = Counter()
    for seed in range(2000):
        requests = draw_plan(SeededChoices(seed), Policy()).requests & left.keys()
        if any(left[name] > 0 for name in requests):
            program = generate(seed)
            assert run_eagerly(program)
            shown.update(features_of(program) & MISTAKEN.keys())
            for name in requests:
                left[name] -= 1
        if all(number <= 0 for number in left.values()):
            break
    assert max(left.values()) <= 0
    # What can be read off a program.
    assert shown.keys() == {"dims_from_end", "odd_state", "stepped_size", "strange_numbers"}


def test_each_swarm_lacks_a_quarter_of_the_features() -> None:
    names = [f"feature {at}" for at in range(40)]
    lacked = {name: [seed for seed in range(SWARMS) if SeededChoices(seed).emphasis(name) == 0] for name in names}
    assert all(len(seeds) == LACKING for seeds in lacked.values())
    assert len({tuple(seeds) for seeds in lacked.values()}) > 10
    period = range(127 * SWARMS)
    plans = {swarms: Counter[str]() for swarms in (False, True)}
    for swarms, counts in plans.items():
        for seed in period:
            counts.update(draw_plan(SeededChoices(seed), Policy(swarms=swarms)).requests)
    assert plans[True].keys() == plans[False].keys()
    # As often as without, over all swarms; those that come only with others meet these as if by chance.
    assert all(abs(plans[True][name] - many) < 0.05 * len(period) for name, many in plans[False].items())
