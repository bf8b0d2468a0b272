"""What operators mean to the prover is what torch computes: symbolic results are evaluated and compared with eager."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

z3 = pytest.importorskip("z3")

from exirkit.patterns.operators.table import OperatorTable  # noqa: E402
from exirkit.patterns.proving import (  # noqa: E402
    distances,
    functions,
    indexing,
    movement,
    planes,
    pointwise,
    quantizers,
    sums,
    windows,
)
from exirkit.patterns.proving.elements import Elements, float_of  # noqa: E402
from exirkit.patterns.proving.meanings import MEANINGS, SymbolicBuilder  # noqa: E402
from exirkit.patterns.proving.paths import Number, Path, UnsupportedError, integer  # noqa: E402
from exirkit.patterns.proving.tensors import SymbolicTensor, input_tensor, unraveled  # noqa: E402


def symbolic(path: Path, tensor: torch.Tensor) -> SymbolicTensor:
    """Return a tensor as the prover sees it, whose elements are known."""

    def element(elements: Elements, index: tuple[Any, ...]) -> Any:
        place = [z3.simplify(integer(one)) for one in index]
        at = tuple(one.as_long() for one in place)
        is_inside = all(0 <= one < size for one, size in zip(at, tensor.shape, strict=True))
        return elements.constant(tensor[at].item() if is_inside else 0, tensor.dtype)

    return SymbolicTensor.make(path, list(tensor.shape), tensor.dtype, element)


def value(term: Any, dtype: torch.dtype) -> Any:
    term = z3.simplify(term)
    if dtype == torch.bool:
        assert z3.is_true(term) or z3.is_false(term)
        return z3.is_true(term)
    if z3.is_bv_value(term):
        return term.as_signed_long() if dtype.is_signed else term.as_long()
    found = float_of(term)
    assert found is not None, term
    return found


def check(name: str, args: tuple[Any, ...], mode: str = "bits", **options: Any) -> None:
    op = OperatorTable().find(name)
    path = Path()
    path.is_real = mode == "reals"

    def made(one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            return symbolic(path, one)
        return [made(each) for each in one] if isinstance(one, list) else one

    expected = op(*args, **options)
    found = SymbolicBuilder(path).call(op, tuple(made(one) for one in args), options)
    pairs = zip(expected, found, strict=True) if isinstance(expected, tuple | list) else [(expected, found)]
    for wanted, result in pairs:
        if isinstance(result, sums.UnknownResult):
            continue
        assert result.dtype == wanted.dtype
        assert [int(z3.simplify(integer(one)).as_long()) for one in result.shape] == list(wanted.shape)
        for place in torch.ones(wanted.shape).nonzero().tolist():
            got = value(result.at(Elements(path, mode), tuple(map(z3.IntVal, place))), wanted.dtype)
            known = wanted[tuple(place)].item()
            same = got == known or (math.isnan(known) and math.isnan(got))
            assert same or (mode == "reals" and got == pytest.approx(known, rel=1e-5, abs=1e-6)), (place, got, known)


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    count = math.prod(shape)
    numbers = torch.arange(count, dtype=torch.float64) * 7 % 11 - 5
    return (numbers / 2 if dtype.is_floating_point else numbers.abs()).reshape(shape).to(dtype)


SPECIAL = torch.tensor([0.0, -0.0, 1.5, -2.5, math.inf, -math.inf, math.nan, 1e-45, 3e38])

MOVEMENT: list[tuple[str, tuple[Any, ...]]] = [
    ("aten.permute_copy.default", (values(2, 3, 5), [2, 0, -2])),
    ("aten.transpose_copy.int", (values(2, 3, 5), -1, 0)),
    ("aten.t_copy.default", (values(2, 3),)),
    ("aten.view_copy.default", (values(2, 3, 4), [6, 4])),
    ("aten.view_copy.default", (values(2, 3, 4), [4, -1])),
    ("aten.view_copy.default", (values(1, 5, 1), [5])),
    ("aten.unsqueeze_copy.default", (values(2, 3), -1)),
    ("aten.squeeze_copy.dims", (values(1, 3, 1), [0, 1])),
    ("aten.squeeze_copy.default", (values(1, 3, 1),)),
    ("aten.expand_copy.default", (values(1, 3), [2, -1, 3])),
    ("aten.slice_copy.Tensor", (values(7, 2), 0, 1, 6, 2)),
    ("aten.slice_copy.Tensor", (values(7, 2), 0, -3, 9223372036854775807, 1)),
    ("aten.slice_copy.Tensor", (values(5), 0, 4, 2, 1)),
    ("aten.select_copy.int", (values(3, 4), 1, -2)),
    ("aten.cat.default", ([values(2, 3), values(2, 1), values(2, 0)], -1)),
    ("aten.stack.default", ([values(2, 3), values(2, 3)], 1)),
    ("aten.flip.default", (values(3, 4), [0, -1])),
    ("aten.constant_pad_nd.default", (values(3, 4), [1, 2, -1, 1], 0.5)),
    ("aten.repeat.default", (values(2, 3), [2, 1, 2])),
    ("aten.roll.default", (values(5, 3), [2, -1], [0, 1])),
    ("aten.split_with_sizes_copy.default", (values(6, 2), [1, 0, 5], 0)),
    ("aten.split_copy.Tensor", (values(7, 2), 3, 0)),
    ("aten.unbind_copy.int", (values(3, 2), 1)),
    ("aten.select_scatter.default", (values(3, 4), values(4), 0, -1)),
    ("aten.slice_scatter.default", (values(6), values(2), 0, 1, 5, 2)),
    ("aten.index_select.default", (values(4, 3), 0, torch.tensor([3, 0, 1]))),
    ("aten.full_like.default", (values(2, 2), 2.5)),
    ("aten.fill.Scalar", (values(2, 2, dtype=torch.int8), 3)),
    ("aten.roll.default", (values(2, 3), [2])),
    ("aten.pixel_unshuffle.default", (values(1, 2, 4, 6), 2)),
    ("aten.im2col.default", (values(1, 2, 4, 6), [2, 3], [1, 1], [0, 0], [2, 3])),
    ("aten.reflection_pad2d.default", (values(1, 2, 3, 4), [1, 3, 2, 0])),
    ("aten.reflection_pad1d.default", (values(2, 4), [2, 1])),
    ("aten.pad.default", (values(1, 2, 3, 4), [1, 2, 0, 1], "reflect")),
    ("aten.pad.default", (values(3, 4), [1, 2], "constant", 0.5)),
    ("aten.upsample_nearest2d.vec", (values(1, 2, 2, 3), [4, 9], None)),
    ("aten.upsample_nearest2d.vec", (values(1, 1, 2, 3), None, [2.0, 3.0])),
]  # fmt: skip

SMALL = torch.arange(7, dtype=torch.int8) % 6

POINTWISE: list[tuple[Any, ...]] = [
    *((f"aten.{name}.default", (SPECIAL,)) for name in ("neg", "abs", "relu", "reciprocal", "floor", "ceil")),
    *((f"aten.{name}.default", (values(7, dtype=torch.int8),)) for name in ("neg", "abs", "relu", "bitwise_not")),
    *((f"aten.{name}.Tensor", (SPECIAL, SPECIAL.flip(0))) for name in ("add", "sub", "mul", "div", "lt", "ge", "ne")),
    ("aten.add.Tensor", (values(3, 1, dtype=torch.float16), values(2))),
    ("aten.mul.Tensor", (torch.tensor([100, -128], dtype=torch.int8), torch.tensor([3, -1], dtype=torch.int8))),
    ("aten.add.Scalar", (values(9, dtype=torch.float16), 0.3)),
    ("aten.mul.Scalar", (values(9, dtype=torch.bfloat16), 1.1)),
    ("aten.sub.Tensor", (values(4, dtype=torch.int32), values(4, dtype=torch.int64))),
    ("aten.maximum.default", (SPECIAL[2:], SPECIAL[2:].flip(0))),
    ("aten.minimum.default", (SPECIAL[2:], SPECIAL[2:].flip(0))),
    ("aten.clamp.default", (SPECIAL[2:], -2.0, 1.0)),
    ("aten.clamp.default", (SPECIAL[2:], 2.0, 1.0)),
    ("aten.clamp.default", (SPECIAL[2:], None, 1.0)),
    ("aten.where.self", (SPECIAL > 0, SPECIAL, values(1, dtype=torch.int32))),
    ("aten.logical_not.default", (SPECIAL,)),
    ("aten.logical_and.default", (SPECIAL, SPECIAL.flip(0))),
    ("aten._to_copy.default", (values(5, dtype=torch.int32),)),
    *(("aten.pow.Tensor_Scalar", (SPECIAL, exponent)) for exponent in (1, 2, 3, -1)),
    ("aten.square.default", (SPECIAL,)),
    ("aten.masked_fill.Scalar", (SPECIAL, SPECIAL > 0, 2.0)),
    ("aten.rsub.Scalar", (SPECIAL, 2.0)),
    ("aten.sign.default", (SPECIAL,)),
    ("aten.sign.default", (values(7, dtype=torch.int8) - 3,)),
    ("aten.trunc.default", (SPECIAL,)),
    ("aten.threshold.default", (SPECIAL, 0.5, -2.0)),
    ("aten.div.Tensor_mode", (SPECIAL, SPECIAL.flip(0)), {"rounding_mode": "trunc"}),
    ("aten.div.Tensor_mode", (SPECIAL, SPECIAL.flip(0)), {"rounding_mode": None}),
    *((f"aten.bitwise_{name}.Tensor", (values(7, dtype=torch.int8) - 3, SMALL)) for name in ("and", "or", "xor")),
    *((f"aten.bitwise_{name}.Tensor", (SPECIAL > 0, SPECIAL > 1)) for name in ("and", "or", "xor")),
    *((f"aten.bitwise_{name}_shift.Tensor", (values(7, dtype=torch.int8) - 3, SMALL)) for name in ("left", "right")),
    ("aten.bitwise_right_shift.Tensor", (values(7, dtype=torch.uint8) + 250, SMALL.to(torch.uint8))),
]  # fmt: skip

REALS: list[tuple[Any, ...]] = [
    ("aten.sum.dim_IntList", (values(1, 3), [0])),
    ("aten.mean.dim", (values(3, 1), [1], True)),
    ("aten.hardsigmoid.default", (values(7),)),
    ("aten.hardswish.default", (values(7),)),
    ("aten.relu6.default", (values(7) * 4,)),
    ("aten.leaky_relu.default", (values(7), 0.25)),
    ("aten.add.Tensor", (values(3), values(3))),
    ("aten.mm.default", (values(2, 1), values(1, 3))),
    ("aten.linear.default", (values(2, 1), values(3, 1), values(3))),
    ("aten.addmm.default", (values(3), values(2, 1), values(1, 3))),
    *((f"aten.{name}.default", (values(7) * 0.75,)) for name in ("floor", "ceil", "trunc", "round", "sign")),
    ("aten.remainder.Tensor", (values(7), values(7) + 7)),
    ("aten.remainder.Scalar", (values(7), 0.75)),
    ("aten.floor_divide.default", (values(7), values(7) - 7)),
    ("aten.div.Tensor_mode", (values(7), values(7) - 7), {"rounding_mode": "floor"}),
    ("aten.div.Tensor_mode", (values(7), values(7) - 7), {"rounding_mode": "trunc"}),
]  # fmt: skip

COMPOSED: list[tuple[str, tuple[Any, ...]]] = [
    *((f"aten.{name}.default", (values(7),)) for name in ("sin", "cos", "tan", "sinh", "cosh", "asinh", "selu")),
    *((f"aten.{name}.default", (values(7).abs() + 1.5,)) for name in ("acosh", "log2", "log10")),
    *((f"aten.{name}.default", (values(7) / 8,)) for name in ("asin", "acos", "atanh")),
    ("aten.celu.default", (values(7), 0.5)),
    ("aten.logit.default", (values(7) / 20 + 0.5,)),
    ("aten.logit.default", (values(7) / 8 + 0.5, 0.125)),
    ("aten.elu.default", (values(7), 0.5, 2.0, 1.5)),
]  # fmt: skip


IMAGE = values(2, 4, 5, 3)
NONE = (None, [2, 1], [1, 0], [1, 2], False, [0, 0])
BACK = (None, [2, 1], [1, 0], [1, 2], True, [1, 0])
HEADS = (values(2, 3, 4), values(2, 5, 4), values(2, 5, 2))

FOLDS: list[tuple[str, tuple[Any, ...]]] = [
    ("aten.convolution.default", (IMAGE, values(4, 2, 3, 2), *NONE, 2)),
    ("aten.convolution.default", (IMAGE, values(3, 4, 3, 2), values(3), *NONE[1:], 1)),
    ("aten.convolution.default", (IMAGE, values(8, 1, 2, 2), *NONE, 4)),
    ("aten.convolution.default", (IMAGE, values(4, 3, 3, 2), *BACK, 2)),
    ("aten.convolution.default", (values(1, 2, 6), values(3, 2, 2), values(3), [2], [1], [1], False, [0], 1)),
    ("aten.conv1d.default", (values(2, 6), values(3, 2, 2), values(3), [2], [1])),
    ("aten.conv2d.default", (IMAGE, values(4, 2, 3, 2), None, [1, 1], [0, 1], [2, 1], 2)),
    ("aten.avg_pool2d.default", (IMAGE, [2, 2], [2, 1], [1, 1])),
    ("aten.avg_pool2d.default", (IMAGE, [2, 2], [], [1, 0], False, False)),
    ("aten.avg_pool2d.default", (IMAGE, [2, 3], [1, 1], [0, 0], False, True, 5)),
    ("aten._adaptive_avg_pool2d.default", (IMAGE, [1, 1])),
    ("aten.max_pool2d.default", (IMAGE, [2, 2], [], [0, 0], [2, 1])),
    ("aten.max_pool2d_with_indices.default", (IMAGE[0], [2, 2], [1, 2])),
    ("aten.max_pool2d.default", (IMAGE, [2, 2], [2, 2], [0, 0], [1, 1], True)),
    ("aten.avg_pool2d.default", (IMAGE, [2, 2], [2, 2], [0, 0], True)),
    ("aten.avg_pool2d.default", (IMAGE, [3, 2], [2, 3], [1, 1], True, True)),
    ("aten.avg_pool2d.default", (IMAGE, [3, 2], [2, 3], [1, 1], True, False)),
    ("aten.var.correction", (values(3, 4), [1])),
    ("aten.linalg_vector_norm.default", (values(3, 4), 2, [0])),
    ("aten.linalg_vector_norm.default", (values(3, 4), 1, None, True)),
    ("aten.linalg_vector_norm.default", (values(3, 4), math.inf, [1])),
    ("aten._softmax.default", (values(2, 3), 1, False)),
    ("aten._log_softmax.default", (values(2, 3), 0, False)),
    ("aten.scaled_dot_product_attention.default", HEADS),
    ("aten.scaled_dot_product_attention.default", (*HEADS, values(3, 5))),
    ("aten.bmm.default", (HEADS[0], values(2, 4, 3))),
    ("aten.baddbmm.default", (values(3, 3), HEADS[0], values(2, 4, 3))),
    ("aten.prelu.default", (values(2, 3), torch.tensor([0.5, 2.0, 0.25]))),
    ("aten.prelu.default", (values(3), torch.tensor([0.5]))),
    ("aten.addcmul.default", (values(2, 3), values(3), values(2, 1))),
    ("aten.addcdiv.default", (values(2, 3), values(3), values(2, 1) + 8)),
    ("aten.native_group_norm.default", (values(2, 4, 3), values(4), values(4), 2, 4, 3, 2, 0.5)),
    ("aten.batch_norm.default", (values(2, 3), None, values(3), values(3), values(3).abs(), False, 0.1, 0.5, False)),
    ("aten.native_layer_norm.default", (values(2, 3), [3], values(3), None, 0.5)),
]  # fmt: skip


def magnitude(term: Any) -> float:
    found = float_of(term)
    return -math.inf if found is None else found


def computed_fold(elements: Elements, kind: str, sizes: Sequence[Any], body: Callable[[list[Any]], Any]) -> Any:
    """What a fold is where sizes are known: the prover only knows which folds are equal."""
    places = itertools.product(*(range(int(str(z3.simplify(integer(one))))) for one in sizes))
    terms = [z3.simplify(body([z3.IntVal(one) for one in place])) for place in places]
    if kind.startswith("amax"):
        # What is padded is below everything.
        return max(terms, key=magnitude)
    return z3.simplify(sum(terms, z3.RealVal(0)))


@pytest.mark.parametrize(("name", "args"), FOLDS)
def test_folds(name: str, args: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def numeric(function: Callable[[float], float]) -> Callable[[Elements, Any], Any]:
        return lambda elements, a: z3.RealVal(str(function(float_of(z3.simplify(a)) or 0.0)))

    for module in (sums, windows):
        monkeypatch.setattr(module, "fold", computed_fold)
    for module, word, function in ((sums, "exp", math.exp), (sums, "log", math.log), (pointwise, "sqrt", math.sqrt)):
        monkeypatch.setattr(module, f"real_{word}", numeric(function))
    check(name, args, "reals")


def with_options(cases: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [one if len(one) == 3 else (*one, {}) for one in cases]


@pytest.mark.parametrize(("name", "args", "options"), with_options(MOVEMENT + POINTWISE))
def test_bits(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    check(name, args, **options)


@pytest.mark.parametrize(("name", "args", "options"), with_options(REALS))
def test_reals(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    check(name, args, "reals", **options)


@pytest.mark.parametrize(("name", "args"), COMPOSED)
def test_functions_by_their_definitions(name: str, args: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def numeric(word: str) -> Callable[[Elements, Any], Any]:
        return lambda elements, a: z3.RealVal(str(getattr(math, word)(float_of(z3.simplify(a)) or 0.0)))

    for module in (functions, pointwise):
        for word in ("exp", "log", "sqrt"):
            # A choice between two values computes both: outside of where they are defined they may be anything.
            monkeypatch.setattr(module, f"real_{word}", numeric(word))
    monkeypatch.setattr(functions, "real_unknown", numeric)
    check(name, args, "reals")


SCALES = [1e-9, 3.7e-5, 0.0123456789, 1 / 3, 1.0, 777.7, 1e6]


@pytest.mark.parametrize("scale", SCALES)
def test_laws_of_quantized_values(scale: float) -> None:
    """What the prover assumes of rounding, on all integers of 16 bits, or many."""
    numbers, parts = torch.arange(-(2**15), 2**15), torch.arange(-(2**15), 2**15, 97)
    for zero in (-(2**15), -128, 0, 200, 2**16 - 1):
        operator = OperatorTable().find("quantized_decomposed.dequantize_per_tensor.default")
        floats = operator(numbers.to(torch.int16), scale, zero, -(2**15), 2**15 - 1, torch.int16)
        assert (floats.diff() > 0).all()
        assert torch.equal(floats > 0, numbers > zero)
        assert torch.equal(floats < 0, numbers < zero)
        for made, whole in (
            (floats, numbers - zero),
            (-floats, zero - numbers),
            (floats.abs(), (numbers - zero).abs()),
        ):
            assert torch.equal(torch.round(made * (1.0 / scale)).long(), whole)
        few = operator(parts.to(torch.int16), scale, zero, -(2**15), 2**15 - 1, torch.int16)
        total, difference = few[:, None] + few, few[:, None] - few
        assert torch.equal(torch.round(total * (1.0 / scale)).long(), parts[:, None] + parts - 2 * zero)
        assert torch.equal(torch.round(difference * (1.0 / scale)).long(), parts[:, None] - parts)


def test_a_fold_of_a_plane_depends_on_the_order_of_its_dims() -> None:
    # A sum does not: a mean of a transposed image is that of the image, and a resized one is not the resized image.
    path = Path()
    path.is_real = True
    elements = Elements(path, "reals")
    size = Number(path, z3.Int("n"))
    image = input_tensor(path, "x", [1, 1, size, size], torch.float32)
    turned = movement.permuted(path, image, [0, 1, 3, 2])
    index = tuple(z3.Int(f"i{at}") for at in range(4))
    sampled = [planes.of_planes(path, "any", one, 2, [2, 2], []).at(elements, index) for one in (image, turned)]
    assert not sampled[0].eq(sampled[1])
    added = [sums.sum_over(path, one, [2, 3], True).at(elements, index) for one in (image, turned)]
    assert added[0].eq(added[1])


def test_digits_of_a_place() -> None:
    path = Path()
    elements = Elements(path, "bits")
    sizes = [Number(path, z3.Int("a")), Number(path, z3.Int("b"))]
    digits = unraveled(elements, z3.Int("place"), sizes)
    solver = z3.Solver()
    solver.add(*elements.facts, z3.Int("a") == 3, z3.Int("b") == 4, z3.Int("place") == 7)
    solver.add(z3.Or(digits[0] != 1, digits[1] != 3))
    assert solver.check() == z3.unsat
    # Outside of the shape nothing is said, which no fact may contradict.
    outside = z3.Solver()
    outside.add(*elements.facts, z3.Int("a") == 3, z3.Int("b") == 4, z3.Int("place") == -1)
    assert outside.check() == z3.sat


def test_other_options_are_other_functions() -> None:
    """What is not looked into is one function for each way to give options, of the numbers among them."""
    path = Path()
    path.is_real = True
    image = input_tensor(path, "x", [1, 1, 4, 4], torch.float32)
    options: list[list[Any]] = [
        [2, 3], [3, 2], [2.0, 3.0], [[2, 3]], [[2], 3], [2, [3]], [[], 2, 3], [2], [2, None], [None, 2], [True, 2, 3],
        [False, 2, 3], ["nearest", 2], ["bilinear", 2], [[True], 2], [[None, True], 2], [[None], True, 2], [[[2]], 3],
    ]  # fmt: skip
    elements = Elements(path, "reals")
    index = tuple(z3.Int(f"i{at}") for at in range(4))
    terms = [planes.of_planes(path, "any", image, 2, [2, 2], one).at(elements, index) for one in options]
    for at, one in enumerate(terms):
        assert [place for place, other in enumerate(terms) if one.eq(other)] == [at]
    again = [planes.of_planes(path, "any", image, 2, [2, 2], one).at(elements, index) for one in options]
    assert all(map(z3.eq, terms, again))


def test_only_inputs_are_compared_with_numbers_in_conditions() -> None:
    """On the path on which they are equal each element is known; of what is computed that would say nothing."""
    path = Path()
    path.is_assuming = True
    given = input_tensor(path, "x", [2], torch.float32)
    assert bool(given == 1)
    assert path.values == {"x": [1]}
    computed = SymbolicBuilder(path).call(OperatorTable().find("aten.neg.default"), (given,), {})
    for left, right in ((computed, 1), (given, given)):
        with pytest.raises(UnsupportedError, match="comparison of tensors"):
            _ = left == right
    assert path.values == {"x": [1]}


def test_all_meanings_are_registered() -> None:
    modules = {
        one.__name__ for one in (distances, functions, indexing, movement, planes, pointwise, quantizers, sums, windows)
    }
    assert modules <= {one.__module__ for one in MEANINGS.values()}
