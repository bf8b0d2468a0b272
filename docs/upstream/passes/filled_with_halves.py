"""Half precision that is filled with a number becomes float32."""
import torch
from executorch.backends.qualcomm._passes.decompose_fill import DecomposeFill

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.fill(x, 2.0)

inputs = (torch.ones(2, dtype=torch.float16),)
module = torch.export.export(Model(), inputs).graph_module
seen = DecomposeFill()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
