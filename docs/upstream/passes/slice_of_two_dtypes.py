"""Integers that are joined with floats and sliced out again stay integers."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.remove_ops import RemoveCatFromSliceCopyPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.cat([x, y])[0:2]

inputs = (torch.tensor([1, 2]), torch.ones(2))
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = RemoveCatFromSliceCopyPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
assert seen.dtype == expected.dtype, f"seen {seen.dtype}, expected {expected.dtype}"
