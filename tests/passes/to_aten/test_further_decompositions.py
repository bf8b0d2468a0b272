"""Operators that torch does not decompose, against eager PyTorch."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import pytest
import torch
from tests.models.case import BRAIN, EXACT
from tests.official.oracle import OfficialRuntime
from tests.passes.legalize.legalized import assert_runs
from torch.export import Dim, export

from exirkit.ir import GraphEditor
from exirkit.passes.to_aten.expressions import EXPRESSIONS
from exirkit.passes.to_aten.scatters import diagonal_scatter, select_scatter
from exirkit.program import to_edge

NAN = float("nan")


@pytest.mark.executorch
@pytest.mark.parametrize(
    ("x", "bins", "low", "high"),
    [
        (torch.randint(-1, 9, (50,)).float(), 8, 0, 7),
        (torch.randn(5, 100), 13, -1.5, 2.3),
        (torch.randn(5, 10), 7, 0, 0),
        (torch.randn(5, 10), 5, 3, 3),
        (torch.full((4,), 2.5), 6, 0, 0),
        (torch.tensor([1.0, -1, NAN, torch.inf, 0.5]), 7, -1, 1),
        (torch.randn(99, dtype=torch.float64), 7, -1, 1),
        (torch.randn(0), 7, -1, 1),
    ],
    ids=["experts", "between", "own bounds", "equal bounds", "one value", "odd", "double", "none"],
)
def test_histogram(x: torch.Tensor, bins: int, low: float, high: float, official_runtime: OfficialRuntime) -> None:
    assert_runs(lambda x: torch.histc(x, bins, low, high), [[x]], official_runtime, tolerance=EXACT)


def test_places_that_are_written_keep_the_layout_around_them() -> None:
    for x in (torch.randn(2, 3, 4), torch.randn(2, 3, 4, 2).to(memory_format=torch.channels_last), torch.arange(3)):
        for dim in range(-x.dim(), x.dim()):
            for index in range(-x.shape[dim], x.shape[dim]):
                new = torch.ones_like(x.select(dim, 0)).contiguous()
                found = select_scatter(x, new, dim, index)
                assert torch.equal(found, torch.select_scatter(x, new, dim, index))
                assert found.stride() == x.stride()


@pytest.mark.executorch
def test_diagonals_that_are_written(official_runtime: OfficialRuntime) -> None:
    for shape in [(3, 4), (1, 5), (4, 1, 2), (0, 3), (2, 3, 3, 2)]:
        x, rank = torch.randn(shape), len(shape)
        for one, other in itertools.product(range(-rank, rank), range(rank)):
            for offset in range(-4, 5) if one % rank != other else ():
                new = torch.randn_like(torch.diagonal(x, offset, one, other))
                wanted = torch.diagonal_scatter(x, new, offset, one, other)
                assert torch.equal(diagonal_scatter(x, new, offset, one, other), wanted), (shape, one, other, offset)

    def without_itself(x: torch.Tensor) -> torch.Tensor:
        alike = x @ x.t()
        alike.diagonal(1).fill_(-1.0)
        return alike

    x = torch.randint(-4, 4, (3, 5)).float()
    assert_runs(without_itself, [[x]], official_runtime, tolerance=EXACT)


def test_tensors_that_hang_on_a_module_whose_program_is_traced_again() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * torch.tensor([2.0, 3.0])).unsqueeze_(0)

    x = torch.randn(4, 2)
    program = export(Scaled(), (x,), strict=True)
    editor = GraphEditor(program)
    constant = next(node for node in program.graph.find_nodes(op="placeholder") if node.name != "x")
    program.graph_module.register_buffer("hanging", next(iter(program.constants.values())))
    with program.graph.inserting_before(constant.next.next):
        hanging = program.graph.get_attr("hanging")
    hanging.meta = dict(constant.meta)
    editor.replace(constant, hanging)
    editor.remove_input(constant)
    made = to_edge(program).exported_program()
    assert torch.equal(made.module()(x), Scaled()(x))


@pytest.mark.executorch
def test_product_of_int8(official_runtime: OfficialRuntime) -> None:
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((33, 64), (64, 16)))
    assert_runs(torch._int_mm, [[a, b]], official_runtime, tolerance=EXACT)


@pytest.mark.parametrize("masked", [None, "causal", "added", "row of nothing"])
@pytest.mark.parametrize("shape", [(1, 2, 5, 4), (2, 1, 3, 8)])
def test_gradients_of_attention(masked: str | None, shape: tuple[int, ...]) -> None:
    query, key, value, grad = (torch.randn(shape) for _ in range(4))
    is_causal = masked == "causal"
    mask = None if masked in (None, "causal") else torch.randn(shape[0], 1, shape[2], shape[2])
    if mask is not None and masked == "row of nothing":
        mask[..., 1, :] = -torch.inf
    aten = torch.ops.aten
    out, sums = aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal, attn_mask=mask)

    def gradients(*given: torch.Tensor) -> Any:
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *given, out, sums, 0.0, is_causal, attn_mask=mask
        )

    assert_runs(gradients, [[grad, query, key, value]])


def grouped(*args: torch.Tensor) -> Any:
    """Call the operator that transformers writes into programs."""
    importlib.import_module("transformers.integrations.moe")
    return torch.ops.transformers.grouped_mm_fallback(*args)


@pytest.mark.executorch
@pytest.mark.parametrize("ends", [[2, 2, 7, 9], [0, 0, 0, 8], [9, 9, 9, 9], [0, 0, 0, 0]])
@pytest.mark.parametrize("rows", [9, 3])
def test_product_of_groups(rows: int, ends: list[int], official_runtime: OfficialRuntime) -> None:
    weights = torch.randn(4, 5, 3)
    bounds = torch.tensor([min(end, rows) for end in ends], dtype=torch.int32)
    assert_runs(grouped, [[torch.randn(rows, 5), weights, bounds]], official_runtime)


def test_infinite_weights_of_other_groups_do_not_count() -> None:
    weights = torch.randn(4, 5, 3)
    weights[0] = torch.inf
    assert_runs(grouped, [[torch.randn(9, 5), weights, torch.tensor([0, 2, 7, 9])]])


def test_rows_that_vary() -> None:
    weights = torch.randn(4, 5, 3)
    calls = [[torch.randn(rows, 5), weights, torch.tensor([1, 1, 2, rows])] for rows in (9, 2, 20)]
    assert_runs(grouped, calls, dynamic_shapes=({0: Dim("rows", min=2, max=20)}, None, None))


@pytest.mark.executorch
def test_grouped_product_of_torch(official_runtime: OfficialRuntime) -> None:
    rows, weights = torch.randn(16, 16).bfloat16(), torch.randn(4, 16, 8).bfloat16()
    ends = torch.tensor([2, 2, 7, 16], dtype=torch.int32)

    def model(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batches = torch.nn.functional.grouped_mm(rows.view(4, 4, 16), weights)
        return torch.nn.functional.grouped_mm(rows, weights, offs=ends), batches

    assert_runs(model, [[rows, weights, ends]], official_runtime, tolerance=BRAIN)


@pytest.mark.executorch
@pytest.mark.parametrize("right", [False, True])
def test_places_among_boundaries(right: bool, official_runtime: OfficialRuntime) -> None:
    limits = torch.tensor([-1.0, 0.0, 0.0, 2.5, torch.inf])
    values = torch.tensor([[-2.0, -1.0, 0.0], [1.0, torch.inf, NAN]])
    many = torch.stack([limits, limits + 1])

    def model(limits: torch.Tensor, many: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        short = torch.bucketize(values, limits, right=right, out_int32=True)
        return torch.searchsorted(limits, values, right=right), torch.searchsorted(many, values, right=right), short

    assert_runs(model, [[limits, many, values]], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
@pytest.mark.parametrize("number", [0.0, 2, -torch.inf, NAN])
def test_place_of_a_number_among_boundaries(number: float, official_runtime: OfficialRuntime) -> None:
    limits = torch.tensor([-1.0, 0.0, 0.0, 2.5, torch.inf])

    def model(limits: torch.Tensor) -> tuple[torch.Tensor, ...]:
        right = torch.bucketize(number, limits, right=True, out_int32=True)
        return torch.searchsorted(limits, number), torch.searchsorted(limits.int(), number, side="right"), right

    assert_runs(model, [[limits.nan_to_num(posinf=9)]], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
@pytest.mark.parametrize("sizes", [(6,), (2, 6)])
def test_places_among_boundaries_that_are_sorted_by_an_order(
    sizes: tuple[int, ...], official_runtime: OfficialRuntime
) -> None:
    limits, values = torch.randint(-4, 4, sizes).float(), torch.randint(-5, 5, (*sizes[:-1], 3)).float()

    def model(limits: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(limits, values, sorter=limits.argsort(-1))

    assert_runs(model, [[limits, values]], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
@pytest.mark.parametrize("sizes", [(1, 0), (0, 2)])
def test_samples_of_volumes_without_channels_or_batches(
    sizes: tuple[int, int], official_runtime: OfficialRuntime
) -> None:
    volume, grid = torch.randn(*sizes, 3, 4, 2), torch.rand(sizes[0], 2, 1, 3, 3)
    assert_runs(torch.nn.functional.grid_sample, [[volume, grid]], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
@pytest.mark.parametrize("count", [0, 1, 20])
@pytest.mark.parametrize("invert", [False, True])
def test_elements_among_others(count: int, invert: bool, official_runtime: OfficialRuntime) -> None:
    """Beside some that are not a number, too: torch sorts them, and does not find what lies in front of these."""
    tested = torch.arange(count) % 7 / 2
    tested[::5] = NAN
    elements = torch.tensor([[2.0, NAN, 0.5], [9.0, -0.0, 1.0]])

    def model(elements: torch.Tensor, tested: torch.Tensor) -> tuple[torch.Tensor, ...]:
        places = torch.isin(elements, tested, invert=invert), torch.isin(elements, 2, invert=invert)
        return *places, torch.isin(2, tested, invert=invert), torch.isin(elements.long(), tested, assume_unique=True)

    assert_runs(model, [[elements, tested]], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
@pytest.mark.parametrize("size", [1, 2, 7])
def test_elements_in_the_middle(size: int, official_runtime: OfficialRuntime) -> None:
    x = torch.randperm(3 * size).view(3, size).float()
    odd = x.clone()
    odd[1, -1] = NAN

    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        middle, third = x.median(1), x.kthvalue(1, 0, True)
        return x.median(), *middle, *third, *x.long().median(0, keepdim=True)

    assert_runs(model, [[x]], official_runtime, tolerance=EXACT)
    assert_runs(lambda x: (x.median(), *x.median(1)), [[odd], [x]], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
def test_medians_of_nothing_and_of_parts_without_elements(official_runtime: OfficialRuntime) -> None:
    for dtype in (torch.float32, torch.int64):
        empty = torch.zeros(2, 0, 3, dtype=dtype)
        assert_runs(lambda x: (x.median(), *x.median(0)), [[empty]], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
def test_sums_of_products_and_angles_keep_their_dtype(official_runtime: OfficialRuntime) -> None:
    narrow = [torch.randint(-100, 100, sizes, dtype=torch.int8) for sizes in ((2, 4), (3, 2, 5), (3, 5, 4))]
    assert_runs(torch.addbmm, [narrow], official_runtime, tolerance=EXACT)
    assert_runs(
        torch.angle, [[torch.tensor([-1.0, 2.0, -0.0], dtype=torch.float64)]], official_runtime, tolerance=EXACT
    )


@pytest.mark.executorch
@pytest.mark.parametrize("sizes", [(3, 2), (4, 1), (6, 5), (2, 3)])
def test_largest_of_adaptive_windows(sizes: tuple[int, int], official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor) -> Any:
        return torch.nn.functional.adaptive_max_pool2d(x, sizes, return_indices=True)

    assert_runs(model, [[torch.randn(2, 3, 8, 5)], [torch.zeros(2, 3, 8, 5)]], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
def test_largest_of_adaptive_volumes(official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor) -> Any:
        pool = torch.nn.functional.adaptive_max_pool3d
        *_, even = pool(x, 2, return_indices=True)
        return pool(x, 2), even, pool(x, (3, 1, 2)), pool(x, (2, 3, 3), return_indices=True)[1]

    assert_runs(model, [[torch.randn(2, 4, 6, 8)]], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
def test_operators_on_elements(official_runtime: OfficialRuntime) -> None:
    special = torch.tensor([NAN, -torch.inf, -3.5, -1.25, -0.0, 0.0, 0.375, 1.0, 7.125, 3e38, torch.inf])

    def elementwise(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.exp2(x),
            torch.ldexp(x, torch.tensor([3])),
            torch.fmax(x, y),
            torch.fmin(x, y),
            torch.signbit(x[1:]),
            torch.copysign(x, y[1:2]),
            torch.copysign(x, -0.0),
            torch.hypot(x, y),
            torch.angle(x),
            torch.round(x, decimals=2),
            torch.round(x, decimals=-1),
            torch.nn.functional.rrelu(x),
            torch.dist(x[2:6], y[2:6], 3),
        )

    rows = {0: Dim("rows", min=6, max=20)}
    calls = [[special, special.flip(0)], [special[2:9], special[1:8]]]
    assert_runs(elementwise, calls, official_runtime, dynamic_shapes=(rows, rows), levels=(0, 2))

    def products(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.addmv(x[:, 0], x, y, beta=0.5, alpha=2),
            torch.addmv(x[:, 0] * NAN, x, y, beta=0),
            torch.addbmm(x @ x.T, x[None], x.T[None], beta=2),
        )

    assert_runs(products, [[torch.randn(3, 4), torch.randn(4)]], official_runtime, levels=(0, 2))

    def others(x: torch.Tensor, n: torch.Tensor, scalar: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.addmv(n[:, 0], n, n[0], beta=2.9, alpha=-0.5),
            torch.copysign(n > 0, x[0, :3]),
            torch.copysign(n, -1.0),
            torch.diagonal_scatter(x, x[1, :3] * 2, -1, 1, 0),
            torch.diagonal_scatter(x[None, :, None], torch.full((1, 1, 2), 7.0), -1, 1, 3),
            *torch.kthvalue(scalar, 1),
            *torch.median(scalar, 0),
            torch.masked_select(scalar, scalar > -99),
            torch.take(scalar, n[0] * 0),
            torch.take(x, n[1] - 1),
            torch.narrow_copy(x, -1, 1, 2),
            torch.unique(n > 0)[:2],
            x.to("cpu", torch.float64, non_blocking=True, copy=True),
        )

    assert_runs(others, [[torch.randn(3, 4), torch.arange(9).view(3, 3) - 4, torch.tensor(2.5)]], official_runtime)


@pytest.mark.executorch
def test_functions_of_a_tensor_and_a_number(official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        numbers = (2.5, 0, -1.0)
        return tuple(
            one
            for number in numbers
            for one in (torch.xlogy(x, number), torch.xlogy(number, x), torch.special.xlog1py(x, number + 2))
        )

    assert_runs(model, [[torch.tensor([0.0, 1.5, -2.0, NAN, 3.0])]], official_runtime, levels=(0, 2))


@pytest.mark.executorch
def test_bilinear(official_runtime: OfficialRuntime) -> None:
    inputs = [torch.randn(2, 5, 3), torch.randn(2, 5, 4)]
    assert_runs(torch.nn.Bilinear(3, 4, 6), [inputs], official_runtime, levels=(0, 2))
    assert_runs(torch.nn.Bilinear(3, 4, 1, bias=False), [[one[0] for one in inputs]], official_runtime)


def test_what_a_decomposition_writes_to_a_view_of_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch decomposes circular padding like that: without the writes, the result is what lay in memory."""
    monkeypatch.delitem(EXPRESSIONS, torch.ops.aten._pad_circular.default)
    x = torch.randn(2, 3, 5)
    assert_runs(lambda x: torch.nn.functional.pad(x, [1, 2], mode="circular"), [[x]], tolerance=EXACT)


@pytest.mark.executorch
def test_circular_padding(official_runtime: OfficialRuntime) -> None:

    def padded(x: torch.Tensor, *pads: list[int]) -> tuple[torch.Tensor, ...]:
        return tuple(torch.nn.functional.pad(x, pad, mode="circular") for pad in pads)

    x = torch.randn(2, 3, 5, 4)
    assert_runs(lambda x: padded(x[0], [1, 2], [3, 4], [0, 1], [-1, 2]), [[x[:, 0]]], official_runtime, tolerance=EXACT)
    assert_runs(
        lambda x: padded(x, [1, 2, 5, 0], [0, -1, 2, -3]), [[x]], official_runtime, tolerance=EXACT, levels=(0, 2)
    )
    layer = torch.nn.Conv2d(3, 2, 3, padding=2, padding_mode="circular")
    assert_runs(layer, [[x]], official_runtime, levels=(0, 2))


@pytest.mark.executorch
def test_gradients_of_maxima(official_runtime: OfficialRuntime) -> None:
    def gradients(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        values, places = torch.ops.aten.max_pool2d_with_indices(x, [3, 3], [1, 1], [1, 1])
        backward = torch.ops.aten.max_pool2d_with_indices_backward
        return backward(grad + values, x, [3, 3], [1, 1], [1, 1], [1, 1], False, places)

    x = torch.randn(2, 3, 5, 4)
    assert_runs(gradients, [[torch.randn_like(x), x], [torch.ones_like(x), -x]], official_runtime)


@pytest.mark.executorch
def test_shifts(official_runtime: OfficialRuntime) -> None:
    places = torch.tensor([0, 1, 5, 7, 8, 31, 33, 63, 64, -1])
    for dtype in (torch.int64, torch.int32, torch.int8, torch.uint8):
        limits = torch.iinfo(dtype)
        values = torch.tensor([limits.min, limits.max, 5, 77, limits.max // 3], dtype=dtype)

        def model(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
            scalars = [way for by in (0, 1, 3, 7, 31, 63) for way in (x << by, x >> by)]
            return (*scalars, x[:, None] << n.to(x.dtype), x[:, None] >> n.to(x.dtype), torch.bitwise_left_shift(x, 2))

        assert_runs(model, [[values, places]], official_runtime, tolerance=EXACT)
