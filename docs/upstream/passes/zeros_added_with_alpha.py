"""A tensor that is added to zeros with a factor alpha loses the factor."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.remove_ops import RemoveNopAddOpPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.add(torch.zeros(2, 2), x, alpha=2)

inputs = (torch.tensor([[1.0, -2.0], [3.0, 4.0]]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = RemoveNopAddOpPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
