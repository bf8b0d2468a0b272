"""Small programs that make a runtime run one kernel each, in sizes that tell its costs apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

ops = torch.ops.aten
Function = Callable[..., Any]


@dataclass(frozen=True)
class Experiment:
    """One program.

    Attributes:
        operator: Overload whose kernel is measured; it is not decomposed.
        function: Calls it.
        inputs: What with.
    """

    operator: Any
    function: Function
    inputs: tuple[torch.Tensor, ...]


UNARY = (
    ops.abs.default, ops.acos.default, ops.asin.default, ops.atan.default, ops.bitwise_not.default, ops.ceil.default,
    ops.cos.default, ops.erf.default, ops.exp.default, ops.floor.default, ops.gelu.default, ops.hardtanh.default,
    ops.isinf.default, ops.isnan.default, ops.leaky_relu.default, ops.elu.default, ops.log.default,
    ops.logical_not.default, ops.neg.default, ops.reciprocal.default, ops.relu.default, ops.round.default,
    ops.rsqrt.default, ops.sigmoid.default, ops.sign.default, ops.sin.default, ops.sqrt.default, ops.tanh.default,
    ops.trunc.default,
)  # fmt: skip
BINARY = (
    ops.add.Tensor, ops.sub.Tensor, ops.mul.Tensor, ops.div.Tensor, ops.maximum.default, ops.minimum.default,
    ops.eq.Tensor, ops.ne.Tensor, ops.lt.Tensor, ops.le.Tensor, ops.gt.Tensor, ops.ge.Tensor,
    ops.pow.Tensor_Tensor, ops.atan2.default, ops.fmod.Tensor, ops.remainder.Tensor,
    ops.logical_and.default, ops.logical_or.default, ops.logical_xor.default,
)  # fmt: skip
WITH_SCALAR = (
    ops.add.Scalar, ops.sub.Scalar, ops.mul.Scalar, ops.div.Scalar, ops.eq.Scalar, ops.ne.Scalar, ops.lt.Scalar,
    ops.le.Scalar, ops.gt.Scalar, ops.ge.Scalar, ops.pow.Tensor_Scalar, ops.fmod.Scalar, ops.remainder.Scalar,
)  # fmt: skip
REDUCTIONS = (ops.mean.dim, ops.sum.dim_IntList, ops.amax.default, ops.amin.default, ops.any.dim, ops.var.correction)
SIZES = ((1, 4, 8), (1, 64, 28, 28), (64, 256), (1, 8, 64, 64))


def experiments() -> Iterator[Experiment]:
    """Yield all programs, in a fixed order."""
    torch.manual_seed(0)
    yield from _pointwise()
    yield from _rows()
    yield from _movers()
    yield from _products()
    yield from _windows()


def _pointwise() -> Iterator[Experiment]:
    for op in UNARY:
        for size in SIZES:
            x = torch.rand(size) > 0.5 if op is ops.bitwise_not.default else torch.rand(size) + 0.5
            yield Experiment(op, op, (x,))
    for op in BINARY:
        for size in SIZES:
            yield Experiment(op, op, (torch.rand(size), torch.rand(size)))
            if len(size) > 2:
                narrow = (size[1], *[1] * (len(size) - 2))
                yield Experiment(op, op, (torch.rand(size), torch.rand(narrow)))
            matrix = torch.rand(size).flatten(0, -2)
            yield Experiment(op, op, (matrix, torch.rand(size[-1])))
            yield Experiment(op, op, (matrix, torch.rand(len(matrix), 1)))
    for op in WITH_SCALAR:
        for size in SIZES:
            yield Experiment(op, lambda x, op=op: op(x, 2.5), (torch.rand(size),))
    for size in SIZES:
        yield Experiment(ops.clamp.default, lambda x: ops.clamp(x, 0.0, 1.0), (torch.rand(size),))
        condition = torch.rand(size) > 0.5
        yield Experiment(ops.where.self, ops.where.self, (condition, torch.rand(size), torch.rand(size)))
        yield Experiment(ops._to_copy.default, lambda x: ops._to_copy(x, dtype=torch.int32), (torch.rand(size),))


def _rows() -> Iterator[Experiment]:
    for size in SIZES:
        x, width = torch.rand(size), size[-1]
        for op in REDUCTIONS:
            yield Experiment(op, lambda x, op=op: op(x, [1]) if op is not ops.any.dim else op(x, 1), (x,))
            yield Experiment(op, lambda x, op=op: op(x, [-1]) if op is not ops.any.dim else op(x, -1), (x,))
        yield Experiment(ops._softmax.default, lambda x: ops._softmax(x, -1, False), (x,))
        yield Experiment(ops._log_softmax.default, lambda x: ops._log_softmax(x, -1, False), (x,))
        yield Experiment(
            ops.native_layer_norm.default,
            lambda x, w, b, width=width: ops.native_layer_norm(x, [width], w, b, 1e-5)[0],
            (x, torch.rand(width), torch.rand(width)),
        )
        yield Experiment(ops.cumsum.default, lambda x: ops.cumsum(x, -1), (x,))
        yield Experiment(ops.argmax.default, lambda x: ops.argmax(x, -1), (x,))
    for channels, side in ((4, 4), (64, 28), (32, 56)):
        x, vectors = torch.rand(1, channels, side, side), [torch.rand(channels) for _ in range(4)]
        op = ops._native_batch_norm_legit_no_training.default
        yield Experiment(op, lambda x, a, b, c, d, op=op: op(x, a, b, c, d, 0.1, 1e-5)[0], (x, *vectors))
        group = ops.native_group_norm.default
        yield Experiment(
            group,
            lambda x, w, b, c=channels, s=side, group=group: group(x, w, b, 1, c, s * s, 4, 1e-5)[0],
            (x, *vectors[:2]),
        )


def _movers() -> Iterator[Experiment]:
    for size in ((1, 4, 4, 4), (1, 64, 28, 28), (1, 16, 64, 64), (1, 64, 8, 256)):
        x = torch.rand(size)
        for dim, step in ((1, 1), (2, 1), (3, 1), (2, 2), (3, 2)):
            yield Experiment(ops.slice_copy.Tensor, lambda x, d=dim, s=step: ops.slice_copy(x, d, 1, 2**62, s), (x,))
        for dim in (1, 2, 3):
            yield Experiment(ops.cat.default, lambda x, d=dim: ops.cat([x, x, x], d), (x,))
            yield Experiment(ops.select_copy.int, lambda x, d=dim: ops.select_copy(x, d, 1), (x,))
            half = size[dim] // 2
            yield Experiment(
                ops.split_with_sizes_copy.default,
                lambda x, d=dim, half=half: ops.split_with_sizes_copy(x, [half, half], d),
                (x,),
            )
        for order in ([0, 2, 1, 3], [0, 1, 3, 2], [0, 2, 3, 1]):
            yield Experiment(ops.permute_copy.default, lambda x, p=order: ops.permute_copy(x, p), (x,))
        yield Experiment(ops.constant_pad_nd.default, lambda x: ops.constant_pad_nd(x, [1, 1, 1, 1], 0.0), (x,))
        yield Experiment(ops.expand_copy.default, lambda x: ops.expand_copy(x, [4, *x.shape[1:]]), (x,))
        narrow = torch.rand(*size[:-1], 1)
        yield Experiment(ops.expand_copy.default, lambda x, n=size[-1]: ops.expand_copy(x, [-1, -1, -1, n]), (narrow,))
        yield Experiment(ops.full.default, lambda x: ops.full(x.shape, 1.5) + x, (x,))
        yield Experiment(ops.repeat.default, lambda x: ops.repeat(x, [2, 1, 1, 1]), (x,))
        yield Experiment(ops.flip.default, lambda x: ops.flip(x, [2]), (x,))
    for rows, width in ((8, 16), (64, 256), (128, 512)):
        table, index = torch.rand(100, width), torch.randint(0, 100, (rows,))
        yield Experiment(ops.embedding.default, ops.embedding, (table, index))
        yield Experiment(ops.index_select.default, lambda t, i: ops.index_select(t, 0, i), (table, index))
        yield Experiment(ops.index.Tensor, lambda t, i: ops.index(t, [i]), (table, index))
        wide = torch.randint(0, 100, (rows, width))
        yield Experiment(ops.gather.default, lambda t, i: ops.gather(t, 0, i), (table, wide))


def _products() -> Iterator[Experiment]:
    for m, k, n in (
        (4, 4, 4), (1, 256, 256), (64, 256, 256), (64, 64, 784), (196, 192, 768), (32, 512, 64), (9, 9, 9),
        (1, 256, 1024), (1, 512, 512), (1, 768, 3072), (512, 512, 1), (3072, 768, 1), (4, 1024, 256), (16, 256, 512),
    ):  # fmt: skip
        x, y, b = torch.rand(m, k), torch.rand(k, n), torch.rand(n)
        yield Experiment(ops.mm.default, ops.mm, (x, y))
        yield Experiment(ops.addmm.default, ops.addmm, (b, x, y))
        yield Experiment(ops.linear.default, ops.linear, (x, y.t().contiguous(), b))
    for batch, m, k, n in (
        (1, 64, 576, 784), (4, 64, 64, 64), (8, 64, 32, 64), (96, 1, 9, 784), (512, 1, 9, 49), (1, 24, 96, 1024),
        (1, 4, 4, 4), (2, 8, 8, 8), (1, 1, 64, 64), (1, 16, 32, 32),
    ):  # fmt: skip
        yield Experiment(ops.bmm.default, ops.bmm, (torch.rand(batch, m, k), torch.rand(batch, k, n)))


def _windows() -> Iterator[Experiment]:
    for channels, out, side, kernel, groups in (
        (4, 4, 6, 3, 1), (16, 32, 28, 3, 1), (64, 64, 14, 1, 1), (32, 32, 28, 3, 32), (3, 16, 64, 4, 1),
        (64, 64, 14, 3, 4),
    ):  # fmt: skip
        x, w, b = (
            torch.rand(1, channels, side, side),
            torch.rand(out, channels // groups, kernel, kernel),
            torch.rand(out),
        )
        convolution = ops.convolution.default
        yield Experiment(
            convolution,
            lambda x, w, b, g=groups, convolution=convolution: convolution(
                x, w, b, [1, 1], [1, 1], [1, 1], False, [0, 0], g
            ),
            (x, w, b),
        )
    for side in (8, 28, 56):
        x = torch.rand(1, 16, side, side)
        pool = ops.max_pool2d_with_indices.default
        yield Experiment(pool, lambda x, pool=pool: pool(x, [3, 3], [2, 2], [1, 1])[0], (x,))
        yield Experiment(ops.avg_pool2d.default, lambda x: ops.avg_pool2d(x, [2, 2], [2, 2]), (x,))
        yield Experiment(ops.pixel_shuffle.default, lambda x: ops.pixel_shuffle(x, 2), (x,))
