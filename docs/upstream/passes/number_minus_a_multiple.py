"""A number minus a multiple of a tensor becomes a call that takes no such arguments."""
import torch
from executorch.backends.qualcomm._passes.lift_constant_scalar_operands import LiftConstantScalarOperands

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.rsub(x, 2, alpha=3)

inputs = (torch.tensor([-1.0]),)
module = torch.export.export(Model(), inputs).graph_module
seen = LiftConstantScalarOperands()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
