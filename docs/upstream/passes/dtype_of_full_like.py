"""Ones like integers, but of another dtype, are of the dtype of the integers."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.convert_full_like_to_full_pass import ConvertFullLikeToFullPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.full_like(x, 0.5, dtype=torch.float32)

inputs = (torch.tensor([1, 2]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = ConvertFullLikeToFullPass()(module).graph_module(*inputs)[0]
assert torch.equal(seen, Model()(*inputs)), f"seen {seen.tolist()}"
