"""Lowering a function and running it on both runtimes, beside eager PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tests.models.agreement import assert_agree
from tests.models.case import Function, Tolerance
from tests.official.oracle import OfficialRuntime
from torch.utils import _pytree as pytree

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.runtime_ref import Runtime

NEAR = Tolerance(1e-5, 1e-5, "float32 sums taken in another order")


def assert_runs(
    model: torch.nn.Module | Callable[..., Any],
    calls: Sequence[Sequence[torch.Tensor]],
    official: OfficialRuntime | None = None,
    *,
    dynamic_shapes: Any = None,
    tolerance: Tolerance = NEAR,
    levels: Sequence[int] = (1,),
) -> None:
    """Trace a model with the first call and compare all calls with eager, on our runtime and on the official one."""
    module = model if isinstance(model, torch.nn.Module) else Function(model)
    module.eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = None if dynamic_shapes is None else _packed(module, dynamic_shapes)
        exported = torch.export.export(module, tuple(calls[0]), dynamic_shapes=shapes, strict=False)
        wanted = [pytree.tree_leaves(module(*(one.clone() for one in call))) for call in calls]
    edge = to_edge(exported)
    for level in levels:
        program = edge.to_executorch(ExecutorchBackendConfig(optimization_level=level)).buffer
        method = Runtime.get().load_program(program).load_method("forward")
        assert_agree([list(method.execute([one.clone() for one in call])) for call in calls], wanted, tolerance)
        if official is not None:
            assert_agree(official.run(program, calls).unwrap(), wanted, tolerance)


def _packed(module: torch.nn.Module, shapes: Any) -> Any:
    return (shapes,) if isinstance(module, Function) else shapes
