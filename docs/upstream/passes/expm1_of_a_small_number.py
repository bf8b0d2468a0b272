"""The exponential minus one of a small number is zero."""
import torch
from executorch.backends.qualcomm._passes.decompose_expm1 import DecomposeExpM1

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.expm1(x)

inputs = (torch.tensor([1e-9]),)
module = torch.export.export(Model(), inputs).graph_module
seen = DecomposeExpM1()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
