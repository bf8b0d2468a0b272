"""A tensor of one integer becomes a float."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.replace_ops import ReplaceScalarTensorWithFullPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.scalar_tensor(3, dtype=torch.int64) + x

inputs = (torch.tensor([1, 2]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = ReplaceScalarTensorWithFullPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
assert seen.dtype == expected.dtype, f"seen {seen.dtype}, expected {expected.dtype}"
