"""A factor of more rows than the dequantised tensor goes into the scale, and its rows are lost."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.fuse_ops import FuseMulTensorIntoDequantPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, q):
        return torch.ops.quantized_decomposed.dequantize_per_tensor(q, 0.5, 0, -128, 127, torch.int8) * torch.full((3, 2), 2.0)

inputs = (torch.tensor([[1, 2]], dtype=torch.int8),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = FuseMulTensorIntoDequantPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
