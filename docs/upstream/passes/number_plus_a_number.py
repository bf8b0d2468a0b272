"""The sum of a tensor without dims and a number gets one."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.scalars_to_attribute_pass import ScalarsToAttributePass

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 2.0

inputs = (torch.tensor(0.75),)
module = torch.export.export(Model(), inputs).graph_module
seen = ScalarsToAttributePass()(module).graph_module(*inputs)[0]
assert seen.shape == (), f"seen {list(seen.shape)}"
