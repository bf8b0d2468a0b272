"""A maximum over no dims, which means all of them, is the tensor itself."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.convert_minmax_pass import ConvertMinMaxPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.amax(x, [], True)

inputs = (torch.tensor([1.0, 3.0]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = ConvertMinMaxPass()(module).graph_module(*inputs)[0]
assert torch.equal(seen, Model()(*inputs)), f"seen {seen.tolist()}"
