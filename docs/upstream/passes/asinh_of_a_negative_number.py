"""The inverse hyperbolic sine of -10000 is minus infinity."""
import torch
from executorch.backends.qualcomm._passes.decompose_hyperbolic_variants import DecomposeHyperbolicVariants
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.asinh(x)

inputs = (torch.tensor([-1e4]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeHyperbolicVariants()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
