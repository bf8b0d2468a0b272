"""A slice that begins before the first element of what it slices gets more than that."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.fuse_ops import FuseSliceSameDimPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return x[3:8][-7:4]

inputs = (torch.arange(10.0),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = FuseSliceSameDimPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
