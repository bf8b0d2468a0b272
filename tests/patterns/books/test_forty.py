"""Passes that people write by hand: each rule that the table names does its part on a model written for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.patterns.exported_programs import Computes, exported, outputs
from tests.patterns.rule_files import rule, rule_ids

from exirkit.ir import GraphEditor, copy_program, register_quantized_decomposed
from exirkit.patterns import RuleEngine, shipped_books

TABLE = (Path(__file__).parents[3] / "docs" / "how_to" / "forty_passes.md").read_text(encoding="utf-8")
BOOKS = {rule_id: name for name, rule_id in rule_ids(*shipped_books())}
ROWS = {int(no): cell for no, cell in re.findall(r"^\| (\d+) \| .* \| (.*) \|$", TABLE, re.MULTILINE)}
OTHERS = dict(re.findall(r"^\| (?!\d|no |pass |---)([^|]*) \| ([^|]*) \|$", TABLE, re.MULTILINE))

register_quantized_decomposed()
A = torch.ops.aten
Q = torch.ops.quantized_decomposed
F = torch.nn.functional


@dataclass(frozen=True)
class Case:
    """A model, and the rules that must fire on it.

    Attributes:
        row: Row of the table.
        rules: Ids without what all of them would say anyway.
        compute: The model.
        inputs: Its inputs.
        parts: Modules that it uses.
        is_core: It is decomposed to core operators first, which makes convolutions of `conv2d`.
    """

    row: int | str
    rules: str
    compute: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    parts: dict[str, Any] = field(default_factory=dict)
    is_core: bool = False


def normal(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(len(sizes)))


def stored(**tensors: torch.Tensor) -> dict[str, Any]:
    """Return a module that holds constants."""
    module = torch.nn.Module()
    for name, tensor in tensors.items():
        module.register_buffer(name, tensor)
    return {"held": module}


def quantized(x: torch.Tensor, scale: float = 0.05, zero: int = 3) -> torch.Tensor:
    return Q.quantize_per_tensor(x, scale, zero, -128, 127, torch.int8)


def real(x: torch.Tensor, scale: float = 0.05, zero: int = 3) -> torch.Tensor:
    return Q.dequantize_per_tensor(x, scale, zero, -128, 127, torch.int8)


def weight(x: torch.Tensor) -> torch.Tensor:
    return Q.dequantize_per_tensor(x, 0.02, 0, -127, 127, torch.int8)


def integers(*sizes: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(-100, 100, sizes, generator=generator).to(torch.int8)


def normalisation(kind: type[torch.nn.Module], channels: int) -> torch.nn.Module:
    made = kind(channels)
    for tensor in (*made.parameters(), *(one for one in made.buffers() if one.is_floating_point())):
        tensor.data.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(2))
    return made


def conv(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, *, transposed: bool = False) -> torch.Tensor:
    return A.convolution(x, w, b, [1, 1], [1, 1], [1, 1], transposed, [0, 0], 1)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = A.slice_copy(x, -1, 0, 3, 1), A.slice_copy(x, -1, 3, 6, 1)
    return x * cos + torch.cat([-second, first], -1) * sin


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(A.add.Scalar(x.pow(2).mean([-1], True), 1e-5))


def group_norm(m: Any, x: torch.Tensor) -> torch.Tensor:
    return A.native_group_norm(x, m.held.w, m.held.b, 2, 4, 9, 2, 1e-5)[0]


X, Y, IMAGE = normal(3, 4), normal(4, 3).t().contiguous(), normal(2, 4, 6, 6)
B8, I8 = integers(3, 4), integers(2, 4, 6, 6)
QUERY, KEY, VALUE = normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 6)
W = stored(w=normal(5, 4), b=normal(5), s=normal(5), t=normal(4, 5))
K = stored(w=normal(4, 4, 3, 3), b=normal(4), s=normal(4, 1, 1), whole=normal(5, 4, 6, 6), line=normal(5, 4, 3))
QW = stored(w=integers(5, 4), k=integers(5, 4, 3, 3), b=normal(5))
SWAP = [0, 2, 1]

CASES = [
    Case(1, "canonicalize.t-to-permute", lambda m, x: torch.t_copy(x), (X,)),
    Case(3, "legalize.add-scalar-to-tensor", lambda m, x: A.add.Scalar(x, 2), (X,)),
    Case(3, "legalize.sub-scalar-to-tensor", lambda m, x: A.sub.Scalar(x, 2), (X,)),
    Case(3, "legalize.mul-scalar-to-tensor", lambda m, x: A.mul.Scalar(x, 2), (X,)),
    Case(3, "legalize.div-scalar-to-tensor", lambda m, x: A.div.Scalar(x, 2), (X,)),
    Case(4, "decompose.mixed-dtypes", lambda m, x, y: x * y, (X, B8)),
    Case(5, "dtype.cast-same-remove", lambda m, x: A._to_copy(x, dtype=torch.float32) + x, (X,)),
    Case(6, "canonicalize.slice-all-remove", lambda m, x: A.slice_copy(x, 1, 0, 4, 1) + x, (X,)),
    Case(6, "canonicalize.slice-of-all-remove", lambda m, x: A.slice_copy(x, 1, 0, 2**63 - 1, 1) + x, (X,)),
    Case(6, "quant.quantize-of-dequantize-remove", lambda m, x: A.neg(quantized(real(x))), (B8,)),
    Case(7, "layout.cat-drop-empty", lambda m, x, y: torch.cat([x, y], 1).relu(), (X, torch.zeros(3, 0))),
    Case(8, "quant.quantize-of-dequantize-remove quant.view-before-dequantize",
         lambda m, x: quantized(A.view_copy(real(x), [4, 3])), (B8,)),
    Case(8, "quant.rescale quant.permute-before-dequantize",
         lambda m, x: quantized(A.permute_copy(real(x), [1, 0]), 0.1, 7), (B8,)),
    Case(10, "canonicalize.view-view-merge", lambda m, x: A.view_copy(A.view_copy(x, [12]), [2, 6]), (X,)),
    Case(12, "fuse.linear-activation", lambda m, x: F.gelu(F.linear(x, m.held.w, m.held.b)), (X,), W),
    Case(12, "fuse.conv-activation", lambda m, x: F.relu(conv(x, m.held.w)), (IMAGE,), K),
    Case(12, "fuse.conv-transpose-activation", lambda m, x: F.silu(conv(x, m.held.w, transposed=True)), (IMAGE,), K),
    Case(12, "fuse.add-relu", lambda m, x, y: F.relu(x + y), (X, Y)),
    Case(12, "fuse.sub-relu", lambda m, x, y: F.relu(x - y), (X, Y)),
    Case(12, "fuse.mul-relu", lambda m, x, y: F.relu(x * y), (X, Y)),
    Case(12, "fuse.linear-clamp", lambda m, x: F.linear(x, m.held.w).clamp(-0.5, 0.5), (X,), W),
    Case(12, "fuse.add-clamp", lambda m, x, y: F.hardtanh(x + y, -0.5, 0.5), (X, Y)),
    Case(13, "fuse.conv-clamp", lambda m, x: F.relu6(m.conv(x)), (IMAGE,),
         {"conv": torch.nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=4)}, is_core=True),
    Case(14, "simplify.clamp-clamp-merge", lambda m, x: x.clamp(-0.9, 0.5).clamp(-0.5, 0.9), (X,)),
    Case(14, "simplify.hardtanh-hardtanh-merge",
         lambda m, x: F.hardtanh(F.hardtanh(x, -0.9, 0.5), -0.5, 0.9), (X,)),
    Case(14, "simplify.clamp-of-relu-merge", lambda m, x: x.relu().clamp(-0.5, 0.9), (X,)),
    Case(14, "simplify.relu-of-clamp-merge", lambda m, x: x.clamp(-0.5, 0.9).relu(), (X,)),
    Case(15, "fold.conv-batch-norm", lambda m, x: m.norm(m.conv(x)), (IMAGE,),
         {"conv": torch.nn.Conv2d(4, 6, 3, groups=2), "norm": normalisation(torch.nn.BatchNorm2d, 6)}, is_core=True),
    Case(15, "fold.conv-transpose-batch-norm", lambda m, x: m.norm(m.conv(x)), (IMAGE,),
         {"conv": torch.nn.ConvTranspose2d(4, 6, 3, groups=2), "norm": normalisation(torch.nn.BatchNorm2d, 6)},
         is_core=True),
    Case(16, "layout.batch-norm-to-depthwise-conv", lambda m, x: m.norm(x), (IMAGE,),
         {"norm": normalisation(torch.nn.BatchNorm2d, 4)}, is_core=True),
    Case(16, "decompose.batch-norm-inference", lambda m, x: m.norm(x), (IMAGE,),
         {"norm": normalisation(torch.nn.BatchNorm2d, 4)}, is_core=True),
    Case(17, "fold.linear-bias", lambda m, x: F.linear(x, m.held.w) + m.held.b, (X,), W),
    Case(17, "fuse.linear-add-alpha", lambda m, x: torch.add(F.linear(x, m.held.w, m.held.s), m.held.b, alpha=2),
         (X,), W),
    Case(18, "fold.conv-scale", lambda m, x: A.convolution(x, m.held.w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
         * m.held.s, (IMAGE,), K),
    Case(18, "fold.linear-scale", lambda m, x: F.linear(x, m.held.w, m.held.b) * m.held.s, (X,), W),
    Case(18, "fuse.conv-number-scale", lambda m, x: A.mul.Scalar(conv(x, m.held.w, m.held.b), 0.5), (IMAGE,), K),
    Case(18, "fuse.linear-number-scale", lambda m, x: A.mul.Scalar(F.linear(x, m.held.w, m.held.b), 0.5), (X,), W),
    Case(18, "fuse.conv-bias", lambda m, x: conv(x, m.held.w) + m.held.s, (IMAGE,), K),
    Case(19, "fuse.mm-to-addmm", lambda m, x, y: torch.mm(x, y), (X, normal(4, 5))),
    Case(20, "fold.addmm-transposed-weight",
         lambda m, x: torch.addmm(m.held.b, x, A.permute_copy(m.held.w, [1, 0])), (X,), W),
    Case(20, "fold.mm-transposed-weight", lambda m, x: torch.mm(x, A.permute_copy(m.held.w, [1, 0])), (X,), W),
    Case(20, "fold.addmm-constant-weight", lambda m, x: torch.addmm(m.held.b, x, m.held.t), (X,), W),
    Case(21, "decompose.mm-to-bmm", lambda m, x, y: torch.mm(x, y), (X, normal(4, 5))),
    Case(21, "layout.matmul-to-bmm", lambda m, x, y: x @ y, (normal(2, 3, 4, 5), normal(2, 3, 5, 4))),
    Case(22, "decompose.add-alpha", lambda m, x, y: torch.add(x, y, alpha=3), (X, Y)),
    Case(22, "decompose.sub-alpha", lambda m, x, y: torch.sub(x, y, alpha=3), (X, Y)),
    Case(23, "decompose.softmax", lambda m, x: x.softmax(-1), (X,), is_core=True),
    Case(23, "decompose.log-softmax", lambda m, x: x.log_softmax(-1), (X,), is_core=True),
    Case(24, "decompose.layer-norm", lambda m, x: m.norm(x), (X,),
         {"norm": torch.nn.LayerNorm(4)}, is_core=True),
    Case(24, "decompose.layer-norm-two-dims", lambda m, x: m.norm(x), (QUERY,),
         {"norm": torch.nn.LayerNorm([3, 4], eps=1e-4)}, is_core=True),
    Case(24, "decompose.group-norm", group_norm, (normal(2, 4, 3, 3),), stored(w=normal(4), b=normal(4))),
    Case(24, "decompose.rms-norm", lambda m, x: m.norm(x), (X,), {"norm": torch.nn.RMSNorm(4, eps=1e-5)}),
    Case(25, "decompose.mean-dim", lambda m, x: x.mean([2, 3]), (IMAGE,)),
    Case(26, "decompose.gelu-erf", lambda m, x: F.gelu(x), (X,)),
    Case(26, "decompose.gelu-tanh", lambda m, x: F.gelu(x, approximate="tanh"), (X,)),
    Case(26, "decompose.glu", lambda m, x: F.glu(x, 1), (X,)),
    Case(26, "decompose.silu", lambda m, x: F.silu(x), (X,)),
    Case(26, "decompose.hardsigmoid", lambda m, x: F.hardsigmoid(x), (X,)),
    Case(26, "decompose.hardswish", lambda m, x: F.hardswish(x), (X,)),
    Case(26, "decompose.mish", lambda m, x: F.mish(x), (X,)),
    Case(27, "canonicalize.split-to-slices",
         lambda m, x: [one.relu() for one in A.split_with_sizes_copy(x, [1, 3], 1)], (X,)),
    Case(27, "decompose.split-to-slices", lambda m, x: [one.relu() for one in A.split_copy(x, 2, 0)], (X,)),
    Case(28, "decompose.pad-last-with-cat", lambda m, x: A.constant_pad_nd(x, [1, 2], 1.0), (X,)),
    Case(28, "decompose.pad-first-with-cat", lambda m, x: A.constant_pad_nd(x, [0, 0, 1, 2], 1.0), (X,)),
    Case(29, "layout.conv-whole-to-linear",
         lambda m, x: A.convolution(x, m.held.whole, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), (IMAGE,), K),
    Case(30, "layout.conv1d-to-conv2d",
         lambda m, x: A.convolution(x, m.held.line, None, [2], [1], [1], False, [0], 1), (normal(2, 4, 8),), K),
    Case(31, "canonicalize.permute-permute-merge canonicalize.permute-identity-remove",
         lambda m, x: A.permute_copy(A.permute_copy(x, SWAP), SWAP).relu(), (QUERY,)),
    Case(31, "layout.slice-slice-merge", lambda m, x: A.slice_copy(A.slice_copy(x, 1, 1, 4, 1), 1, 0, 2, 1), (X,)),
    Case(32, "canonicalize.squeeze-dim-to-view canonicalize.unsqueeze-to-view",
         lambda m, x: A.squeeze_copy.dim(A.unsqueeze_copy(x, 1).relu(), 1), (X,)),
    Case(32, "canonicalize.squeeze-dims-to-view", lambda m, x: A.squeeze_copy.dims(x, [0]), (normal(1, 3, 4),)),
    Case(32, "layout.squeeze-dims-to-view", lambda m, x: A.squeeze_copy.dims(x, [0, 2]), (normal(1, 3, 1, 4),)),
    Case(33, "layout.cat-before-permute",
         lambda m, x, y: torch.cat([A.permute_copy(x, SWAP), A.permute_copy(y, SWAP)], 1), (QUERY, QUERY + 1)),
    Case(33, "layout.cat-before-permute",
         lambda m, x, y, z: torch.cat([A.permute_copy(one, SWAP) for one in (x, y, z)], 2),
         (QUERY, QUERY + 1, QUERY + 2)),
    Case(33, "layout.cat-of-channels-before-permute",
         lambda m, x, y, z: torch.cat([A.permute_copy(one, SWAP) for one in (x, y, z)], 2),
         (QUERY, KEY, KEY + 1)),
    Case(33, "layout.unary-before-permute", lambda m, x: A.permute_copy(x, SWAP).tanh(), (QUERY,)),
    Case(33, "layout.binary-before-permute",
         lambda m, x, y: A.permute_copy(x, SWAP) * A.permute_copy(y, SWAP), (QUERY, QUERY + 1)),
    Case(33, "layout.number-before-permute", lambda m, x: A.add.Scalar(A.permute_copy(x, SWAP), 0.5), (QUERY,)),
    Case(34, "layout.activation-before-cat", lambda m, x, y: torch.cat([x, y], 1).sigmoid(), (X, Y)),
    Case(35, "quant.quantize-before-slice", lambda m, x: quantized(A.slice_copy(x, 1, 1, 4, 1)), (X,)),
    Case(35, "quant.slice-before-dequantize", lambda m, x: A.slice_copy(real(x), 1, 1, 3, 1), (B8,)),
    Case(36, "attention.sdpa",
         lambda m, q, k, v: (A.mul.Scalar(q @ k.permute(SWAP), 0.5)).softmax(-1) @ v, (QUERY, KEY, VALUE)),
    Case(36, "attention.sdpa-masked",
         lambda m, q, k, v, w: (A.mul.Scalar(q @ k.permute(SWAP), 0.5) + w).softmax(-1) @ v,
         (QUERY, KEY, VALUE, normal(3, 5))),
    Case(36, "attention.sdpa-scaled-query",
         lambda m, q, k, v: (A.mul.Scalar(q, 0.5) @ k.permute(SWAP)).softmax(-1) @ v, (QUERY, KEY, VALUE)),
    Case(36, "attention.sdpa-of-batches",
         lambda m, q, k, v: A.mul.Scalar(q.bmm(A.permute_copy(k, SWAP)), 0.5).softmax(-1).bmm(v), (QUERY, KEY, VALUE)),
    Case(36, "decompose.sdpa", lambda m, *qkv: F.scaled_dot_product_attention(*qkv), (QUERY, KEY, VALUE)),
    Case(36, "decompose.sdpa-masked", lambda m, *qkv: F.scaled_dot_product_attention(*qkv),
         (QUERY, KEY, VALUE, normal(3, 5))),
    Case(36, "decompose.sdpa-chosen", lambda m, *qkv: F.scaled_dot_product_attention(*qkv),
         (QUERY, KEY, VALUE, normal(3, 5) > 0)),
    Case(36, "decompose.sdpa-causal",
         lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (QUERY, KEY, VALUE)),
    Case(37, "fuse.rms-norm",
         lambda m, x: scaled(x) * m.held.w, (X,), stored(w=normal(4))),
    Case(37, "fuse.layer-norm",
         lambda m, x: scaled(x - x.mean([-1], True)) * m.held.w + m.held.w, (X,), stored(w=normal(4))),
    Case(37, "fuse.pixel-shuffle", lambda m, x: A.view_copy(
        A.permute_copy(A.view_copy(x, [2, 1, 2, 2, 6, 6]), [0, 1, 4, 2, 5, 3]), [2, 1, 12, 12]), (IMAGE,)),
    Case(37, "fuse.pixel-unshuffle", lambda m, x: A.view_copy(
        A.permute_copy(A.view_copy(x, [2, 4, 3, 2, 3, 2]), [0, 1, 3, 5, 2, 4]), [2, 16, 3, 3]), (IMAGE,)),
    Case(37, "attention.rope", lambda m, *xs: rotary(*xs), (normal(2, 6), normal(2, 6) + 1, normal(2, 6) - 1)),
    Case(38, "quant.linear", lambda m, x: quantized(F.linear(real(x), weight(m.held.w), m.held.b), 0.1), (B8,), QW),
    Case(38, "quant.conv2d", lambda m, x: quantized(conv(real(x), weight(m.held.k), m.held.b), 0.5), (I8,), QW),
    Case(38, "quant.add", lambda m, x, y: quantized(real(x) + real(y, 0.1), 0.1), (B8, B8 // 2)),
    Case(38, "quant.mul", lambda m, x, y: quantized(real(x) * real(y, 0.1), 0.2), (B8, B8 // 2)),
    Case(38, "quant.mean", lambda m, x: quantized(real(x).mean([1], True), 0.1), (B8,)),
    Case(38, "quant.avg-pool", lambda m, x: quantized(F.avg_pool2d(real(x), [2, 2], [2, 2]), 0.1), (I8,)),
    Case(38, "quant.relu", lambda m, x: quantized(real(x).relu()), (B8,)),
    Case(39, "quant.unary-to-table", lambda m, x: quantized(real(x).sigmoid(), 0.01), (B8,)),
    Case(40, "layout.match-ranks", lambda m, x, y: x + y, (QUERY, normal(3, 4))),
    Case(40, "decompose.mixed-dtypes", lambda m, x, y: torch.maximum(x, y), (X, B8)),
    Case("negated", "simplify.where-not-swap",
         lambda m, x, y: torch.where(torch.logical_not(x > 0), x, y), (X, Y)),
    Case("powers", "simplify.pow-two-to-mul decompose.pow-three-to-mul simplify.pow-minus-one-to-reciprocal",
         lambda m, x: x.pow(2) + x.pow(3) + x.pow(-1), (X,)),
    Case("le", "decompose.le-to-ge decompose.lt-to-gt", lambda m, x, y: (x <= y, x < y), (X, Y)),
    Case("softmax", "attention.unsafe-softmax", lambda m, x, y: A._safe_softmax(x.bmm(y), -1),
         (QUERY, normal(2, 4, 5))),
    Case("softmax", "attention.safe-softmax", lambda m, x: torch.where(
        torch.logical_not(torch.any(torch.logical_not(A.eq.Scalar(x, float("-inf"))), -1, True)),
        torch.full_like(x, 0), x.softmax(-1)), (X,)),
    Case("full", "decompose.full-like decompose.zeros-like decompose.ones-like dtype.scalar-tensor-to-full",
         lambda m, x: torch.full_like(x, 1.5) + torch.zeros_like(x) + torch.ones_like(x)
         + A.scalar_tensor(0.5, dtype=torch.float32), (X,)),
    Case("zeros", "simplify.add-zero-remove simplify.mul-one-remove",
         lambda m, x: torch.neg((x + m.held.zero) * m.held.one), (X,), stored(zero=torch.zeros(4), one=torch.ones(4))),
    Case("same sizes", "canonicalize.view-same-remove canonicalize.expand-same-remove",
         lambda m, x: A.view_copy(x, [3, 4]) + A.expand_copy(x, [3, 4]), (X,)),
    Case("slices", "layout.slice-of-cat", lambda m, x, y: A.slice_copy(torch.cat([x, y], 1), 1, 5, 7, 1), (X, Y)),
    Case("groups", "layout.conv-of-two-groups-split",
         lambda m, x: A.convolution(x, m.held.w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 2), (IMAGE,),
         stored(w=normal(6, 2, 3, 3))),
]  # fmt: skip


def named(cell: str) -> list[str]:
    return re.findall(r"`([a-z0-9]+\.[a-z0-9-]+)`", cell)


def test_table_has_forty_rows() -> None:
    assert list(ROWS) == list(range(1, 41))
    assert len(OTHERS) == 9


@pytest.mark.parametrize("cell", [*ROWS.values(), *OTHERS.values()])
def test_rules_of_the_table_exist(cell: str) -> None:
    assert named(cell)[:1] or cell.startswith(("procedural: ", "not yet: "))
    assert not [rule for rule in named(cell) if rule not in BOOKS]


def test_every_rule_of_the_table_has_a_model() -> None:
    """What is named in passing under `procedural` has one in another row."""
    for number, cell in ROWS.items():
        if not cell.startswith(("procedural: ", "not yet: ")):
            shown = {rule for case in CASES if case.row == number for rule in case.rules.split()}
            assert shown == set(named(cell)), f"row {number}"
    shown = {rule for case in CASES if isinstance(case.row, str) for rule in case.rules.split()}
    assert shown == {rule for cell in OTHERS.values() for rule in named(cell)}


@pytest.mark.parametrize("case", CASES, ids=[f"{case.row} {case.rules.partition(' ')[0]}" for case in CASES])
def test_rules_fire_on_the_model(case: Case) -> None:
    if case.is_core:
        editor = exported(case.compute, *case.inputs, **case.parts)
    else:
        module = Computes(case.compute, **case.parts).eval()
        editor = GraphEditor(copy_program(torch.export.export(module, case.inputs, strict=False)))
    before = outputs(editor.program, *case.inputs)
    report = RuleEngine([rule(BOOKS[one], one) for one in case.rules.split()]).run(editor)
    assert set(case.rules.split()) <= set(report.applied), report.rejections
    tolerance = 1.0 if before[0].dtype == torch.int8 else 1e-4
    for one, other in zip(outputs(editor.program, *case.inputs), before, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=tolerance)
