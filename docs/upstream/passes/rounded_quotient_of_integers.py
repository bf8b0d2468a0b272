"""A quotient of integers that is rounded down becomes a float."""
import torch
from executorch.backends.qualcomm._passes.decompose_div_mode import DecomposeDivMode

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.div(x, y, rounding_mode='floor')

inputs = (torch.tensor([7, -7]), torch.tensor([2, 2]))
module = torch.export.export(Model(), inputs).graph_module
seen = DecomposeDivMode()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
