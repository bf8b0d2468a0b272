"""The rounding of a tensor without dims gets one."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.decompose_round_pass import DecomposeRoundPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.round(x)

inputs = (torch.tensor(0.75),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeRoundPass()(module).graph_module(*inputs)[0]
assert seen.shape == (), f"seen {list(seen.shape)}"
