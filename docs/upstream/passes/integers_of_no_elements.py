"""A tensor of integers that has no elements stops the pass."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.convert_int64_const_ops_to_int32 import ConvertInt64ConstOpsToInt32Pass

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cat([x, torch.full((0,), 1)])

inputs = (torch.tensor([1, 2]),)
module = torch.export.export(Model(), inputs).graph_module
seen = ConvertInt64ConstOpsToInt32Pass()(module).graph_module(*inputs)[0]
assert torch.equal(seen, Model()(*inputs)), f"seen {seen.tolist()}"
