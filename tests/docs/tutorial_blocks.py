"""The blocks of the public tutorial 'Exporting to ExecuTorch' that do not need quantisation.

The code is what users of the official package have in their files; only imports are changed, and comments are ours.
Blocks run in one namespace, each after those that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """One block of the tutorial.

    Attributes:
        name: Our name for it.
        code: What it runs.
        needs: Names of the blocks that must have run before, in order.
    """

    name: str
    code: str
    needs: tuple[str, ...] = ()


EXPORT_A_MODEL = """
import torch
from torch.export import export, ExportedProgram


class SimpleConv(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(
            in_channels=3, out_channels=16, kernel_size=3, padding=1
        )
        self.relu = torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.conv(x)
        return self.relu(a)


example_args = (torch.randn(1, 3, 256, 256),)
aten_dialect: ExportedProgram = export(SimpleConv(), example_args, strict=True)
print(aten_dialect)
"""

STATIC_SHAPES = """
import traceback as tb


class Basic(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


example_args = (torch.randn(3, 3), torch.randn(3, 3))
aten_dialect: ExportedProgram = export(Basic(), example_args, strict=True)

print(aten_dialect.module()(torch.ones(3, 3), torch.ones(3, 3)))

# Another shape than the one that was traced
try:
    print(aten_dialect.module()(torch.ones(3, 2), torch.ones(3, 2)))
except Exception:
    tb.print_exc()
"""

DYNAMIC_SHAPES = """
from torch.export import Dim


class Basic(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


example_args = (torch.randn(3, 3), torch.randn(3, 3))
dim1_x = Dim("dim1_x", min=1, max=10)
dynamic_shapes = {"x": {1: dim1_x}, "y": {1: dim1_x}}
aten_dialect: ExportedProgram = export(
    Basic(), example_args, dynamic_shapes=dynamic_shapes, strict=True
)
print(aten_dialect)
"""

SHAPES_WITHIN_BOUNDS = """
print(aten_dialect.module()(torch.ones(3, 3), torch.ones(3, 3)))
print(aten_dialect.module()(torch.ones(3, 2), torch.ones(3, 2)))

# Larger than the bound
try:
    print(aten_dialect.module()(torch.ones(3, 15), torch.ones(3, 15)))
except Exception:
    tb.print_exc()

# Two sizes for one symbol
try:
    print(aten_dialect.module()(torch.ones(3, 3), torch.ones(3, 2)))
except Exception:
    tb.print_exc()
"""

LOWER_TO_EDGE = """
from exirkit import EdgeProgramManager, to_edge

example_args = (torch.randn(1, 3, 256, 256),)
aten_dialect: ExportedProgram = export(SimpleConv(), example_args, strict=True)

edge_program: EdgeProgramManager = to_edge(aten_dialect)
print("Edge Dialect Graph")
print(edge_program.exported_program())
"""

SEVERAL_METHODS = """
class Encode(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.linear(x, torch.randn(5, 10))


class Decode(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.linear(x, torch.randn(10, 5))


encode_args = (torch.randn(1, 10),)
aten_encode: ExportedProgram = export(Encode(), encode_args, strict=True)

decode_args = (torch.randn(1, 5),)
aten_decode: ExportedProgram = export(Decode(), decode_args, strict=True)

edge_program: EdgeProgramManager = to_edge(
    {"encode": aten_encode, "decode": aten_decode}
)
for method in edge_program.methods:
    print(f"Edge Dialect graph of {method}")
    print(edge_program.exported_program(method))
"""

TRANSFORM = """
example_args = (torch.randn(1, 3, 256, 256),)
aten_dialect: ExportedProgram = export(SimpleConv(), example_args, strict=True)
edge_program: EdgeProgramManager = to_edge(aten_dialect)
print("Edge Dialect Graph")
print(edge_program.exported_program())

from exirkit import ops as exir_ops
from exirkit import ExportPass


class ConvertReluToSigmoid(ExportPass):
    def call_operator(self, op, args, kwargs, meta):
        if op == exir_ops.edge.aten.relu.default:
            return super().call_operator(
                exir_ops.edge.aten.sigmoid.default, args, kwargs, meta
            )
        else:
            return super().call_operator(op, args, kwargs, meta)


transformed_edge_program = edge_program.transform((ConvertReluToSigmoid(),))
print("Transformed Edge Dialect Graph")
print(transformed_edge_program.exported_program())
"""

LOWER_TO_A_BACKEND = """
class LowerableModule(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.sin(x)


example_args = (torch.ones(1),)
aten_dialect: ExportedProgram = export(LowerableModule(), example_args, strict=True)
edge_program: EdgeProgramManager = to_edge(aten_dialect)
to_be_lowered_module = edge_program.exported_program()

from exirkit import LoweredBackendModule, to_backend

from exirkit import (  # noqa
    BackendWithCompilerDemo,
)

lowered_module: LoweredBackendModule = to_backend(
    "BackendWithCompilerDemo", to_be_lowered_module, []
)
print(lowered_module)
print(lowered_module.backend_id)
print(lowered_module.processed_bytes)
print(lowered_module.original_module)

save_path = "delegate.pte"
with open(save_path, "wb") as f:
    f.write(lowered_module.buffer())
"""

COMPOSE = """
class NotLowerableModule(torch.nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.bias = bias

    def forward(self, a, b):
        return torch.add(torch.add(a, b), self.bias)


class ComposedModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.non_lowerable = NotLowerableModule(torch.ones(1) * 0.3)
        self.lowerable = lowered_module

    def forward(self, x):
        a = self.lowerable(x)
        b = self.lowerable(a)
        ret = self.non_lowerable(a, b)
        return a, b, ret


example_args = (torch.ones(1),)
aten_dialect: ExportedProgram = export(ComposedModule(), example_args, strict=True)
edge_program: EdgeProgramManager = to_edge(aten_dialect)
exported_program = edge_program.exported_program()
print("Edge Dialect graph")
print(exported_program)
print("Lowered Module within the graph")
print(exported_program.graph_module.lowered_module_0.backend_id)
print(exported_program.graph_module.lowered_module_0.processed_bytes)
print(exported_program.graph_module.lowered_module_0.original_module)
"""

MULTIPLY_AND_ADD = """
class Foo(torch.nn.Module):
    def forward(self, a, x, b):
        y = torch.mm(a, x)
        z = y + b
        a = z - a
        y = torch.mm(a, x)
        z = y + b
        return z


example_args = (torch.randn(2, 2), torch.randn(2, 2), torch.randn(2, 2))
aten_dialect: ExportedProgram = export(Foo(), example_args, strict=True)
edge_program: EdgeProgramManager = to_edge(aten_dialect)
exported_program = edge_program.exported_program()
print("Edge Dialect graph")
print(exported_program)
"""

PARTITION = """
from exirkit import AddMulPartitionerDemo

delegated_program = to_backend(exported_program, AddMulPartitionerDemo())
print("Delegated program")
print(delegated_program)
print(delegated_program.graph_module.lowered_module_0.original_module)
print(delegated_program.graph_module.lowered_module_1.original_module)
"""

PARTITION_A_MANAGER = """
exported_program = edge_program.exported_program()
delegated_program = edge_program.to_backend(AddMulPartitionerDemo())

print("Delegated program")
print(delegated_program.exported_program())
"""

PASSES_AND_MEMORY_PLANNING = """
from exirkit import ExecutorchBackendConfig, ExecutorchProgramManager
from exirkit import MemoryPlanningPass

executorch_program: ExecutorchProgramManager = edge_program.to_executorch(
    ExecutorchBackendConfig(
        passes=[],
        memory_planning_pass=MemoryPlanningPass(),
    )
)

print("ExecuTorch Dialect")
print(executorch_program.exported_program())

import exirkit as exir
"""

# PyTorch 2.13 has no export_for_training any more: export does that.
END_TO_END = """
import torch
from torch.export import export, export as export_for_training, ExportedProgram


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.param = torch.nn.Parameter(torch.rand(3, 4))
        self.linear = torch.nn.Linear(4, 5)

    def forward(self, x):
        return self.linear(x + self.param).clamp(min=0.0, max=1.0)


example_args = (torch.randn(3, 4),)
pre_autograd_aten_dialect = export_for_training(M(), example_args).module()
aten_dialect: ExportedProgram = export(
    pre_autograd_aten_dialect, example_args, strict=True
)
edge_program: exir.EdgeProgramManager = exir.to_edge(aten_dialect)
executorch_program: exir.ExecutorchProgramManager = edge_program.to_executorch(
    ExecutorchBackendConfig(
        passes=[],
    )
)

with open("model.pte", "wb") as file:
    file.write(executorch_program.buffer)
"""

BLOCKS: dict[str, Block] = {
    block.name: block
    for block in (
        Block("export-a-model", EXPORT_A_MODEL),
        Block("static-shapes", STATIC_SHAPES, ("export-a-model",)),
        Block("dynamic-shapes", DYNAMIC_SHAPES, ("export-a-model", "static-shapes")),
        Block("shapes-within-bounds", SHAPES_WITHIN_BOUNDS, ("export-a-model", "static-shapes", "dynamic-shapes")),
        Block("lower-to-edge", LOWER_TO_EDGE, ("export-a-model",)),
        Block("several-methods", SEVERAL_METHODS, ("export-a-model", "lower-to-edge")),
        Block("transform", TRANSFORM, ("export-a-model", "lower-to-edge")),
        Block("lower-to-a-backend", LOWER_TO_A_BACKEND, ("export-a-model", "lower-to-edge")),
        Block("compose", COMPOSE, ("export-a-model", "lower-to-edge", "lower-to-a-backend")),
        Block("multiply-and-add", MULTIPLY_AND_ADD, ("export-a-model", "lower-to-edge")),
        Block("partition", PARTITION, ("export-a-model", "lower-to-edge", "lower-to-a-backend", "multiply-and-add")),
        Block(
            "partition-a-manager",
            PARTITION_A_MANAGER,
            ("export-a-model", "lower-to-edge", "lower-to-a-backend", "multiply-and-add", "partition"),
        ),
        Block(
            "passes-and-memory-planning",
            PASSES_AND_MEMORY_PLANNING,
            ("export-a-model", "lower-to-edge", "multiply-and-add"),
        ),
        Block(
            "end-to-end",
            END_TO_END,
            ("export-a-model", "lower-to-edge", "multiply-and-add", "passes-and-memory-planning"),
        ),
    )
}
