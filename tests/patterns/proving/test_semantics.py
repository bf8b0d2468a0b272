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
from exirkit.patterns.proving import movement, pointwise, sums, windows  # noqa: E402
from exirkit.patterns.proving.elements import Elements, float_of  # noqa: E402
from exirkit.patterns.proving.meanings import MEANINGS, SymbolicBuilder  # noqa: E402
from exirkit.patterns.proving.paths import Number, Path, integer  # noqa: E402
from exirkit.patterns.proving.tensors import SymbolicTensor, unraveled  # noqa: E402


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


def check(name: str, args: tuple[Any, ...], mode: str = "bits") -> None:
    op = OperatorTable().find(name)
    path = Path()
    path.is_real = mode == "reals"

    def made(one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            return symbolic(path, one)
        return [made(each) for each in one] if isinstance(one, list) else one

    expected = op(*args)
    found = SymbolicBuilder(path).call(op, tuple(made(one) for one in args), {})
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
]  # fmt: skip

POINTWISE: list[tuple[str, tuple[Any, ...]]] = [
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
    ("aten.pow.Tensor_Scalar", (SPECIAL, 2)),
    ("aten.square.default", (SPECIAL,)),
    ("aten.masked_fill.Scalar", (SPECIAL, SPECIAL > 0, 2.0)),
    ("aten.rsub.Scalar", (SPECIAL, 2.0)),
]  # fmt: skip

REALS: list[tuple[str, tuple[Any, ...]]] = [
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


def computed_fold(elements: Elements, kind: str, sizes: Sequence[Any], body: Callable[[list[Any]], Any]) -> Any:
    """What a fold is where sizes are known: the prover only knows which folds are equal."""
    places = itertools.product(*(range(int(str(z3.simplify(integer(one))))) for one in sizes))
    terms = [z3.simplify(body([z3.IntVal(one) for one in place])) for place in places]
    if kind.startswith("amax"):
        return max(terms, key=lambda one: float_of(one) or 0.0)
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


@pytest.mark.parametrize(("name", "args"), MOVEMENT + POINTWISE)
def test_bits(name: str, args: tuple[Any, ...]) -> None:
    check(name, args)


@pytest.mark.parametrize(("name", "args"), REALS)
def test_reals(name: str, args: tuple[Any, ...]) -> None:
    check(name, args, "reals")


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


def test_all_meanings_are_registered() -> None:
    modules = {one.__name__ for one in (movement, pointwise, sums, windows)}
    assert modules <= {one.__module__ for one in MEANINGS.values()}
