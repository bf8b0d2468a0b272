"""Distances other than Euclidean ones stop the pass."""
import torch
from executorch.backends.qualcomm._passes.decompose_cdist import DecomposeCDist

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.cdist(x, y, p=1.0)

inputs = (torch.ones(2, 3), torch.zeros(4, 3))
module = torch.export.export(Model(), inputs).module()
seen = DecomposeCDist()(module).graph_module(*inputs)
assert torch.allclose(seen, Model()(*inputs)), f"seen {seen.tolist()}"
