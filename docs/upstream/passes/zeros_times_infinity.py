"""A product of zeros and infinity is zero."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.remove_ops import RemoveNopMulOpPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.zeros(2) * x

inputs = (torch.tensor([float("inf"), 1.0]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = RemoveNopMulOpPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
