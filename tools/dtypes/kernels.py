"""Asking the official runtime which dtypes a kernel takes: a program of one call for every combination."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import torch
from tests.official.oracle import OfficialRuntime
from torch._ops import OpOverload

from exirkit import DiagnosticError, EdgeCompileConfig, EdgeProgramManager, ExecutorchBackendConfig
from exirkit.fuzz.programs import Call, Contents, Input, Method, Program, Ref, Run, TensorType, build
from exirkit.ir import edge_operator, operator_name

_CONFIG = ExecutorchBackendConfig(optimization_level=0, remove_view_copy=False, target=None)


class Kernels:
    """The kernels of the official runtime, in a process of their own; use it as a context manager."""

    def __init__(self) -> None:
        self._runtime = OfficialRuntime()
        self._names = self._runtime.kernels()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runtime.close()

    def has(self, op: Any) -> bool:
        """Return whether there is a kernel for an operator at all."""
        try:
            out = edge_operator(op).to_out_variant()
        except DiagnosticError:
            return False
        return isinstance(op, OpOverload) and out.name() in self._names

    def takes(self, op: OpOverload, call: Mapping[str, Any], results: int) -> bool:
        """Return whether a kernel runs on real tensors.

        Args:
            op: The operator.
            call: Arguments by name.
            results: How many tensors it returns.
        """
        inputs: list[torch.Tensor] = []

        def given(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                inputs.append(value)
                return Ref(f"x_{len(inputs) - 1}")
            return tuple(map(given, value)) if isinstance(value, list | tuple) else value

        positional = [argument.name for argument in op._schema.arguments if not argument.kwarg_only]
        args = []
        while positional and positional[0] in call:
            args.append(given(call[positional.pop(0)]))
        names = [*positional, *(one.name for one in op._schema.arguments if one.kwarg_only)]
        kwargs = tuple((name, given(call[name])) for name in names if name in call)
        made = tuple(f"y_{place}" for place in range(results))
        step = Call(operator_name(op), tuple(args), kwargs, made)
        pte = _lowered(step, inputs)
        return pte is not None and self._runtime.run(pte, [inputs], timeout_s=20.0).failure is None


def _lowered(step: Call, inputs: list[torch.Tensor]) -> bytes | None:
    """Return a program of one call as it stands, without decomposition or promotion; None if it cannot be lowered."""
    declared = tuple(Input(f"x_{place}", TensorType(one.dtype, tuple(one.shape))) for place, one in enumerate(inputs))
    outputs = tuple(Ref(str(name)) for name in step.results)
    run = Run("forward", {}, {one.name: Contents("zeros") for one in declared})
    program = Program((), (), (Method("forward", declared, (step,), outputs),), (run,))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = build(program)["forward"]
            for node in exported.graph.nodes:
                if isinstance(node.target, OpOverload):
                    node.target = edge_operator(node.target)
            manager = EdgeProgramManager(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False))
            return manager.to_executorch(_CONFIG).buffer
    except DiagnosticError:
        return None
