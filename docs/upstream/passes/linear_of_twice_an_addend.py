"""A linear layer made of a product and twice an addend has lost the factor."""
import torch
from executorch.backends.xnnpack._passes.convert_to_linear import ConvertToLinearPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, b, x, w):
        return torch.addmm(b, x, w.t(), beta=2)

inputs = (torch.ones(2), torch.ones(1, 3), torch.ones(2, 3))
program = to_edge(torch.export.export(Model(), inputs)).exported_program()
seen = ConvertToLinearPass()(program.graph_module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 1e-6, equal_nan=True), text
