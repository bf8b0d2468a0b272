"""A variance over no dims, which means all of them, is infinite."""
import torch
from executorch.backends.qualcomm._passes.decompose_var import DecomposeVar

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.var(x, dim=())

inputs = (torch.tensor([1.0, -2.0, 3.0]),)
module = torch.export.export(Model(), inputs).graph_module
seen = DecomposeVar()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
