"""An angle in an exported program becomes calls with numbers where tensors have to be."""
import torch
from executorch.backends.qualcomm._passes.decompose_atan2 import DecomposeAtan2

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.atan2(x, y)

inputs = (torch.tensor([1.0]), torch.tensor([-1.0]))
module = torch.export.export(Model(), inputs).graph_module
seen = DecomposeAtan2()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
