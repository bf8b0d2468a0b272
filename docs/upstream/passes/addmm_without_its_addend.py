"""An addend with the factor zero makes a product NaN, though it does not count."""
import torch
from executorch.backends.qualcomm._passes.decompose_addmm import DecomposeAddmm
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, b, x):
        return torch.addmm(b, x, x, beta=0)

inputs = (torch.tensor([torch.nan, 1.0]), torch.ones(2, 2))
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeAddmm()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
