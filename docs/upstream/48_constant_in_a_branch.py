"""A tensor that is written down in a branch cannot be lowered."""
import torch
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda y: y + torch.tensor([1.0, 2.0]), lambda y: y - 1, (x,))

to_edge(torch.export.export(Model(), (torch.zeros(2),))).to_executorch()
