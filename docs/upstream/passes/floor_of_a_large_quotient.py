"""A quotient of integers from 2**24 on is rounded to a float."""
import torch
from executorch.backends.qualcomm._passes.decompose_floor_divide import DecomposeFloorDivide

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.floor_divide(x, y)

inputs = (torch.tensor([16777217]), torch.tensor([1]))
module = torch.export.export(Model(), inputs).graph_module
seen = DecomposeFloorDivide()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
assert torch.equal(seen, expected), text
