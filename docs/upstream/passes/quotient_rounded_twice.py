"""One divided by 0.1 and rounded down is 10; a float32 0.1 goes into one 9 times."""
import torch
from executorch.backends.qualcomm._passes.decompose_div_mode import DecomposeDivMode

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.div(x, y, rounding_mode='floor')

inputs = (torch.tensor([1.0]), torch.tensor([0.1]))
module = torch.export.export(Model(), inputs).graph_module
seen = DecomposeDivMode()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
