"""A method that returns what torch.max returns cannot be emitted."""
import torch
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.max(x, 0)

to_edge(torch.export.export(Model(), (torch.zeros(3),))).to_executorch()
