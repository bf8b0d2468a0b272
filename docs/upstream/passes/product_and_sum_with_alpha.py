"""A product and a sum with a factor alpha become one operator without it."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.fuse_ops import FuseMMWithAdd
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x, b):
        return torch.relu(torch.add(torch.mm(x, x), b, alpha=2))

inputs = (torch.tensor([[1.0, -2.0], [3.0, 4.0]]), torch.tensor([1.0, -2.0]))
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = FuseMMWithAdd()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
