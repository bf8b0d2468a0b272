"""Names of the official package, and the counterparts of its functions, used wrongly."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import torch
from tests.diagnostics.provocation import provokes
from torch.fx import Graph, GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from exirkit import DelegationSpec, TensorSpec, to_edge
from exirkit.exir.provided import flatbuffer_text, memory_planning, partitioning, quantized, shapes
from exirkit.exir.provided import passes as provided_passes
from exirkit.exir.provided.pass_registry import PassRegistry
from exirkit.ir import ops


@provokes("EK757")
def absent_name(_: Path) -> None:
    import_module("exirkit.exir.passes").ToDevicePass  # noqa: B018


@provokes("EK758")
def size_of_the_data(_: Path) -> None:
    shapes.eval_upper_bound(ShapeEnv().create_unbacked_symint())


@provokes("EK759")
def order_without_a_name(_: Path) -> None:
    shapes.get_memory_format([1, 0])


class Adds(partitioning.PartitionerConfig):
    target_name = "add.Tensor"

    def check_constraints(self, node: torch.fx.Node, ep: torch.export.ExportedProgram) -> bool:
        return True

    def get_original_aten(self) -> None:
        return None

    def get_partition(self, node: torch.fx.Node, ep: torch.export.ExportedProgram) -> list[torch.fx.Node]:
        return [node]


@provokes("EK760")
def two_configurations_of_one_operator(_: Path) -> None:
    partitioning.ConfigerationBasedPartitioner(DelegationSpec("ReferenceBackend"), [Adds(), Adds()])


@provokes("EK761")
def unknown_pass(_: Path) -> None:
    PassRegistry.get("fuse_everything")


@provokes("EK762")
def no_flatc(_: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FLATC_EXECUTABLE", raising=False)
        patch.setenv("PATH", "")
        patch.setattr(flatbuffer_text, "find_spec", lambda name: None)
        flatbuffer_text._flatc.cache_clear()
        flatbuffer_text._flatc_compile(".", "schema.fbs", __file__)


@provokes("EK763")
def operator_that_does_not_write(_: Path) -> None:
    relu = ops.edge.aten.relu.default
    program = to_edge(torch.export.export(torch.nn.ReLU(), (torch.ones(2),))).exported_program()
    provided_passes.reinplace_pass(program, [relu], {relu: relu})


@provokes("EK764")
def input_that_is_not_quantised(_: Path) -> None:
    program = to_edge(torch.export.export(torch.nn.ReLU(), (torch.ones(2),))).exported_program()
    quantized.quantize_input(program, 0)


@provokes("EK765")
def two_at_one_place(_: Path) -> None:
    graph = Graph()
    nodes = [graph.placeholder(name) for name in ("x", "y")]
    graph.output(tuple(nodes))
    for node in nodes:
        spec = TensorSpec(torch.float32, [2])
        spec.mem_id, spec.mem_offset, spec.lifetime = 1, 0, [0, 2]
        node.meta["spec"] = spec
    module = GraphModule(torch.nn.Module(), graph)
    memory_planning.Verifier(module, True, True, True).verify_storage_reuse()
