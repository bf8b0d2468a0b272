"""The sum of two tensors without dims gets one, if it has a factor alpha."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.decompose_add_sub_alpha_pass import DecomposeAddSubAlphaPass

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.add(x, x, alpha=2)

inputs = (torch.tensor(0.25),)
module = torch.export.export(Model(), inputs).graph_module
seen = DecomposeAddSubAlphaPass()(module).graph_module(*inputs)[0]
assert seen.shape == (), f"seen {list(seen.shape)}"
