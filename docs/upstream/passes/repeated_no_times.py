"""A tensor that is repeated no times stops the pass."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.replace_ops import ReplaceRepeatWithCatPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return x.repeat(0, 2)

inputs = (torch.tensor([[1.0, -2.0], [3.0, 4.0]]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = ReplaceRepeatWithCatPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
