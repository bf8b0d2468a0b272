"""Minus infinity of float64 becomes the least float32, which is not below all float64."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.replace_ops import ReplaceInfArgInFullWithValuePass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.maximum(torch.full((2,), float("-inf"), dtype=torch.float64), x)

inputs = (torch.tensor([1.0, -1e300], dtype=torch.float64),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = ReplaceInfArgInFullWithValuePass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
