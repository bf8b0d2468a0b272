"""The angle of two infinite coordinates is NaN."""
import torch
from executorch.backends.qualcomm._passes.decompose_atan2 import DecomposeAtan2
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.atan2(x, x)

inputs = (torch.tensor([torch.inf]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeAtan2()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
