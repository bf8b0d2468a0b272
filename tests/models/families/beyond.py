"""Models that the official exporter rejects, or of which it makes files that its own runtime rejects.

The runtime has kernels for all of them; ours must run.
"""

from __future__ import annotations

import torch
from tests.models.case import EXACT, ROUNDING, Built, Call, Family, Function, single

family = Family("beyond")


def windows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Look through overlapping windows."""
    return x.unfold(2, 3, 2), x.unfold(0, 2, 1).sum(-1)


@family.case(ROUNDING, "views", official_defect="rejects aten.unfold, for which the runtime has a kernel")
def unfolded_windows() -> Built:
    return single(Function(windows), Call(torch.randn(3, 2, 8)))


def moments(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Ask for variance and mean at once."""
    return *torch.var_mean(x, dim=(1, 2)), *torch.std_mean(x, dim=-1, correction=0, keepdim=True)


@family.case(ROUNDING, "reduction", official_defect="rejects aten.var_mean, for which the runtime has a kernel")
def variance_and_mean() -> Built:
    return single(Function(moments), Call(torch.randn(2, 3, 4)))


def scaled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Use numbers with a picture in channels-last order."""
    return (x * 0.5 + 1.0).clamp(min=0.0), 2.0 - x


@family.case(EXACT, "layout", "scalars", official_defect="emits channels-last x * 0-d constant, which kernels reject")
def numbers_and_channels_last() -> Built:
    return single(Function(scaled), Call(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)))
