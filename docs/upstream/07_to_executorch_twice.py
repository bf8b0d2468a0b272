"""to_executorch cannot be called twice on one manager."""
import torch
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return (x + 1).view(1, 3) * 2

edge = to_edge(torch.export.export(Model(), (torch.zeros(3),)))
edge.to_executorch()
edge.to_executorch()
