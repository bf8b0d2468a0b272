"""A map whose body has two results cannot be emitted."""
import torch
from executorch.exir import to_edge
from torch._higher_order_ops import map as torch_map

class Model(torch.nn.Module):
    def forward(self, x):
        return torch_map(lambda row: (row + 1, row * 2), x)

to_edge(torch.export.export(Model(), (torch.zeros(4, 3),))).to_executorch()
