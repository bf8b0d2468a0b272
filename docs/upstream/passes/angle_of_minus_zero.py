"""The angle of minus zero and a negative number has the wrong sign."""
import torch
from executorch.backends.qualcomm._passes.decompose_atan2 import DecomposeAtan2
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.atan2(x, y)

inputs = (torch.tensor([-0.0]), torch.tensor([-1.0]))
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeAtan2()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
