"""The mean that a group norm returns as well is its result."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.decompose_groupnorm_pass import DecomposeGroupNormPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.native_group_norm(x, None, None, 1, 2, 2, 1, 1e-5)[1]

inputs = (torch.tensor([[[1.0, 3.0], [5.0, 7.0]]]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeGroupNormPass()(module).graph_module(*inputs)[0]
assert torch.equal(seen, Model()(*inputs)), f"seen {seen.tolist()}"
