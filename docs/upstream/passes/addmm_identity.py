"""A product with a matrix that is permuted to itself becomes a product with the transposed one."""
import torch
from executorch.backends.transforms.addmm_mm_to_linear import AddmmToLinearTransform
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x, w):
        return torch.mm(x, w.permute(0, 1))

inputs = (torch.tensor([[1.0, -2.0], [3.0, 4.0]]), torch.tensor([[1.0, -2.0], [3.0, 4.0]]) + 1)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = AddmmToLinearTransform()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
