"""Whether any element is true gets a dim."""
import torch
from executorch.backends.qualcomm._passes.decompose_any import DecomposeAny
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.any(x > 0)

inputs = (torch.tensor([1.0, -2.0, 3.0]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeAny()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
