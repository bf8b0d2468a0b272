"""A number minus twice a tensor loses the factor."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.scalars_to_attribute_pass import ScalarsToAttributePass

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.rsub(x, 1.0, alpha=2)

inputs = (torch.tensor([1.0, 2.0]),)
module = torch.export.export(Model(), inputs).graph_module
seen = ScalarsToAttributePass()(module).graph_module(*inputs)[0]
assert torch.equal(seen, Model()(*inputs)), f"seen {seen.tolist()}"
