"""Programs on which a class of the official package and the rules that do its work are both run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  registers operators that quantise
from torch.nn import functional as F  # noqa: N812

aten = torch.ops.aten
nn = torch.nn


@dataclass(frozen=True)
class Case:
    """A program for a class.

    Attributes:
        book: The book of the class's package.
        class_name: The class.
        model: Makes the model.
        inputs: Its inputs.
        is_edge: Whether the class gets the Edge program rather than the exported one.
        make: Makes the pass from the class and the program.
        around: A context in which the pass runs.
        preserve: Operators that lowering to Edge leaves as they are.
        is_strict: Whether the program is exported with its sources noted, as some classes look for.
    """

    book: str
    class_name: str
    model: Callable[[], torch.nn.Module]
    inputs: tuple[Any, ...]
    is_edge: bool = True
    make: Callable[[Any, Any], Any] = lambda official, program: official()
    around: Callable[[], Any] = contextlib.nullcontext
    preserve: tuple[Any, ...] = ()
    is_strict: bool = False


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def _of(function: Callable[..., Any]) -> Callable[[], torch.nn.Module]:
    return lambda: _Function(function)


def _x(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def _i(*sizes: int, low: int = -9, high: int = 9) -> torch.Tensor:
    return torch.randint(low, high, sizes, generator=torch.Generator().manual_seed(0))


def _with_program(official: Any, program: Any) -> Any:
    return official(program)


_CORTEX_M = "backends/cortex_m"
_QUALCOMM = "backends/qualcomm"
_q, _dq = (
    torch.ops.quantized_decomposed.quantize_per_tensor.default,
    torch.ops.quantized_decomposed.dequantize_per_tensor.default,
)


def _exported(book: str, name: str, function: Callable[..., Any], *inputs: Any, **more: Any) -> Case:
    return Case(book, name, _of(function), inputs, is_edge=False, **more)


def _edge(book: str, name: str, function: Callable[..., Any], *inputs: Any, **more: Any) -> Case:
    return Case(book, name, _of(function), inputs, **more)


_IMAGE = _x(1, 4, 6, 6)
_SMALL = _x(3, 4).clamp(-0.9, 0.9)

_FOR_CORTEX_M = [
    _exported(_CORTEX_M, "ClampHardswishPass", F.hardswish, _x(3, 4)),
    _exported(_CORTEX_M, "DecomposeMeanPass", lambda x: x.mean((2, 3)), _IMAGE),
    _exported(_CORTEX_M, "DecomposeMeanPass", lambda x: x.mean((-1, -2), keepdim=True), _IMAGE),
    _exported(_CORTEX_M, "DecomposeMeanPass", lambda x: F.adaptive_avg_pool2d(x, 1), _IMAGE),
    _exported(_CORTEX_M, "MatmulToBmmPass", torch.matmul, _x(2, 3, 4, 5), _x(2, 3, 5, 6)),
    _edge(
        _CORTEX_M,
        "ReplaceQuantNodesPass",
        lambda x: _dq(_q(x, 0.1, 3, -128, 127, torch.int8), 0.1, 3, -128, 127, torch.int8),
        _x(3, 4),
    ),
    _edge(
        _CORTEX_M,
        "ReplaceQuantNodesPass",
        lambda x: _dq(_q(x, 0.1, 3, -32768, 32767, torch.int16), 0.1, 3, -32768, 32767, torch.int16),
        _x(3, 4),
    ),
]

_FOR_QUALCOMM = [
    _edge(_QUALCOMM, "DecomposeAcos", torch.acos, _SMALL),
    _edge(_QUALCOMM, "DecomposeAddmm", torch.addmm, _x(3, 5), _x(3, 4), _x(4, 5)),
    _edge(_QUALCOMM, "DecomposeAny", lambda x: torch.any(x, 1), _i(3, 4, low=0, high=2)),
    _edge(_QUALCOMM, "DecomposeAny", lambda x: torch.any(x), _i(3, 4, low=0, high=2)),
    _exported(_QUALCOMM, "DecomposeAsStrided", lambda x: torch.as_strided(x, (4, 3), (3, 1)), _x(3, 4)),
    _exported(_QUALCOMM, "DecomposeAsStrided", lambda x: torch.as_strided(x, (2, 3), (1, 2), 1), _x(3, 4)),
    _edge(_QUALCOMM, "DecomposeAtan2", torch.atan2, _x(3, 4), _x(3, 4, seed=1)),
    _exported(_QUALCOMM, "DecomposeBinaryAlpha", lambda x, y: torch.add(x, y, alpha=3), _x(3, 4), _x(3, 4)),
    _exported(_QUALCOMM, "DecomposeCDist", torch.cdist, _x(3, 4), _x(5, 4)),
    _edge(_QUALCOMM, "DecomposeColIm", lambda x: F.unfold(x, 2, stride=2), _IMAGE, preserve=(aten.im2col.default,)),
    _edge(
        _QUALCOMM,
        "DecomposeColIm",
        lambda x: F.fold(x, (6, 6), 2, stride=2),
        _x(1, 16, 9),
        preserve=(aten.col2im.default,),
    ),
    _edge(_QUALCOMM, "DecomposeDiagonal", lambda x: torch.diagonal(x, 1, 1, 2), _x(2, 3, 4)),
    _edge(_QUALCOMM, "DecomposeDivMode", lambda x, y: torch.div(x, y, rounding_mode="trunc"), _x(3, 4), _x(3, 4)),
    _exported(_QUALCOMM, "DecomposeExpM1", torch.expm1, _x(3, 4)),
    _exported(_QUALCOMM, "DecomposeFill", lambda x: torch.fill(x, 2.5), _x(3, 4)),
    _exported(
        _QUALCOMM,
        "DecomposeFloorDivide",
        torch.floor_divide,
        _i(3, 4, low=-100, high=100).to(torch.int16),
        _i(3, 4, low=1).to(torch.int16),
    ),
    _exported(_QUALCOMM, "DecomposeGlu", F.glu, _x(3, 4)),
    _exported(_QUALCOMM, "DecomposeHardsigmoid", F.hardsigmoid, _x(3, 4)),
    _edge(_QUALCOMM, "DecomposeHyperbolicVariants", torch.sinh, _x(3, 4)),
    _edge(_QUALCOMM, "DecomposeHyperbolicVariants", torch.cosh, _x(3, 4)),
    _edge(_QUALCOMM, "DecomposeHyperbolicVariants", torch.asinh, _x(3, 4)),
    _edge(_QUALCOMM, "DecomposeHyperbolicVariants", torch.acosh, _x(3, 4).abs() + 1.5),
    _edge(_QUALCOMM, "DecomposeHyperbolicVariants", torch.atanh, _SMALL),
    _exported(
        _QUALCOMM,
        "DecomposeLinalgVectorNorm",
        lambda x: torch.linalg.vector_norm(x, 2, (1,)),
        _x(3, 4),
        make=lambda official, program: official(quantization_capture=True),
    ),
    _edge(_QUALCOMM, "DecomposeLogVariants", lambda x: torch.log2(x), _x(3, 4).abs() + 0.5),
    _edge(_QUALCOMM, "DecomposeLogVariants", lambda x: torch.log10(x), _x(3, 4).abs() + 0.5),
    _edge(_QUALCOMM, "DecomposeLogVariants", lambda x: torch.log1p(x), _x(3, 4).abs()),
    _edge(
        _QUALCOMM,
        "DecomposeMaxPool3d",
        lambda x: F.max_pool3d(x, 2),
        _x(1, 2, 4, 6, 6),
        preserve=(aten.max_pool3d.default,),
    ),
    _edge(_QUALCOMM, "DecomposeMinMaxDim", lambda x: tuple(torch.min(x, 1)), _x(3, 4), is_strict=True),
    _edge(_QUALCOMM, "DecomposeMinMaxDim", lambda x: tuple(torch.max(x, 1)), _x(3, 4), is_strict=True),
    _exported(_QUALCOMM, "DecomposePad", lambda x: F.pad(x, (1, 2, 1, 0), mode="reflect"), _IMAGE),
    _exported(_QUALCOMM, "DecomposePad", lambda x: F.pad(x, (1, 2, 1, 0, 1, 1), mode="reflect"), _x(1, 2, 4, 4, 4)),
    _exported(_QUALCOMM, "DecomposePDist", F.pdist, _x(4, 3)),
    _exported(_QUALCOMM, "DecomposeReciprocal", torch.reciprocal, _x(3, 4)),
    _edge(_QUALCOMM, "DecomposeRemainder", torch.remainder, _x(3, 4), _x(3, 4, seed=1)),
    _edge(_QUALCOMM, "DecomposeRemainder", lambda x: torch.remainder(x, 0.7), _x(3, 4)),
    _exported(_QUALCOMM, "DecomposeRoll", lambda x: torch.roll(x, (1, -2), (0, 1)), _x(3, 4)),
    _exported(_QUALCOMM, "DecomposeRoll", lambda x: torch.roll(x, 3), _x(3, 4)),
    _exported(_QUALCOMM, "DecomposeSelectScatter", lambda x, y: torch.select_scatter(x, y, 1, -1), _x(3, 4), _x(3)),
    _exported(_QUALCOMM, "DecomposeSilu", F.silu, _x(3, 4)),
    _edge(_QUALCOMM, "DecomposeTan", torch.tan, _SMALL),
    _exported(_QUALCOMM, "DecomposeThreshold", lambda x: F.threshold(x, 0.1, 20.0), _x(3, 4)),
    _exported(_QUALCOMM, "DecomposeTriu", lambda x: torch.triu(x, 1), _x(3, 4)),
    _edge(_QUALCOMM, "DecomposeTrunc", torch.trunc, 3 * _x(3, 4)),
    _exported(_QUALCOMM, "DecomposeVar", lambda x: torch.var(x, 1, correction=1), _x(3, 4)),
    _exported(_QUALCOMM, "ConvertSquareToPow", torch.square, _x(3, 4)),
    _edge(_QUALCOMM, "ConvertBmmToMatmul", torch.bmm, _x(2, 3, 4), _x(2, 4, 5), is_strict=True),
    _edge(_QUALCOMM, "ConvertBmmToMatmul", torch.matmul, _x(2, 2, 3, 4), _x(2, 2, 4, 5), is_strict=True),
    Case(
        _QUALCOMM,
        "ConvertLinearToConv2d",
        lambda: nn.Linear(4, 5),
        (_x(3, 4),),
        make=_with_program,
        preserve=(aten.linear.default,),
    ),
    Case(_QUALCOMM, "CanonicalizeConv", lambda: nn.Conv1d(2, 3, 3), (_x(1, 2, 8),), make=_with_program),
    Case(_QUALCOMM, "CanonicalizeConv", lambda: nn.ConvTranspose1d(2, 3, 3), (_x(1, 2, 8),), make=_with_program),
    Case(
        _QUALCOMM,
        "FixedLinearKeepDim",
        lambda: nn.Linear(4, 5),
        (_x(2, 3, 4),),
        make=_with_program,
        preserve=(aten.linear.default,),
    ),
    _edge(_QUALCOMM, "ExpandBroadcastTensorShape", torch.add, _x(3, 4), _x(4)),
    _edge(_QUALCOMM, "FuseConsecutiveTranspose", lambda x: x.permute(1, 0, 2).permute(2, 1, 0).relu(), _x(2, 3, 4)),
    _exported(_QUALCOMM, "InsertReshapeForReduceOps", torch.argmax, _x(3, 4)),
    _edge(_QUALCOMM, "RecomposePadMaxPool2d", lambda x: F.max_pool2d(x, 3, 2, 1), _IMAGE),
    _exported(
        _QUALCOMM,
        "RecomposePixelUnshuffle",
        lambda x: x.view(1, 4, 3, 2, 3, 2).permute(0, 1, 3, 5, 2, 4).reshape(1, 16, 3, 3),
        _IMAGE,
        make=lambda official, program: official(quantization_capture=True),
    ),
    _edge(_QUALCOMM, "RemoveRedundancy", lambda x: x.clone().expand(3, 4).repeat(1, 1) + 1, _x(3, 4)),
    _exported(_QUALCOMM, "ReplaceArangeArgs", lambda x: x + torch.arange(4, dtype=torch.float32), _x(3, 4)),
]

_ARM = "backends/arm"
_NXP = "backends/nxp"
_BITS = _x(3, 4) > 0


def _before_quantising(official: Any, program: Any) -> Any:
    return official(tfa_pass=True)


_FOR_ARM = [
    _edge(_ARM, "ConvertToClampPass", torch.relu, _x(3, 4)),
    _edge(_ARM, "DecomposeAcoshPass", torch.acosh, _x(3, 4).abs() + 1.5),
    _edge(_ARM, "DecomposeAtanhPass", torch.atanh, _SMALL),
    _edge(_ARM, "DecomposeAsinhPass", torch.asinh, _x(3, 4)),
    _edge(_ARM, "DecomposeCoshPass", torch.cosh, _x(3, 4)),
    _edge(_ARM, "DecomposeSinhPass", torch.sinh, _x(3, 4)),
    _edge(_ARM, "DecomposeExpm1Pass", torch.expm1, _x(3, 4)),
    _edge(_ARM, "DecomposeLeakyReLUPass", lambda x: F.leaky_relu(x, 0.2), _x(3, 4)),
    _edge(_ARM, "DecomposeNotEqualPass", torch.ne, _i(3, 4), _i(3, 4)),
    _edge(_ARM, "DecomposeProdPass", lambda x: torch.prod(x, 1), _x(3, 4)),
    _edge(_ARM, "DecomposeSignPass", torch.sign, _x(3, 4)),
    _edge(_ARM, "DecomposeSqrtPass", torch.sqrt, _x(3, 4).abs()),
    _edge(_ARM, "DecomposeTanPass", torch.tan, _SMALL),
    _edge(_ARM, "DecomposeRoundPass", torch.round, 3 * _x(3, 4)),
    _edge(_ARM, "DecomposeRemainderPass", torch.remainder, _x(3, 4), _x(3, 4, seed=1)),
    _edge(_ARM, "DecomposeAddSubAlphaPass", lambda x, y: torch.add(x, y, alpha=3), _x(3, 4), _x(3, 4)),
    _edge(_ARM, "RewriteBoolBitwiseToLogicalPass", torch.bitwise_and, _BITS, _BITS),
    _edge(_ARM, "RewriteBoolBitwiseToLogicalPass", torch.bitwise_not, _BITS),
    _edge(_ARM, "RewriteLeLtToGeGtPass", torch.le, _x(3, 4), _x(3, 4, seed=1)),
    _edge(_ARM, "ConvertPermuteSingletonToViewPass", lambda x: x.permute(0, 2, 1), _x(3, 1, 4)),
    _edge(_ARM, "DecomposeFlipPass", lambda x: torch.flip(x, (0, 1)), _x(3, 4)),
    _exported(_ARM, "DecomposeLogitPass", lambda x: torch.logit(x), _x(3, 4).sigmoid(), make=_before_quantising),
    _exported(_ARM, "DecomposeTrilPass", lambda x: torch.tril(x, 1), _x(3, 4), make=_before_quantising),
    _exported(_ARM, "DecomposeFloorDividePass", torch.floor_divide, _x(3, 4), _x(3, 4), make=_before_quantising),
    _exported(_ARM, "ConvertEluFamilyToEluPass", F.selu, _x(3, 4), make=_before_quantising),
    _exported(_ARM, "ConvertEluFamilyToEluPass", lambda x: F.celu(x, 2.0), _x(3, 4), make=_before_quantising),
    _exported(
        _ARM,
        "DecomposeLinalgVectorNormPass",
        lambda x: torch.linalg.vector_norm(x, 2, (1,)),
        _x(3, 4),
        make=_before_quantising,
    ),
    _exported(_ARM, "DecomposeCosineSimilarityPass", F.cosine_similarity, _x(3, 4), _x(3, 4), make=_before_quantising),
    _edge(_ARM, "DecomposeAsStridedCopyPass", lambda x: torch.as_strided_copy(x, (4, 3), (3, 1)), _x(3, 4)),
]

_FOR_NXP = [
    _exported(_NXP, "DecomposeSplitToSlicesPass", lambda x: torch.split(x, [1, 2, 1], 1), _x(3, 4)),
    _exported(_NXP, "AddBatchSizeFor3DInputPool2DOps", lambda x: F.avg_pool2d(x, 2), _x(2, 4, 4)),
    _exported(_NXP, "ConvertDivToMulPass", lambda x: x / 4.0, _x(3, 4)),
]

CASES: list[Case] = [*_FOR_CORTEX_M, *_FOR_QUALCOMM, *_FOR_ARM, *_FOR_NXP]
