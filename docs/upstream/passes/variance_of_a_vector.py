"""A variance of a vector gets a dim."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.decompose_var_pass import DecomposeVarPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.var(x, 0)

inputs = (torch.tensor([1.0, -2.0, 3.0]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeVarPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
