"""A product of a tensor without dims and a number gets a dim."""
import torch
from executorch.backends.transforms.replace_scalar_with_tensor import ReplaceScalarWithTensorArgPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten.mul.Scalar(x, 2.5)

inputs = (torch.tensor(2.0),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = ReplaceScalarWithTensorArgPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
