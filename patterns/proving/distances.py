"""Meanings of distances and angles between vectors, by sums of products."""

from __future__ import annotations

from typing import Any

import torch

from exirkit.patterns.proving.meanings import MEANINGS, meaning
from exirkit.patterns.proving.movement import filled, normal_dim, unsqueeze
from exirkit.patterns.proving.paths import Path, UnsupportedError, integer
from exirkit.patterns.proving.pointwise import mul, sub
from exirkit.patterns.proving.sums import sum_over


def _root(path: Path, tensor: Any) -> Any:
    return MEANINGS["aten.sqrt.default"](path, tensor)


@meaning("aten.cosine_similarity.default")
def cosine_similarity(path: Path, x1: Any, x2: Any, dim: Any = 1, eps: Any = 1e-8) -> Any:
    """The product of two vectors over that of their lengths, each of which is at least a number."""
    if x1.dtype != torch.float32 or x2.dtype != torch.float32 or x1.dim() != x2.dim():
        raise UnsupportedError("an angle between vectors of other dtypes or ranks")
    path.formulas.add("angles")
    at = normal_dim(path, dim, x1.dim())
    product = sum_over(path, mul(path, x1, x2), [at])
    limit = filled(path, [], eps, x1.dtype)
    lengths = [_root(path, sum_over(path, mul(path, one, one), [at])) for one in (x1, x2)]
    first, second = (MEANINGS["aten.maximum.default"](path, one, limit) for one in lengths)
    return MEANINGS["aten.div.Tensor"](path, product, mul(path, first, second))


def _distances(path: Path, x1: Any, x2: Any, p: Any) -> Any:
    if not bool(p == 2):
        raise UnsupportedError("distances of another order")
    path.require(x1.dim() >= 2 and x2.dim() >= 2, "rows")
    path.require(integer(x1.shape[-1]) == integer(x2.shape[-1]), "rows of one size")
    path.formulas.add("distances")
    between = sub(path, unsqueeze(path, x1, x1.dim() - 1), unsqueeze(path, x2, x2.dim() - 2))
    return _root(path, sum_over(path, mul(path, between, between), [between.dim() - 1]))


@meaning("aten.cdist.default")
def cdist(path: Path, x1: Any, x2: Any, p: Any = 2.0, **_: Any) -> Any:
    """Distances between all pairs of rows."""
    return _distances(path, x1, x2, p)


@meaning("aten._cdist_forward.default")
def cdist_forward(path: Path, x1: Any, x2: Any, p: Any, **_: Any) -> Any:
    """Likewise."""
    return _distances(path, x1, x2, p)
