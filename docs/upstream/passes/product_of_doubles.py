"""A product of float64 gets zeros of float32 added, which stops the pass."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.replace_ops import ReplaceMMWithAddMMPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.mm(x, x)

inputs = (torch.tensor([[1.0, -2.0], [3.0, 4.0]]).double(),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = ReplaceMMWithAddMMPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
