"""Plans of random demands, compared with marking every byte at every step."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exirkit.ir import ContractError, ModelError, TensorSpec, UsageError
from exirkit.passes.memory.planners import (
    MemoryAlgoResult,
    MemoryPlanningAlgorithmSuite,
    SpecAllocResult,
    greedy,
    naive,
    portfolio,
)

Row = tuple[int, int, int, int | None]


def make_spec(nbytes: int, first: int, last: int, mem_id: int | None = None) -> TensorSpec:
    spec = TensorSpec(torch.uint8, [nbytes])
    spec.lifetime, spec.mem_id = [first, last], mem_id
    return spec


def make_view(base: TensorSpec, nbytes: int, offset_bytes: int) -> TensorSpec:
    view = make_spec(nbytes, 0, 0)
    view.storage_base, view.storage_offset_bytes = base, offset_bytes
    return view


def plan(specs: Sequence[TensorSpec], algorithm: Any = portfolio, alignment: int = 16) -> MemoryAlgoResult:
    return algorithm(alignment, specs, None, None)


def paint(specs: Sequence[TensorSpec], result: MemoryAlgoResult) -> dict[int, int]:
    """Paint each tensor's bytes at each of its steps; fail on paint that is not dry; return peak bytes by arena."""
    marked: set[tuple[int, int, int]] = set()
    live: dict[tuple[int, int], int] = {}
    for spec in specs:
        place = result.spec_dict[spec]
        first, last = spec.lifetime
        assert first is not None
        assert last is not None
        for step in range(first, last + 1):
            live[place.mem_id, step] = live.get((place.mem_id, step), 0) + spec.nbytes()
            for byte in range(place.mem_offset, place.mem_offset + spec.nbytes()):
                assert (place.mem_id, step, byte) not in marked, "two live tensors share a byte"
                marked.add((place.mem_id, step, byte))
    return {mem_id: max(n for (other, _), n in live.items() if other == mem_id) for mem_id, _ in live}


rows = st.lists(
    st.tuples(st.integers(0, 70), st.integers(0, 12), st.integers(0, 12), st.sampled_from([None, 1, 2, 4])),
    max_size=24,
)


def specs_of(rows: Sequence[Row]) -> list[TensorSpec]:
    return [make_spec(size, min(a, b), max(a, b), mem_id) for size, a, b, mem_id in rows]


@pytest.mark.parametrize("algorithm", [greedy, naive, portfolio], ids=["greedy", "naive", "portfolio"])
@given(rows=rows, alignment=st.sampled_from([1, 2, 16, 48]))
def test_no_byte_is_used_twice(algorithm: Any, rows: list[Row], alignment: int) -> None:
    specs = specs_of(rows)
    result = plan(specs, algorithm, alignment)
    peaks = paint(specs, result)
    assert result.bufsizes[0] == 0
    assert len(result.bufsizes) >= 2
    for spec in specs:
        place = result.spec_dict[spec]
        assert place.mem_offset % alignment == 0
        assert place.mem_offset + spec.nbytes() <= result.bufsizes[place.mem_id]
    for mem_id, peak in peaks.items():
        assert result.bufsizes[mem_id] >= peak
        assert result.bufsizes[mem_id] % alignment == 0


@given(rows=rows)
def test_portfolio_is_a_pure_function(rows: list[Row]) -> None:
    specs = specs_of(rows)
    before = [(spec.mem_id, spec.mem_offset, spec.mem_obj_id, spec.alignment, tuple(spec.lifetime)) for spec in specs]
    first, second = plan(specs), plan(specs)
    variants = specs_of(rows)
    third = plan(variants)
    assert first.bufsizes == second.bufsizes == third.bufsizes
    assert [first.spec_dict[spec] for spec in specs] == [third.spec_dict[spec] for spec in variants]
    assert before == [
        (spec.mem_id, spec.mem_offset, spec.mem_obj_id, spec.alignment, tuple(spec.lifetime)) for spec in specs
    ]


@given(rows=rows)
def test_tensors_that_share_bytes_have_one_object_number(rows: list[Row]) -> None:
    specs = specs_of(rows)
    result = plan(specs)
    for left in specs:
        for right in specs:
            a, b = result.spec_dict[left], result.spec_dict[right]
            shares = a.mem_offset < b.mem_offset + right.nbytes() and b.mem_offset < a.mem_offset + left.nbytes()
            if shares and a.mem_id == b.mem_id and left.nbytes() and right.nbytes():
                assert a.mem_obj_id == b.mem_obj_id


@given(rows=rows)
def test_without_overlapping_allocations_an_object_is_shared_wholly(rows: list[Row]) -> None:
    specs = specs_of(rows)
    result = plan(specs, functools.partial(greedy, allow_overlapping_allocations=False))
    paint(specs, result)
    starts: dict[tuple[int, int | None], set[int]] = {}
    for spec in specs:
        if spec.nbytes():
            place = result.spec_dict[spec]
            starts.setdefault((place.mem_id, place.mem_obj_id), set()).add(place.mem_offset)
    assert all(len(offsets) == 1 for offsets in starts.values())


@given(sizes=st.lists(st.integers(1, 500), min_size=2, max_size=60))
def test_a_chain_needs_its_largest_neighbours_and_no_more(sizes: list[int]) -> None:
    specs = [make_spec(size, step, step + 1) for step, size in enumerate(sizes)]
    aligned = [spec.allocated_memory for spec in specs]
    assert plan(specs).bufsizes == [0, max(map(sum, itertools.pairwise(aligned)))]


def test_lifelong_tensors_lie_at_the_bottom_of_a_smallest_plan() -> None:
    state = [make_spec(100, 0, 50) for _ in range(5)]
    chain = [make_spec(64, step, step + 1) for step in range(50)]
    assert plan([*chain, *state]).bufsizes == [0, 5 * 112 + 2 * 64]


@given(rows=rows, pins=st.sets(st.integers(0, 20), max_size=2))
def test_pinned_tensors_stay_and_others_keep_clear(rows: list[Row], pins: set[int]) -> None:
    specs = specs_of(rows)
    pinned = [make_spec(32, 0, 12) for _ in pins]
    for spec, pin in zip(pinned, sorted(pins), strict=True):
        spec.mem_offset = pin * 32
    for algorithm in (greedy, naive, portfolio):
        result = plan([*specs, *pinned], algorithm)
        paint([*specs, *pinned], result)
        for spec in pinned:
            assert result.spec_dict[spec].mem_offset == spec.mem_offset
            assert result.spec_dict[spec].mem_obj_id is None


@pytest.mark.parametrize("algorithm", [greedy, naive, portfolio])
def test_views_lie_in_their_base(algorithm: Any) -> None:
    base = make_spec(64, 0, 5)
    inner = make_view(base, 48, 16)
    innermost = make_view(inner, 16, 32)
    result = plan([innermost, make_spec(100, 0, 5), inner, base], algorithm)
    start = result.spec_dict[base].mem_offset
    assert result.spec_dict[inner].mem_offset == start + 16
    assert result.spec_dict[innermost].mem_offset == start + 48
    assert result.bufsizes == [0, 112 + 64]


def test_view_without_base_and_circular_bases_are_rejected() -> None:
    base = make_spec(64, 0, 5)
    view = make_view(base, 16, 0)
    with pytest.raises(ContractError, match="EK462"):
        plan([view])
    base.storage_base = view
    with pytest.raises(ContractError, match="EK458"):
        plan([view, base])


def test_extra_padding_is_added_to_used_arenas() -> None:
    specs = [make_spec(16, 0, 1, 1), make_spec(16, 0, 1, 3)]
    assert greedy(16, specs, None, None, 64).bufsizes == [0, 80, 0, 80]  # type: ignore[arg-type]


def test_nothing_to_plan() -> None:
    assert plan([]).bufsizes == [0, 0]
    assert plan([make_spec(0, 0, 3)]).bufsizes == [0, 0]


@pytest.mark.parametrize("mem_id", [0, -1, True, "1"])
def test_wish_for_an_arena_that_does_not_exist(mem_id: Any) -> None:
    with pytest.raises(UsageError, match="EK453"):
        plan([make_spec(16, 0, 1, mem_id)])


def test_other_bad_input_is_rejected() -> None:
    with pytest.raises(UsageError, match="EK459"):
        plan([], alignment=0)
    with pytest.raises(UsageError, match="EK463"):
        plan([TensorSpec(torch.uint8, [4])])
    with pytest.raises(UsageError, match="EK461"):
        MemoryPlanningAlgorithmSuite([])
    symbolic = make_spec(4, 0, 1)
    symbolic.shape = [torch.SymInt]  # type: ignore[list-item]
    with pytest.raises(ModelError, match="EK451"):
        plan([symbolic])


def test_suite_keeps_the_smallest_whatever_the_order() -> None:
    specs = [make_spec(64, step, step) for step in range(4)]
    orders: list[list[Callable[..., Any]]] = [[naive, greedy], [greedy, naive]]
    for order in orders:
        assert plan(specs, MemoryPlanningAlgorithmSuite(order)).bufsizes == [0, 64]
    assert plan(specs, naive).bufsizes == [0, 256]


def test_suite_keeps_the_first_of_equals() -> None:
    def at(offset: int, size: int) -> Callable[..., MemoryAlgoResult]:
        def algorithm(alignment: int, specs: Sequence[TensorSpec], *_: object) -> MemoryAlgoResult:
            return MemoryAlgoResult({spec: SpecAllocResult(1, 0, offset) for spec in specs}, [0, size])

        return algorithm

    specs = [make_spec(16, 0, 1)]
    result = plan(specs, MemoryPlanningAlgorithmSuite([at(48, 96), at(16, 64), at(32, 64)]))
    assert result.spec_dict[specs[0]].mem_offset == 16


@settings(max_examples=30)
@given(data=st.data())
def test_lists_and_arrays_of_neighbours_give_the_same_placement(data: st.DataObject) -> None:
    from exirkit.passes.memory.problem import Demand, DensePacker, SparsePacker

    count = data.draw(st.integers(1, 120))
    spans = data.draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=count, max_size=count))
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    demand = Demand([min(span) for span in spans], [max(span) for span in spans], sizes)
    if data.draw(st.booleans()):
        demand.pinned[0] = 5
    order = data.draw(st.permutations(range(count)))
    for tight in (False, True):
        sparse, dense = SparsePacker(demand).pack(order, tight=tight), DensePacker(demand).pack(order, tight=tight)
        assert sparse == dense
