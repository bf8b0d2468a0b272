"""Distances other than Euclidean ones between the rows of a matrix stop the pass."""
import torch
from executorch.backends.qualcomm._passes.decompose_pdist import DecomposePDist

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.pdist(x, p=1.0)

inputs = (torch.tensor([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]]),)
module = torch.export.export(Model(), inputs).module()
seen = DecomposePDist()(module).graph_module(*inputs)
assert torch.allclose(seen, Model()(*inputs)), f"seen {seen.tolist()}"
