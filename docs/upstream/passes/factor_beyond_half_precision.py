"""A product of half precision and 100000 is infinite."""
import torch
from executorch.backends.qualcomm._passes.lift_constant_scalar_operands import LiftConstantScalarOperands

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 1e5

inputs = (torch.tensor([0.001], dtype=torch.float16),)
module = torch.export.export(Model(), inputs).graph_module
seen = LiftConstantScalarOperands()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
