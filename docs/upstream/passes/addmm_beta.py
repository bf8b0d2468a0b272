"""A linear layer made of addmm has lost the factor beta."""
import torch
from executorch.backends.transforms.addmm_mm_to_linear import AddmmToLinearTransform
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, b, x, w):
        return torch.addmm(b, x, w.t(), beta=3)

inputs = (torch.ones(2), torch.tensor([[1.0, -2.0], [3.0, 4.0]]), torch.tensor([[1.0, -2.0], [3.0, 4.0]]) + 1)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = AddmmToLinearTransform()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
