"""The similarity of two vectors is taken along a dim that they do not have."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.decompose_cosine_similarity_pass import DecomposeCosineSimilarityPass

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.cosine_similarity(x, y, dim=0)

inputs = (torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0]))
module = torch.export.export(Model(), inputs).graph_module
seen = DecomposeCosineSimilarityPass()(module).graph_module(*inputs)[0]
assert torch.allclose(seen, Model()(*inputs)), f"seen {seen.tolist()}"
