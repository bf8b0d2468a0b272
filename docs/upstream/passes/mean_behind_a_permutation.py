"""A mean over all dims behind a permutation stops the pass."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.remove_ops import RemovePermuteBeforeMeanPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten.mean.dim(x.permute(0, 2, 3, 1), [])

inputs = (torch.rand(2, 3, 4, 5),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = RemovePermuteBeforeMeanPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
