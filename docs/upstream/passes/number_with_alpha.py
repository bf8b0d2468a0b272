"""A number that is added with a factor alpha stops the pass."""
import torch
from executorch.backends.transforms.replace_scalar_with_tensor import ReplaceScalarWithTensorArgPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten.add.Scalar(x, 2.5, 3)

inputs = (torch.tensor([[1.0, -2.0], [3.0, 4.0]]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = ReplaceScalarWithTensorArgPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
