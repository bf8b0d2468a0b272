"""The arc sine of a tensor without dims gets one."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.decompose_asin_and_acos_pass import DecomposeAsinAndAcosPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.asin(x)

inputs = (torch.tensor(0.25),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeAsinAndAcosPass()(module).graph_module(*inputs)[0]
assert seen.shape == (), f"seen {list(seen.shape)}"
