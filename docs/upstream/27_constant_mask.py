"""Indexing with a constant mask cannot be lowered."""
import torch
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return x[:, torch.tensor([True, False, True])]

to_edge(torch.export.export(Model(), (torch.zeros(2, 3),))).to_executorch()
