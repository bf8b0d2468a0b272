"""The mean that a layer norm returns as well is its result."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.decompose_layernorm_pass import DecomposeLayerNormPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten.native_layer_norm(x, [2], None, None, 1e-5)[1]

inputs = (torch.tensor([[1.0, 3.0]]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeLayerNormPass()(module).graph_module(*inputs)[0]
assert torch.equal(seen, Model()(*inputs)), f"seen {seen.tolist()}"
