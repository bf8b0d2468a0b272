"""A logarithm of float32 is divided by a constant of another one, of bfloat16."""
import torch
from executorch.backends.qualcomm._passes.decompose_log_variants import DecomposeLogVariants
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.log10(x), torch.log10(y)

inputs = (torch.tensor([2.0], dtype=torch.bfloat16), torch.tensor([5.0]))
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeLogVariants()(module).graph_module(*inputs)[1]
expected = Model()(*inputs)[1]
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
