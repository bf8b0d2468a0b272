"""A quotient of integers and a number stops the pass."""
import torch
from executorch.backends.qualcomm._passes.decompose_floor_divide import DecomposeFloorDivide

class Model(torch.nn.Module):
    def forward(self, x):
        return x // 2

inputs = (torch.tensor([7, 8]),)
module = torch.export.export(Model(), inputs).graph_module
seen = DecomposeFloorDivide()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
