"""A roll along the last dim, counted from the back, goes along the first one."""
import torch
from executorch.backends.qualcomm._passes.decompose_roll import DecomposeRoll

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.roll(x, 1, -1)

inputs = (torch.tensor([[1.0, 2.0], [3.0, 4.0]]),)
module = torch.export.export(Model(), inputs).graph_module
seen = DecomposeRoll()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
