"""The arc cosine is wrong in its fourth digit: the polynomials are of other powers than those that they are for."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.decompose_asin_and_acos_pass import DecomposeAsinAndAcosPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.acos(x)

inputs = (torch.tensor([-0.53]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeAsinAndAcosPass()(module).graph_module(*inputs)[0]
assert torch.allclose(seen, Model()(*inputs), atol=1e-4), f"seen {seen.tolist()}"
