"""A backend that needs no hardware: its delegates are programs of their own, run by the reference runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from exirkit.ir import CompileSpec
from exirkit.passes import BackendDetails, EdgeCompileConfig, ExecutorchBackendConfig, PreprocessResult
from exirkit.runtime_ref import DelegateContext, LoadedDelegate, Runtime

from .edge import EdgeProgramManager


class ReferenceBackend(BackendDetails):
    """Lowers what it is given to a `.pte` of its own, which it runs: any partition becomes executable."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Lower a partition like a program."""
        del compile_specs
        manager = EdgeProgramManager(edge_program, compile_config=EdgeCompileConfig(_check_ir_validity=False))
        lowered = manager.to_executorch(ExecutorchBackendConfig(target=None))
        return PreprocessResult(processed_bytes=bytes(lowered.buffer))


class _ReferenceDelegate(LoadedDelegate):
    def __init__(self, context: DelegateContext) -> None:
        self._method = Runtime.get().load_program(context.processed).load_method("forward")

    @property
    def result_count(self) -> int:
        return self._method.metadata.num_outputs()

    def execute(self, inputs: Sequence[Any]) -> Sequence[torch.Tensor]:
        return self._method.execute(inputs, numbers_vary=True)


Runtime.get().backend_registry.register(ReferenceBackend.__name__, _ReferenceDelegate)
