"""Backends without hardware: the reference backend, and the one of ExecuTorch's documentation on delegation.

The names are those of the documentation; format and runtime are ours. The backend writes the calls of a program as
text, and its runtime reads them and calls torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.passes.operator_support import OperatorSupportBase

from exirkit.ir import CompileSpec, Diagnostic, ModelError, called_graphs, locate, underlying
from exirkit.passes import (
    DELEGATION_TAG,
    BackendDetails,
    CapabilityBasedPartitioner,
    DelegateMappingBuilder,
    DelegationSpec,
    EdgeCompileConfig,
    ExecutorchBackendConfig,
    Partitioner,
    PartitionResult,
    PreprocessResult,
)
from exirkit.patterns import name_of
from exirkit.runtime_ref import DelegateContext, LoadedDelegate, Runtime

from .managers import EdgeProgramManager


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


_OPERATORS: Mapping[str, Callable[..., Tensor]] = {
    "aten.add.Tensor": torch.add,
    "aten.div.Tensor": torch.div,
    "aten.mm.default": torch.mm,
    "aten.mul.Tensor": torch.mul,
    "aten.sin.default": torch.sin,
    "aten.sub.Tensor": torch.sub,
}


class BackendWithCompilerDemo(BackendDetails):
    """Writes the calls of a program as text; knows sines, sums, differences, products, quotients and `mm`."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Write a program as text.

        Raises:
            ModelError: EK744, the backend does not know an operator, or the program has state.
        """
        del compile_specs
        numbers: dict[Node, int] = {}
        calls: list[dict[str, Any]] = []
        handles = DelegateMappingBuilder(generated_identifiers=True)
        inputs = set(edge_program.graph_signature.user_inputs)
        for node in edge_program.graph.nodes:
            if node.op == "output":
                continue
            if node.op != "placeholder" or node.name not in inputs:
                calls.append(_written(node, numbers))
                if node.meta.get("debug_handle") is not None:
                    handles.insert_delegate_mapping_entry(nodes=node)
            numbers[node] = len(numbers)
        results: Any = edge_program.graph.output_node().args[0]
        text = {"version": 0, "inputs": len(inputs), "calls": calls, "results": [numbers[node] for node in results]}
        return PreprocessResult(json.dumps(text).encode(), handles.get_delegate_mapping() or None)


def _written(node: Node, numbers: Mapping[Node, int]) -> dict[str, Any]:
    op = underlying(node.target)
    name = name_of(op) if hasattr(op, "_schema") else node.op
    plain = all(isinstance(one, Node | int | float) for one in (*node.args, *node.kwargs.values()))
    if name not in _OPERATORS or not plain:
        raise ModelError(
            Diagnostic.of(
                "EK744",
                f"BackendWithCompilerDemo cannot compile %{node.name} ({name})",
                location=locate(node),
                expected=f"calls of {', '.join(sorted(_OPERATORS))}",
            )
        )

    def value(one: Any) -> Any:
        return {"value": numbers[one]} if isinstance(one, Node) else one

    kwargs = {key: value(one) for key, one in node.kwargs.items()}
    return {"op": name, "args": [value(one) for one in node.args], "kwargs": kwargs}


class _DemoDelegate(LoadedDelegate):
    def __init__(self, context: DelegateContext) -> None:
        text = json.loads(context.processed)
        if text.get("version") != 0:
            raise ValueError(f"version {text.get('version')} is not 0")
        self._inputs: int = text["inputs"]
        self._calls: list[dict[str, Any]] = text["calls"]
        self._results: list[int] = text["results"]

    @property
    def result_count(self) -> int:
        return len(self._results)

    def execute(self, inputs: Sequence[Any]) -> Sequence[Tensor]:
        if len(inputs) != self._inputs:
            raise ValueError(f"{len(inputs)} inputs are given, and {self._inputs} expected")
        values = list(inputs)

        def read(one: Any) -> Any:
            return values[one["value"]] if isinstance(one, dict) else one

        for call in self._calls:
            kwargs = {key: read(one) for key, one in call["kwargs"].items()}
            values.append(_OPERATORS[call["op"]](*map(read, call["args"]), **kwargs))
        return [values[number] for number in self._results]


Runtime.get().backend_registry.register(BackendWithCompilerDemo.__name__, _DemoDelegate)


class _AddMul(OperatorSupportBase):
    _taken: ClassVar[frozenset[str]] = frozenset({"aten.add.Tensor", "aten.mul.Tensor", "aten.mm.default"})

    def is_node_supported(self, submodules: Mapping[str, object], node: Node) -> bool:
        op = underlying(node.target) if node.op == "call_function" else None
        return hasattr(op, "_schema") and name_of(op) in self._taken


class AddMulPartitionerDemo(Partitioner):
    """Takes sums and products, of matrices as well, for `BackendWithCompilerDemo`."""

    def __init__(self) -> None:
        super().__init__()
        self.delegation_spec = DelegationSpec(BackendWithCompilerDemo.__name__, [])

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the largest partitions of sums and products, in bodies of control flow as well."""
        tags: dict[str, DelegationSpec] = {}
        for module in called_graphs(exported_program.graph_module):
            for one in _proposed(module):
                tag = f"tag{len(tags)}"
                tags[tag] = self.delegation_spec
                for node in one:
                    node.meta[DELEGATION_TAG] = tag
        return PartitionResult(exported_program, tags)


def _proposed(module: GraphModule) -> list[list[Node]]:
    partitioner = CapabilityBasedPartitioner(module, _AddMul(), allows_single_node_partition=True)
    return [list(one.nodes) for one in partitioner.propose_partitions()]
