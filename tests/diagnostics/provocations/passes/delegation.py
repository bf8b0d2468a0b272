"""What goes wrong between a program, partitioners and backends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from tests.diagnostics.provocation import provokes
from torch import Tensor, nn
from torch.export import ExportedProgram, export

from exirkit import (
    BackendDetails,
    BackendWithCompilerDemo,
    DelegationSpec,
    EdgeProgramManager,
    Partitioner,
    PartitionResult,
    PreprocessResult,
    ReferenceBackend,
    to_backend,
    to_edge,
    to_edge_transform_and_lower,
)
from exirkit.ir import CompileSpec
from exirkit.runtime_ref import DelegateContext, LoadedDelegate, Runtime


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count: Tensor
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sin(x)
        self.count.add_(y)
        return torch.cos(torch.exp(y) + y) + self.count


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight)


def edge(model: nn.Module | None = None) -> EdgeProgramManager:
    return to_edge(program(model))


def program(model: nn.Module | None = None) -> ExportedProgram:
    return export(model or Chain(), (torch.ones(4),))


class Tagging(Partitioner):
    """Tags nodes whose names have certain parts."""

    def __init__(self, *parts: str, backend: str = "Silent", known: Sequence[str] = ("a",)) -> None:
        super().__init__()
        self.parts, self.backend, self.known = parts, backend, known

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        for node in exported_program.graph.nodes:
            if any(part in node.name for part in self.parts):
                node.meta["delegation_tag"] = "a"
        return PartitionResult(exported_program, {tag: DelegationSpec(self.backend) for tag in self.known})

    def ops_to_not_decompose(self, ep: ExportedProgram) -> Any:
        return ([torch.ops.aten.linear.default], None)


class Silent(BackendDetails):
    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        return PreprocessResult(b"silence", data_store_output={"sound": str(len(edge_program.graph.nodes)).encode()})


class Careless(BackendDetails):
    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        return b"bytes alone"  # type: ignore[return-value]


@provokes("EK490")
def backend_that_is_not_there(_: Path) -> None:
    # What else the process has imported is not to be in the message.
    backends = (BackendWithCompilerDemo, Careless, ReferenceBackend, Silent)
    with patch.object(BackendDetails, "defined", {one.__name__: one for one in backends}):
        to_backend("Silnt", edge().exported_program(), [])


@provokes("EK491")
def output_that_is_tagged(_: Path) -> None:
    edge().to_backend(Tagging("output"))


@provokes("EK492")
def partition_that_waits_for_itself(_: Path) -> None:
    edge().to_backend(Tagging("sin", "cos"))


@provokes("EK493")
def input_that_is_tagged(_: Path) -> None:
    edge().to_backend(Tagging("x", "sin"))


@provokes("EK561")
def key_of_two(_: Path) -> None:
    class Two(Tagging):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            found = super().partition(exported_program)
            for node in exported_program.graph.nodes:
                if "cos" in node.name or "exp" in node.name:
                    node.meta["delegation_tag"] = "b"
                if "add_tensor_1" in node.name:
                    node.meta["delegation_tag"] = "b"
            return found

    edge().to_backend(Two("sin", known=("a", "b"))).to_executorch()


@provokes("EK741")
def backend_that_returns_bytes(_: Path) -> None:
    edge().to_backend(Tagging("sin", backend="Careless"))


@provokes("EK742")
def tag_without_a_partition(_: Path) -> None:
    edge().to_backend(Tagging("sin", known=()))


@provokes("EK743")
def call_that_no_partitioner_takes(_: Path) -> None:
    to_edge_transform_and_lower(program(Linear()), partitioner=[Tagging("sin")])


class Loaded(LoadedDelegate):
    def __init__(self, count: int) -> None:
        self._count = count

    @property
    def result_count(self) -> int:
        return self._count

    def execute(self, inputs: Sequence[Any]) -> Sequence[Tensor]:
        return [torch.ones(4, dtype=torch.int64)]


def run_silently(load: Any) -> None:
    runtime = Runtime()
    runtime.backend_registry.register("Silent", load)
    made = edge().to_backend(Tagging("sin")).to_executorch()
    runtime.load_program(made.buffer).load_method("forward").execute([torch.ones(4)])


@provokes("EK627")
def payload_that_is_rejected(_: Path) -> None:
    def load(context: DelegateContext) -> LoadedDelegate:
        raise ValueError(f"{context.processed!r} is not valid")

    run_silently(load)


@provokes("EK628")
def more_results_than_arguments(_: Path) -> None:
    run_silently(lambda _: Loaded(9))


@provokes("EK656")
def result_of_another_dtype(_: Path) -> None:
    run_silently(lambda _: Loaded(1))
