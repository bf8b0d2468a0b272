"""A norm of order three stops the pass, which sees all calls before any is partitioned."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.decompose_linalg_vector_norm_pass import DecomposeLinalgVectorNormPass

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.vector_norm(x, 3, dim=-1)

inputs = (torch.tensor([[1.0, 2.0]]),)
module = torch.export.export(Model(), inputs).graph_module
seen = DecomposeLinalgVectorNormPass()(module).graph_module(*inputs)[0]
assert torch.allclose(seen, Model()(*inputs)), f"seen {seen.tolist()}"
