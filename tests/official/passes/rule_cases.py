"""Models on which shipped rules are applied inside the official exporter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram


@dataclass(frozen=True)
class RuleCase:
    """One model.

    Attributes:
        make: Makes the model.
        shape: Of its one input, float32.
        passes: One pass for each: names of shipped books, whose rules are applied together.
        applied: How often each rule has to be applied in the official Edge program.
        module: The same where a pass is given the graph module only; as `applied` when absent.
        bare: The same in the exported program, before the official exporter has it; not tried when absent.
        rules: Ids of the rules that are applied; all rules of the books when empty.
        kept: Operators that the official exporter is told to let pass though they are not in its core set.
        skip_dim_order: The official exporter is told to go without operators of dim orders.
        batch: The first dim may vary.
    """

    make: Callable[[], torch.nn.Module]
    shape: tuple[int, ...]
    passes: tuple[tuple[str, ...], ...]
    applied: Mapping[str, int]
    module: Mapping[str, int] | None = None
    bare: Mapping[str, int] | None = None
    rules: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    skip_dim_order: bool = False
    batch: bool = False

    def model(self) -> torch.nn.Module:
        """Return the model, the same one every time."""
        torch.manual_seed(0)
        return self.make().eval()

    def inputs(self, batch: int | None = None) -> tuple[torch.Tensor, ...]:
        """Return an input, with another first size if asked."""
        shape = self.shape if batch is None else (batch, *self.shape[1:])
        return (torch.randn(shape, generator=torch.Generator().manual_seed(1)),)

    def program(self) -> ExportedProgram:
        """Return the exported program."""
        dims = ({0: torch.export.Dim("batch", min=1, max=16)},) if self.batch else None
        return torch.export.export(self.model(), self.inputs(), dynamic_shapes=dims)


class Function(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class Normalised(torch.nn.Module):
    """Convolutions, each followed by a batch norm with statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 8, 3, groups=2, bias=False)
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(8), torch.nn.BatchNorm2d(8)])
        for mean, variance, _ in zip(*[self.norms.buffers()] * 3, strict=True):
            mean.uniform_(-1, 1)
            variance.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norms[1](self.second(torch.relu(self.norms[0](self.first(x)))))


class Gated(torch.nn.Module):
    """Layers with activations."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(6, 16), torch.nn.Linear(16, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.hardswish(self.up(x))
        return torch.softmax(self.down(torch.nn.functional.gelu(y)), dim=-1)


def _shuffles(x: torch.Tensor) -> torch.Tensor:
    y = x.permute(0, 2, 3, 1).permute(0, 3, 1, 2)
    return torch.relu(y.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) + 2


def _views(x: torch.Tensor) -> torch.Tensor:
    y = x.reshape(2, 12).reshape(4, 6).unsqueeze(0).squeeze(0)
    return torch.sigmoid(y.reshape(4, 6)).reshape(24)


def _neutral(x: torch.Tensor) -> torch.Tensor:
    y = (x * 1.0 + 0.0) / 1.0
    return torch.neg(torch.neg(y)) - 0.0


def _numbers(x: torch.Tensor) -> torch.Tensor:
    y = torch.ops.aten.add.Scalar(x, 2)
    return torch.ops.aten.div.Scalar(torch.ops.aten.mul.Scalar(y, 0.5), 2)


def _casts(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x.to(torch.float64).to(torch.float32)).to(torch.int32)


def _written_out(x: torch.Tensor) -> torch.Tensor:
    y = torch.exp(x - torch.amax(x, dim=-1, keepdim=True))
    y = y / torch.sum(y, dim=-1, keepdim=True)
    return y * torch.sigmoid(y) + 1


CASES: dict[str, RuleCase] = {
    "shuffles": RuleCase(
        lambda: Function(_shuffles),
        (2, 3, 4, 5),
        (("canonicalize", "layout"),),
        {
            "canonicalize.permute-permute-merge": 3,
            "canonicalize.permute-identity-remove": 1,
            "layout.unary-before-permute": 2,
            "layout.match-ranks": 1,
        },
        batch=True,
    ),
    "views": RuleCase(
        lambda: Function(_views),
        (4, 6),
        (("canonicalize",),),
        {
            "canonicalize.view-same-remove": 3,
            "canonicalize.squeeze-dims-to-view": 1,
            "canonicalize.unsqueeze-to-view": 1,
            "canonicalize.view-view-merge": 2,
        },
    ),
    # Of the graph alone nothing knows whether an input may be returned as it is, so the last step is not made.
    "neutral": RuleCase(
        lambda: Function(_neutral),
        (3, 4),
        (("algebra",),),
        {f"simplify.{one}-remove": 1 for one in ("sub-zero", "neg-neg", "div-one", "add-zero", "mul-one")},
        module={f"simplify.{one}-remove": 1 for one in ("sub-zero", "neg-neg", "div-one", "add-zero")},
        batch=True,
    ),
    "normalised": RuleCase(Normalised, (2, 3, 9, 9), (("fold",),), {"fold.conv-batch-norm": 2}, module={}),
    "gated": RuleCase(
        Gated,
        (4, 6),
        (("decompose",),),
        {
            "decompose.softmax": 1,
            "decompose.addmm": 2,
            "decompose.mm-to-bmm": 2,
            "decompose.gelu-erf": 1,
            "decompose.div-number-to-mul": 1,
            "decompose.clamp-max": 1,
            "decompose.clamp-min": 1,
        },
        bare={
            "decompose.softmax": 1,
            "decompose.linear-to-addmm": 2,
            "decompose.addmm": 2,
            "decompose.mm-to-bmm": 2,
            "decompose.gelu-erf": 1,
            "decompose.div-number-to-mul": 1,
            "decompose.hardswish": 1,
        },
        batch=True,
    ),
    "folded": RuleCase(
        Gated,
        (4, 6),
        (("fold",),),
        {"fold.addmm-transposed-weight": 2},
        module={},
        kept=("linear.default",),
        batch=True,
    ),
    "numbers": RuleCase(
        lambda: Function(_numbers),
        (3, 4),
        (("dtype",),),
        {f"legalize.{one}-scalar-to-tensor": 1 for one in ("add", "mul", "div")},
        bare={f"legalize.{one}-scalar-to-tensor": 1 for one in ("add", "mul", "div")},
    ),
    "casts": RuleCase(
        lambda: Function(_casts),
        (3, 4),
        (("dtype",),),
        {"dtype.cast-cast-merge": 1, "dtype.cast-same-remove": 1},
        skip_dim_order=True,
    ),
    "written-out": RuleCase(
        lambda: Function(_written_out),
        (3, 4),
        (("fuse",), ("decompose",)),
        {"fuse.softmax": 1, "fuse.silu": 1, "decompose.silu": 1},
        bare={"fuse.softmax": 1, "fuse.silu": 1, "decompose.silu": 1},
        rules=("fuse.softmax", "fuse.silu", "decompose.silu"),
        batch=True,
    ),
}
