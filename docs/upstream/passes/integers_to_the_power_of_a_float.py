"""Integers to the power of 2.0 stay integers."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.decompose_int_pow_pass import DecomposeIntPowPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return x ** 2.0

inputs = (torch.tensor([3, -2]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeIntPowPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
