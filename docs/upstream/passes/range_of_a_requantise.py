"""Quantising to -100 to 100 becomes requantising to all of int8."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.fuse_ops import FuseQuantDequantToRequantizePass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, q):
        return torch.ops.quantized_decomposed.quantize_per_tensor(torch.ops.quantized_decomposed.dequantize_per_tensor(q, 0.5, 3, -128, 127, torch.int8), 0.05, 1, -100, 100, torch.int8)

inputs = (torch.tensor([-90, 90], dtype=torch.int8),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = FuseQuantDequantToRequantizePass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
