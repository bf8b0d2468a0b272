"""The sign of infinity is NaN."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.decompose_sign_pass import DecomposeSignPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sign(x)

inputs = (torch.tensor([torch.inf]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeSignPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
