"""The logarithm of 0.1, asked for as that of one plus -0.9, is off by a sixth."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.decompose_log1p_pass import DecomposeLog1pPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.log1p(x)

inputs = (torch.tensor([-0.9]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeLog1pPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
