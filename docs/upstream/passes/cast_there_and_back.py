"""A cast to integers and back is left out, and with it the rounding."""
import torch
from executorch.backends.qualcomm._passes.fuse_consecutive_cast import FuseConsecutiveCast
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return x.to(torch.int32).to(torch.float32)

inputs = (torch.tensor([1.5, -2.5]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = FuseConsecutiveCast()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
